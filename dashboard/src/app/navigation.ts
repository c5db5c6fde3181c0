// The pages that the menu leads to, in its order. `admin`: only administrators see it; `owns`: owners see it, too.
export interface MenuItem {
  to: "/" | "/submit" | "/sweeps" | "/schedules" | "/models" | "/cluster" | "/stores" | "/tokens" | "/audit" | "/admin";
  name: string;
  admin?: boolean;
  owns?: boolean;
  /** Viewers have no use for it. */
  edits?: boolean;
}

export const NAVIGATION: readonly MenuItem[] = [
  { to: "/", name: "Jobs" },
  { to: "/submit", name: "Submit", edits: true },
  { to: "/sweeps", name: "Sweeps" },
  { to: "/schedules", name: "Schedules" },
  { to: "/models", name: "Models" },
  { to: "/cluster", name: "Cluster" },
  { to: "/stores", name: "Data and secrets" },
  { to: "/tokens", name: "Tokens" },
  { to: "/audit", name: "Audit", owns: true },
  { to: "/admin", name: "Administration", admin: true },
];
