import { lazy, Suspense } from "react";

import { code } from "../api/code";
import { Loading } from "./Loading";
import type { MarkdownProps } from "./MarkdownBody";

// The parser is loaded with the first text.
const MarkdownBody = lazy(code(async () => ({ default: (await import("./MarkdownBody")).MarkdownBody })));

export function Markdown(props: MarkdownProps) {
  return (
    <Suspense fallback={<Loading />}>
      <MarkdownBody {...props} />
    </Suspense>
  );
}
