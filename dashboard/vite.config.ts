import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../api/weft_api/dashboard/static",
    emptyOutDir: true,
    target: "es2022",
    // A data: URL is what `font-src 'self'` refuses.
    assetsInlineLimit: 0,
    manifest: true,
    // The shell's document has a policy of its own (api/weft_api/dashboard/routes.py).
    rolldownOptions: { input: ["index.html", "shell.html"], checks: { pluginTimings: false } },
    reportCompressedSize: false,
  },
  // `npm run dev` beside a running Weft: same origin for the browser, so the session's cookie works.
  server: { proxy: { "/api": process.env["WEFT_API"] ?? "http://127.0.0.1:8080" } },
});
