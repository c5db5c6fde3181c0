import { defineConfig } from "vitest/config";

// The dashboard's logic. What the browser shows is tested in Chromium (tests/dashboard of the repository).
export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    mockReset: true,
    restoreMocks: true,
    unstubGlobals: true,
    coverage: {
      include: ["src/**/*.ts"],
      exclude: ["src/api/schema.d.ts"],
      reporter: ["text"],
    },
  },
});
