// Builds the page into the Python package. Names carry no hash, so that a rebuild changes contents
// only; what browsers keep is told apart by ETag.
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  publicDir: "public",
  resolve: {
    alias: {
      "markdown-to-jsx/react": fileURLToPath(new URL("src/no-markdown.ts", import.meta.url)),
    },
  },
  plugins: [
    {
      // The page is at …/console and its files at …/console/….
      name: "files-below-the-page",
      transformIndexHtml: {
        order: "post",
        handler: (html) => html.replaceAll('="./', '="./console/'),
      },
    },
  ],
  build: {
    outDir: "../fastapi_mcp_mrtr/http/console/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    license: { fileName: "licences.txt" },
    rolldownOptions: {
      onwarn: (warning, warn) => {
        if (warning.code !== "MODULE_LEVEL_DIRECTIVE") warn(warning);
      },
      output: {
        entryFileNames: "console.js",
        assetFileNames: "console[extname]",
        codeSplitting: false,
      },
    },
  },
});
