import type { components } from "../../api/schema";
import { Copy } from "../../ui/Copy";
import { Dialog } from "../../ui/Dialog";

export type Created = components["schemas"]["CreatedToken"];

/** A new token: the only time that it is shown. */
export function MadeToken({ made, onClose }: { made: Created; onClose: () => void }) {
  return (
    <Dialog title={`Token ${made.name}`} onClose={onClose}>
      <p>This is the only time that it is shown.</p>
      <span className="command">
        <code>{made.token}</code>
        <Copy text={made.token} what="the token" />
      </span>
      <div className="actions">
        <button type="button" className="button primary" onClick={onClose}>
          I have it
        </button>
      </div>
    </Dialog>
  );
}
