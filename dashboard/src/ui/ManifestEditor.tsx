// A text field that shows YAML in colours, its lines' numbers, and where something is wrong. It is a plain <textarea>,
// so keyboards, screen readers and undo work as everywhere; the colours lie behind it.
import { type KeyboardEvent, type Ref, useId, useRef, useState } from "react";

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
  /** What may be written at a place of the text. */
  suggest?: (text: string, cursor: number) => Suggestions | null;
}

export interface Suggestions {
  /** Where the text begins that a suggestion replaces. */
  from: number;
  options: readonly { text: string; insert: string; detail: string }[];
}

/** Suggestions at the cursor, and where they are shown. */
interface Open extends Suggestions {
  cursor: number;
  chosen: number;
  line: number;
  column: number;
}

const NO_MARKS: ReadonlyMap<number, string> = new Map();

export function ManifestEditor({ value, onChange, marks = NO_MARKS, invalid, label, describedBy, ref, suggest }: Props) {
  const colours = useHighlighted(value, "yaml");
  const lines = value.split("\n").length;
  // Tab indents; after Escape it goes on to the next field, as it must for users without a mouse.
  const leaving = useRef(false);
  const [open, setOpen] = useState<Open | null>(null);
  const listId = useId();
  const look = (field: HTMLTextAreaElement) => {
    const cursor = field.selectionStart;
    const found = cursor === field.selectionEnd ? suggest?.(field.value, cursor) : null;
    const before = field.value.slice(0, found?.from ?? 0).split("\n");
    setOpen(found ? { ...found, cursor, chosen: 0, line: before.length, column: before.at(-1)?.length ?? 0 } : null);
  };
  const take = (field: HTMLTextAreaElement, at: number) => {
    const option = open?.options[at];
    if (!open || !option) return;
    field.focus();
    field.setSelectionRange(open.from, open.cursor);
    document.execCommand("insertText", false, option.insert);
    setOpen(null);
  };
  const area = useRef<HTMLTextAreaElement | null>(null);
  const pressed = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.ctrlKey && event.key === " ") {
      event.preventDefault();
      look(event.currentTarget);
      return;
    }
    if (open && !event.nativeEvent.isComposing) {
      const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (move) setOpen({ ...open, chosen: (open.chosen + move + open.options.length) % open.options.length });
      else if (event.key === "Enter" || event.key === "Tab") take(event.currentTarget, open.chosen);
      else if (event.key === "Escape") setOpen(null);
      if (move || ["Enter", "Tab", "Escape"].includes(event.key)) {
        event.preventDefault();
        return;
      }
    }
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
          ref={(field) => {
            area.current = field;
            if (typeof ref === "function") return ref(field);
            if (ref) ref.current = field;
          }}
          value={value}
          spellCheck={false}
          autoCapitalize="off"
          autoComplete="off"
          wrap="off"
          aria-label={label}
          aria-invalid={invalid ?? marks.size > 0}
          aria-describedby={describedBy}
          aria-autocomplete={suggest ? "list" : undefined}
          aria-controls={open ? listId : undefined}
          aria-activedescendant={open ? `${listId}-${open.chosen}` : undefined}
          onChange={(event) => {
            onChange(event.target.value);
            // Only what is typed asks for suggestions: a paste or a template does not.
            const { inputType, data } = event.nativeEvent as InputEvent;
            if (inputType === "insertText" && data !== null && /^[\w-]$/.test(data)) look(event.target);
            else setOpen(null);
          }}
          onBlur={() => setOpen(null)}
          onClick={() => setOpen(null)}
          onKeyDown={pressed}
          onFocus={() => {
            leaving.current = false;
          }}
        />
        {open && (
          <ul
            className="suggestions"
            id={listId}
            role="listbox"
            aria-label="Suggestions"
            style={{ top: `calc(10px + ${open.line} * 1.55em)`, left: `calc(4px + ${open.column}ch)` }}
          >
            {open.options.map((option, at) => (
              <li
                key={option.text}
                id={`${listId}-${at}`}
                role="option"
                aria-selected={at === open.chosen}
                // The text field keeps the focus.
                onMouseDown={(event) => {
                  event.preventDefault();
                  if (area.current) take(area.current, at);
                }}
              >
                <code>{option.text}</code>
                {option.detail && <span className="muted">{option.detail}</span>}
              </li>
            ))}
          </ul>
        )}
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
