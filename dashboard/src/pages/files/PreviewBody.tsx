import { useEffect, useMemo, useState } from "react";

import { Code, languageOf } from "../../ui/highlight";
import { Markdown } from "../../ui/Markdown";
import { isSheet, readSheet, readSplit, type Sheet } from "./csv";
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
  if (preview.kind === "image") return <Picture blob={preview.blob} name={name} />;
  if (preview.kind === "none") return <p className="note">{preview.why}</p>;
  return <TextBody {...preview} name={name} image={image} />;
}

interface TextProps {
  text: string;
  cut: boolean;
  name: string;
  image: (path: string) => string | null;
}

function TextBody({ text, cut, name, image }: TextProps) {
  const [source, setSource] = useState(false);
  const markdown = /\.(md|markdown)$/i.test(name);
  const sheet = useMemo(() => sheetIn(text, cut, name), [text, cut, name]);
  if (text === "") return <p className="note">The file is empty.</p>;
  return (
    <>
      {cut && <p className="note warn">Only the beginning is shown; the download has the rest.</p>}
      {(markdown || sheet) && (
        <div className="row" role="group" aria-label="View">
          <button type="button" className="button small" aria-pressed={!source} onClick={() => setSource(false)}>
            {markdown ? "Text" : "Table"}
          </button>
          <button type="button" className="button small" aria-pressed={source} onClick={() => setSource(true)}>
            Source
          </button>
        </div>
      )}
      {markdown && !source ? (
        <div className="card text-file">
          <Markdown text={text} image={image} />
        </div>
      ) : sheet && !source ? (
        <SheetTable sheet={sheet} />
      ) : (
        <Code text={cut ? text : pretty(text, name)} language={languageOf(name)} />
      )}
    </>
  );
}

function sheetIn(text: string, cut: boolean, name: string): Sheet | null {
  if (isSheet(name)) return readSheet(text, cut);
  return /\.json$/i.test(name) && !cut ? readSplit(text) : null;
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
