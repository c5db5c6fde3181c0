// For administrators: users, projects, and their members, roles and quotas.
import { useQuery } from "@tanstack/react-query";

import { sessionQuery } from "../../api/queries";
import { Empty } from "../../ui/Empty";
import { useTitle } from "../../ui/useTitle";
import { Projects } from "./Projects";
import { Users } from "./Users";

export function AdminPage() {
  useTitle("Administration");
  const { data: session } = useQuery(sessionQuery);
  if (!session?.admin) {
    return (
      <div className="card">
        <Empty title="For administrators only">
          <p>Users, projects and quotas are looked after by administrators; you are none.</p>
        </Empty>
      </div>
    );
  }
  return (
    <>
      <div className="page-head">
        <h1>Administration</h1>
      </div>
      <div className="stack">
        <Users me={session.user} />
        <Projects />
      </div>
    </>
  );
}
