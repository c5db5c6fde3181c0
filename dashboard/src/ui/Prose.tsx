// A message of the API: `code` and *emphasis* in it are shown as such.
export function Prose({ text }: { text: string }) {
  return (
    <span className="break">
      {text.split(/(`[^`]+`|\*[^*\s][^*]*\*)/).map((part, at) =>
        part.startsWith("`") && part.length > 1 ? (
          <code key={at}>{part.slice(1, -1)}</code>
        ) : part.startsWith("*") && part.length > 2 ? (
          <em key={at}>{part.slice(1, -1)}</em>
        ) : (
          part
        ),
      )}
    </span>
  );
}
