import { ApiError, AwayError } from "../api/client";

/** An error. If the API has found problems in the request, each of them with its place. */
export function ErrorNote({ error }: { error: unknown }) {
  if (!error) return null;
  const problems = error instanceof ApiError ? error.problems : [];
  const title = error instanceof ApiError ? error.title : error instanceof AwayError ? "Trying again" : "Failed";
  return (
    <div className="note bad" role="alert">
      <strong>{title}</strong>
      {problems.length ? (
        <ul>
          {problems.map((problem, index) => (
            <li key={index}>
              {problem.path && <code>{problem.path}</code>}
              {problem.line ? ` (line ${problem.line})` : ""} {problem.message}
              {problem.found ? <>; found {problem.found}</> : null}
              {problem.accepted ? <>; accepted: {problem.accepted}</> : null}
            </li>
          ))}
        </ul>
      ) : (
        <p>{error instanceof Error ? error.message : String(error)}</p>
      )}
    </div>
  );
}
