// Source code in colours. The highlighter is loaded when there is something to colour; until then, and for text that
// is too long or of no known language, it is plain. Its tree becomes elements here: never HTML.
import { type ReactNode, useEffect, useState } from "react";

type Node = { type: string; value?: string; properties?: { className?: unknown }; children?: Node[] };
type Highlighter = { highlight: (language: string, text: string) => Node };

export type Language = "yaml" | "python" | "json" | "bash";
const LONGEST = 300_000; // characters

let loading: Promise<Highlighter> | null = null;
function load(): Promise<Highlighter> {
  loading ??= import("./highlighter").then((module) => module.highlighter);
  return loading;
}

export function languageOf(path: string): Language | null {
  if (/\.ya?ml$/i.test(path)) return "yaml";
  if (/\.py$/i.test(path)) return "python";
  if (/\.(json|jsonl|ipynb)$/i.test(path)) return "json";
  if (/\.(sh|bash)$/i.test(path)) return "bash";
  return null;
}

/** `text` as elements with highlight.js's classes. */
export function useHighlighted(text: string, language: Language | null): ReactNode {
  const [highlighter, setHighlighter] = useState<Highlighter | null>(null);
  const wanted = language !== null && text.length <= LONGEST;
  useEffect(() => {
    if (!wanted) return;
    let there = true;
    load().then(
      (loaded) => there && setHighlighter(loaded),
      () => {}, // plain is good enough
    );
    return () => {
      there = false;
    };
  }, [wanted]);
  if (!wanted || !highlighter) return text;
  return highlighter.highlight(language, text).children?.map(element);
}

function element(node: Node, index: number): ReactNode {
  if (node.type === "text") return node.value;
  const names = node.properties?.className;
  return (
    <span key={index} className={Array.isArray(names) ? names.join(" ") : undefined}>
      {node.children?.map(element)}
    </span>
  );
}

/** Source code with line numbers. */
export function Code({ text, language }: { text: string; language: Language | null }) {
  const shown = useHighlighted(text, language);
  const lines = text.replace(/\n$/, "").split("\n").length;
  return (
    // Scrolled by keys.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className="code" role="region" aria-label="Text of the file" tabIndex={0}>
      <pre className="code-numbers" aria-hidden="true">
        {Array.from({ length: lines }, (_, at) => at + 1).join("\n")}
      </pre>
      <pre className="code-text">{shown}</pre>
    </div>
  );
}
