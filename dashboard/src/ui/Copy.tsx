import { useEffect, useState } from "react";

/** A command line, with a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <span className="command">
      <code>{text}</code>
      <Copy text={text} what="the command" />
    </span>
  );
}

export function Copy({ text, what }: { text: string; what: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = window.setTimeout(() => setDone(false), 1500);
    return () => window.clearTimeout(timer);
  }, [done]);
  return (
    <button
      type="button"
      className="button quiet small"
      aria-label={done ? `Copied ${what}` : `Copy ${what}`}
      onClick={() => void copyText(text).then(() => setDone(true))}
    >
      {done ? "copied" : "copy"}
    </button>
  );
}

/** Browsers offer the clipboard only on https and localhost; elsewhere, this selects a text field and copies it. */
async function copyText(text: string) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
