// A text field that shows YAML in colours, its lines' numbers, and where something is wrong. It is a plain <textarea>,
// so keyboards, screen readers and undo work as everywhere; the colours lie behind it.
import { type KeyboardEvent, type Ref, useRef } from "react";

import { useHighlighted } from "./highlight";

interface Props {
  value: string;
  onChange: (text: string) => void;
  /** line → what is wrong there. */
  marks?: ReadonlyMap<number, string>;
  invalid?: boolean;
  label: string;
  describedBy?: string | undefined;
  ref?: Ref<HTMLTextAreaElement>;
}

const NO_MARKS: ReadonlyMap<number, string> = new Map();

export function ManifestEditor({ value, onChange, marks = NO_MARKS, invalid, label, describedBy, ref }: Props) {
  const colours = useHighlighted(value, "yaml");
  const lines = value.split("\n").length;
  // Tab indents; after Escape it goes on to the next field, as it must for users without a mouse.
  const leaving = useRef(false);
  const pressed = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.key === "Escape") leaving.current = true;
    const typed = event.key === "Tab" && !event.shiftKey && !leaving.current ? "  " : newLine(event);
    if (!typed) return;
    event.preventDefault();
    // The only way that undo knows of.
    document.execCommand("insertText", false, typed);
  };
  return (
    <div className="editor">
      <ol className="editor-lines" aria-hidden="true">
        {Array.from({ length: lines }, (_, at) => (
          <li key={at} className={marks.has(at + 1) ? "wrong" : ""} title={marks.get(at + 1)}>
            {at + 1}
          </li>
        ))}
      </ol>
      <div className="editor-text">
        <pre aria-hidden="true">
          {colours}
          {"\n"}
        </pre>
        <textarea
          ref={ref}
          value={value}
          spellCheck={false}
          autoCapitalize="off"
          autoComplete="off"
          wrap="off"
          aria-label={label}
          aria-invalid={invalid ?? marks.size > 0}
          aria-describedby={describedBy}
          onChange={(event) => onChange(event.target.value)}
          onKeyDown={pressed}
          onFocus={() => {
            leaving.current = false;
          }}
        />
      </div>
    </div>
  );
}

/** A new line that begins where the one before it does, and deeper after `key:`; "" where that is its beginning. */
function newLine(event: KeyboardEvent<HTMLTextAreaElement>): string {
  if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.nativeEvent.isComposing) return "";
  const field = event.currentTarget;
  const before = field.value.slice(0, field.selectionStart).split("\n").at(-1) ?? "";
  const indent = /^\s*/.exec(before)?.[0] ?? "";
  const deeper = /:\s*$/.test(before) ? "  " : "";
  return indent || deeper ? `\n${indent}${deeper}` : "";
}
