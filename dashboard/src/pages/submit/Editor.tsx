// A text field that shows YAML in colours, its lines' numbers, and where something is wrong. It is a plain <textarea>,
// so keyboards, screen readers and undo work as everywhere; the colours lie behind it.
import type { KeyboardEvent, Ref } from "react";

import { useHighlighted } from "../../ui/highlight";

interface EditorProps {
  value: string;
  onChange: (text: string) => void;
  /** line → what is wrong there. */
  marks: ReadonlyMap<number, string>;
  label: string;
  describedBy?: string | undefined;
  ref?: Ref<HTMLTextAreaElement>;
}

export function Editor({ value, onChange, marks, label, describedBy, ref }: EditorProps) {
  const colours = useHighlighted(value, "yaml");
  const lines = value.split("\n").length;
  return (
    <div className="manifest-editor">
      <ol className="manifest-lines" aria-hidden="true">
        {Array.from({ length: lines }, (_, at) => (
          <li key={at} className={marks.has(at + 1) ? "wrong" : ""} title={marks.get(at + 1)}>
            {at + 1}
          </li>
        ))}
      </ol>
      <div className="manifest-text">
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
          aria-invalid={marks.size > 0}
          aria-describedby={describedBy}
          onChange={(event) => onChange(event.target.value)}
          onKeyDown={keepIndent}
        />
      </div>
    </div>
  );
}

/** A new line begins where the one before it does, and deeper after `key:`. */
function keepIndent(event: KeyboardEvent<HTMLTextAreaElement>) {
  if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.nativeEvent.isComposing) return;
  const field = event.currentTarget;
  const before = field.value.slice(0, field.selectionStart).split("\n").at(-1) ?? "";
  const indent = /^\s*/.exec(before)?.[0] ?? "";
  const deeper = /:\s*$/.test(before) ? "  " : "";
  if (!indent && !deeper) return;
  event.preventDefault();
  // The only way that undo knows of.
  document.execCommand("insertText", false, `\n${indent}${deeper}`);
}
