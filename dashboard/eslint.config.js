import js from "@eslint/js";
import { createNodeResolver, importX } from "eslint-plugin-import-x";
import jsxA11y from "eslint-plugin-jsx-a11y";
import reactHooks from "eslint-plugin-react-hooks";
import globals from "globals";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["node_modules", ".cache", "src/api/schema.d.ts"] },
  js.configs.recommended,
  ...tseslint.configs.recommended,
  {
    files: ["src/**/*.{ts,tsx}"],
    languageOptions: { globals: globals.browser },
    plugins: { "import-x": importX, "react-hooks": reactHooks, "jsx-a11y": jsxA11y },
    settings: {
      "import-x/extensions": [".ts", ".tsx"],
      "import-x/resolver-next": [createNodeResolver({ extensions: [".ts", ".tsx"] })],
    },
    rules: {
      ...reactHooks.configs.recommended.rules,
      ...jsxA11y.flatConfigs.recommended.rules,
      // Programs of users print what they like: nothing here may ever turn text into markup.
      "no-restricted-syntax": [
        "error",
        { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: "text only, never HTML" },
        { selector: "MemberExpression[property.name='innerHTML']", message: "text only, never HTML" },
      ],
      "@typescript-eslint/consistent-type-imports": "error",
      // Imports of types alone do not count: they are gone when the page runs.
      "import-x/no-cycle": "error",
    },
  },
  { files: ["public/**/*.js"], languageOptions: { globals: globals.browser, sourceType: "script" } },
  { files: ["scripts/*.mjs"], languageOptions: { globals: globals.node } },
);
