import { useQuery, useQueryClient } from "@tanstack/react-query";

import { json } from "../api/client";
import { sessionQuery } from "../api/queries";
import type { Session } from "../api/types";
import { toast } from "../ui/toast";

/** Turns to another project; whether it could. */
export function useProjectTurn() {
  const queries = useQueryClient();
  return async (project: string): Promise<boolean> => {
    try {
      const changed = await json<Session>("/session/project", "PUT", { project });
      queries.setQueryData(sessionQuery.queryKey, changed);
      // Nothing of the other project may stay to be seen.
      void queries.resetQueries({ predicate: (query) => query.queryKey[0] !== "session" });
      return true;
    } catch (error) {
      toast(`The project was not changed: ${(error as Error).message}`, "bad");
      return false;
    }
  };
}

/** For what was not found here: a URL does not say of which project it is. */
export function OtherProjects() {
  const { data: session } = useQuery(sessionQuery);
  const turn = useProjectTurn();
  const others = session?.projects.filter((project) => project.name !== session.project) ?? [];
  if (!others.length) return null;
  return (
    <div className="row" role="group" aria-label="Other projects">
      {others.map((project) => (
        <button key={project.name} type="button" className="button" onClick={() => void turn(project.name)}>
          Look in {project.name}
        </button>
      ))}
    </div>
  );
}
