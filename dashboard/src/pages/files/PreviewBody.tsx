import { useEffect, useMemo, useState } from "react";

import { Code, languageOf } from "../../ui/highlight";
import { Markdown } from "../../ui/Markdown";
import { isSheet } from "./csv";
import { type Preview, pretty } from "./preview";
import { SheetTable } from "./SheetTable";

interface Props {
  preview: Preview;
  name: string;
  /** The URL of a file beside this one, for the images of Markdown. */
  image?: (path: string) => string | null;
}

const noImage = () => null;

export function PreviewBody({ preview, name, image = noImage }: Props) {
  const [source, setSource] = useState(false);
  if (preview.kind === "image") return <Picture blob={preview.blob} name={name} />;
  if (preview.kind === "none") return <p className="note">{preview.why}</p>;
  const { text, cut } = preview;
  const markdown = /\.(md|markdown)$/i.test(name);
  const shown = text !== "" && !source && (markdown ? "markdown" : isSheet(name) ? "table" : null);
  return (
    <>
      {cut && <p className="note warn">Only the beginning is shown; the download has the rest.</p>}
      {text !== "" && (markdown || isSheet(name)) && (
        <div className="row" role="group" aria-label="View">
          <button type="button" className="button small" aria-pressed={!source} onClick={() => setSource(false)}>
            {markdown ? "Text" : "Table"}
          </button>
          <button type="button" className="button small" aria-pressed={source} onClick={() => setSource(true)}>
            Source
          </button>
        </div>
      )}
      {text === "" ? (
        <p className="note">The file is empty.</p>
      ) : shown === "markdown" ? (
        <div className="card text-file">
          <Markdown text={text} image={image} />
        </div>
      ) : shown === "table" ? (
        <SheetTable text={text} cut={cut} />
      ) : (
        <Code text={cut ? text : pretty(text, name)} language={languageOf(name)} />
      )}
    </>
  );
}

function Picture({ blob, name }: { blob: Blob; name: string }) {
  const url = useMemo(() => URL.createObjectURL(blob), [blob]);
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  const [broken, setBroken] = useState(false);
  if (broken) return <p className="note">The image can&apos;t be shown: it is broken.</p>;
  return (
    <div>
      <img src={url} alt={name} onError={() => setBroken(true)} />
    </div>
  );
}
