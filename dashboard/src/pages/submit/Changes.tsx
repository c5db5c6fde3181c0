import { Fact } from "../../ui/Fact";
import { differences } from "../compare/differences";

/** What a rerun does otherwise than the job before: by what the server makes of both manifests. */
export function Changes({ before, after }: { before: unknown; after: unknown }) {
  const changed = differences([before, after]);
  return (
    <section className="card" aria-labelledby="changes">
      <h2 id="changes">Changes</h2>
      {changed.length === 0 ? (
        <p className="muted">None: the same manifest again.</p>
      ) : (
        <dl className="facts">
          {changed.map(([path, [old, now]]) => (
            <Fact key={path} name={path}>
              <span className="mono">
                {old ?? "not set"} → {now ?? "not set"}
              </span>
            </Fact>
          ))}
        </dl>
      )}
    </section>
  );
}
