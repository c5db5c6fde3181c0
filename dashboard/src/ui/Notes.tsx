// What the project's users have written down about a job or a version: Markdown, edited where it stands.
import { useState } from "react";

import { Markdown } from "./Markdown";
import { EditButton, TextForm } from "./TextForm";

interface Props {
  text: string;
  empty: string;
  edit: boolean;
  save: (text: string) => Promise<void>;
}

export function Notes({ text, empty, edit, save }: Props) {
  const [editing, setEditing] = useState(false);
  if (!edit && !text) return null;
  return (
    <section className="card" aria-labelledby="notes">
      <div className="card-head">
        <h2 id="notes">Notes</h2>
        {edit && !editing && <EditButton what="notes" open={() => setEditing(true)} />}
      </div>
      {editing ? (
        <>
          <TextForm name="Notes" text={text} rows={8} most={100_000} save={save} close={() => setEditing(false)} />
          <p className="muted">Markdown: **bold**, `code`, lists, tables, links.</p>
        </>
      ) : text ? (
        <Markdown text={text} breaks />
      ) : (
        <p className="muted">{empty}</p>
      )}
    </section>
  );
}
