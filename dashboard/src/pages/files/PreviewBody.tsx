import { useEffect, useMemo, useState } from "react";

import { Code, languageOf } from "../../ui/highlight";
import { type Preview, pretty } from "./preview";

export function PreviewBody({ preview, name }: { preview: Preview; name: string }) {
  if (preview.kind === "image") return <Picture blob={preview.blob} name={name} />;
  if (preview.kind === "none") return <p className="note">{preview.why}</p>;
  return (
    <>
      {preview.cut && <p className="note warn">Only the beginning is shown; the download has the rest.</p>}
      {preview.text === "" ? (
        <p className="note">The file is empty.</p>
      ) : (
        <Code text={preview.cut ? preview.text : pretty(preview.text, name)} language={languageOf(name)} />
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
