// A text field that shows its text in colours: a transparent textarea above the coloured text.
import { type KeyboardEvent, useRef } from "react";

import { type Language, useHighlighted } from "./highlight";

interface Props {
  value: string;
  onChange: (text: string) => void;
  language: Language;
  label: string;
  invalid?: boolean;
  rows?: number;
}

export function CodeEditor({ value, onChange, language, label, invalid = false, rows = 18 }: Props) {
  const shown = useHighlighted(value, language);
  const behind = useRef<HTMLPreElement>(null);
  // Tab indents; after Escape it goes on to the next field, as it must for who has no mouse.
  const leaving = useRef(false);
  const pressed = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.key === "Escape") leaving.current = true;
    if (event.key !== "Tab" || event.shiftKey || leaving.current) return;
    event.preventDefault();
    const field = event.currentTarget;
    field.setRangeText("  ", field.selectionStart, field.selectionEnd, "end");
    onChange(field.value);
  };
  return (
    <div className="editor">
      <pre ref={behind} className="editor-text" aria-hidden="true">
        {shown}
        {"\n"}
      </pre>
      <textarea
        className="input"
        aria-label={label}
        aria-invalid={invalid}
        spellCheck={false}
        autoCapitalize="off"
        autoComplete="off"
        wrap="off"
        rows={rows}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={pressed}
        onFocus={() => {
          leaving.current = false;
        }}
        onScroll={(event) => {
          if (!behind.current) return;
          behind.current.scrollTop = event.currentTarget.scrollTop;
          behind.current.scrollLeft = event.currentTarget.scrollLeft;
        }}
      />
    </div>
  );
}
