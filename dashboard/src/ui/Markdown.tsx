import { lazy, Suspense } from "react";

import { Loading } from "./Loading";
import type { MarkdownProps } from "./MarkdownBody";

// The parser is loaded with the first text.
const MarkdownBody = lazy(() => import("./MarkdownBody").then((module) => ({ default: module.MarkdownBody })));

export function Markdown(props: MarkdownProps) {
  return (
    <Suspense fallback={<Loading />}>
      <MarkdownBody {...props} />
    </Suspense>
  );
}
