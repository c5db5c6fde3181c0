const END = 14; // characters that stay at a text's end

/** A text that is cut in its middle where there is too little room: names of jobs differ at their ends. */
export function Middle({ text }: { text: string }) {
  if (text.length <= END) return <span className="middle">{text}</span>;
  return (
    <span className="middle">
      <span className="middle-begin">{text.slice(0, -END)}</span>
      <span className="middle-end">{text.slice(-END)}</span>
    </span>
  );
}
