import { Link } from "@tanstack/react-router";

import { Empty } from "../ui/Empty";
import { ErrorNote } from "../ui/ErrorNote";
import { useTitle } from "../ui/useTitle";

export function NotFound() {
  useTitle("Not found");
  return (
    <Empty title="There is no such page">
      <p>The address may have been cut off when it was copied.</p>
      <Link to="/" className="button">
        To the jobs
      </Link>
    </Empty>
  );
}

export function PageError({ error }: { error: unknown }) {
  return (
    <div className="stack">
      <ErrorNote error={error} />
      <div>
        <button type="button" className="button" onClick={() => window.location.reload()}>
          Load the page again
        </button>
      </div>
    </div>
  );
}
