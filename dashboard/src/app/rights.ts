import { useQuery } from "@tanstack/react-query";

import { sessionQuery } from "../api/queries";

/** The rights of the signed-in user in this project. The API decides; pages only hide what it would refuse. */
export function useRights(): { edit: boolean; own: boolean; admin: boolean } {
  const { data: session } = useQuery(sessionQuery);
  const admin = session?.admin ?? false;
  const role = session?.role;
  return { edit: role === "editor" || role === "owner", own: role === "owner" || admin, admin };
}
