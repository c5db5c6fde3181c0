// Every page and its URL. What a page needs beyond the first look is loaded when it is opened.
import type { QueryClient } from "@tanstack/react-query";
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from "@tanstack/react-router";

import { AwayError } from "./api/client";
import { code } from "./api/code";
import { sessionQuery } from "./api/queries";
import { Away, Shell } from "./app/Shell";
import { parseSearch, stringifySearch, text, whole } from "./app/urls";
import { readChartSearch } from "./charts/search";
import { readCompareSearch } from "./pages/compare/search";
import { readPlace } from "./pages/data/place";
import { readAuditSearch } from "./pages/audit/search";
import { NotFound, PageError } from "./pages/errors";
import { JobsPage } from "./pages/jobs/JobsPage";
import { readJobsSearch } from "./pages/jobs/search";
import { readLogSearch } from "./pages/logs/search";
import { ownPath } from "./pages/provider";
import { readProfilesSearch } from "./pages/profiles/search";
import { SignInPage } from "./pages/SignInPage";

interface RouterContext {
  queries: QueryClient;
}

const root = createRootRouteWithContext<RouterContext>()({
  component: Outlet,
  notFoundComponent: NotFound,
});

const signIn = createRoute({
  getParentRoute: () => root,
  path: "/signin",
  validateSearch: (search): { next?: string } => {
    const next = ownPath(search["next"]);
    return next ? { next } : {};
  },
  component: SignInPage,
});

const provider = createRoute({
  getParentRoute: () => root,
  path: "/signin/$provider",
  component: lazyRouteComponent(code(() => import("./pages/ProviderPage")), "ProviderPage"),
});

/** All that needs a session. Without one: sign in first, and then back to the same URL. */
const inside = createRoute({
  getParentRoute: () => root,
  id: "inside",
  beforeLoad: async ({ context, location }) => {
    const session = await context.queries.ensureQueryData(sessionQuery);
    if (session === null) {
      throw redirect({ to: "/signin", search: location.href === "/" ? {} : { next: location.href } });
    }
  },
  component: Shell,
  errorComponent: ({ error }) => (
    <>
      <Away />
      <main className="main">{error instanceof AwayError ? null : <PageError error={error} />}</main>
    </>
  ),
});

const jobs = createRoute({
  getParentRoute: () => inside,
  path: "/",
  validateSearch: readJobsSearch,
  component: JobsPage,
});

const job = createRoute({
  getParentRoute: () => inside,
  path: "/jobs/$jobId",
  component: lazyRouteComponent(code(() => import("./pages/job/JobPage")), "JobPage"),
});
const overview = createRoute({
  getParentRoute: () => job,
  path: "/",
  component: lazyRouteComponent(code(() => import("./pages/job/Overview")), "Overview"),
});
const events = createRoute({
  getParentRoute: () => job,
  path: "/events",
  component: lazyRouteComponent(code(() => import("./pages/job/EventsTab")), "EventsTab"),
});
const metrics = createRoute({
  getParentRoute: () => job,
  path: "/metrics",
  validateSearch: readChartSearch,
  component: lazyRouteComponent(code(() => import("./pages/job/MetricsTab")), "MetricsTab"),
});
const media = createRoute({
  getParentRoute: () => job,
  path: "/media",
  component: lazyRouteComponent(code(() => import("./pages/media/MediaTab")), "MediaTab"),
});
const system = createRoute({
  getParentRoute: () => job,
  path: "/system",
  validateSearch: readChartSearch,
  component: lazyRouteComponent(code(() => import("./pages/job/MetricsTab")), "SystemTab"),
});

const profiles = createRoute({
  getParentRoute: () => job,
  path: "/profiles",
  validateSearch: readProfilesSearch,
  component: lazyRouteComponent(code(() => import("./pages/profiles/ProfilesTab")), "ProfilesTab"),
});
const logs = createRoute({
  getParentRoute: () => job,
  path: "/logs",
  validateSearch: readLogSearch,
  component: lazyRouteComponent(code(() => import("./pages/logs/LogsTab")), "LogsTab"),
});
const compare = createRoute({
  getParentRoute: () => inside,
  path: "/compare",
  validateSearch: readCompareSearch,
  component: lazyRouteComponent(code(() => import("./pages/compare/ComparePage")), "ComparePage"),
});
const submit = createRoute({
  getParentRoute: () => inside,
  path: "/submit",
  validateSearch: (search): { from?: string } => {
    const from = text(search["from"]);
    return from ? { from } : {};
  },
  component: lazyRouteComponent(code(() => import("./pages/submit/SubmitPage")), "SubmitPage"),
});
const sweeps = createRoute({
  getParentRoute: () => inside,
  path: "/sweeps",
  component: lazyRouteComponent(code(() => import("./pages/sweeps/SweepsPage")), "SweepsPage"),
});
const sweep = createRoute({
  getParentRoute: () => inside,
  path: "/sweeps/$sweepId",
  validateSearch: (search): { sort?: "number" | undefined } => (search["sort"] === "number" ? { sort: "number" } : {}),
  component: lazyRouteComponent(code(() => import("./pages/sweeps/SweepPage")), "SweepPage"),
});
const schedules = createRoute({
  getParentRoute: () => inside,
  path: "/schedules",
  component: lazyRouteComponent(code(() => import("./pages/schedules/SchedulesPage")), "SchedulesPage"),
});
const schedule = createRoute({
  getParentRoute: () => inside,
  path: "/schedules/$scheduleId",
  component: lazyRouteComponent(code(() => import("./pages/schedules/SchedulePage")), "SchedulePage"),
});
const models = createRoute({
  getParentRoute: () => inside,
  path: "/models",
  validateSearch: (search): { q?: string | undefined } => ({ q: text(search["q"]) }),
  component: lazyRouteComponent(code(() => import("./pages/models/ModelsPage")), "ModelsPage"),
});
const model = createRoute({
  getParentRoute: () => inside,
  path: "/models/$name",
  validateSearch: (search): { version?: number | undefined; with?: number | undefined } => ({
    version: whole(search["version"]),
    with: whole(search["with"]),
  }),
  component: lazyRouteComponent(code(() => import("./pages/models/ModelPage")), "ModelPage"),
});
const cluster = createRoute({
  getParentRoute: () => inside,
  path: "/cluster",
  component: lazyRouteComponent(code(() => import("./pages/cluster/ClusterPage")), "ClusterPage"),
});
const stores = createRoute({
  getParentRoute: () => inside,
  path: "/stores",
  component: lazyRouteComponent(code(() => import("./pages/access/StoresPage")), "StoresPage"),
});
const data = createRoute({
  getParentRoute: () => inside,
  path: "/stores/$name",
  validateSearch: readPlace,
  component: lazyRouteComponent(code(() => import("./pages/data/DataPage")), "DataPage"),
});
const tokens = createRoute({
  getParentRoute: () => inside,
  path: "/tokens",
  component: lazyRouteComponent(code(() => import("./pages/access/TokensPage")), "TokensPage"),
});
const device = createRoute({
  getParentRoute: () => inside,
  path: "/device",
  validateSearch: (search): { code?: string } => {
    const found = text(search["code"]);
    return found ? { code: found } : {};
  },
  component: lazyRouteComponent(code(() => import("./pages/access/DevicePage")), "DevicePage"),
});
const audit = createRoute({
  getParentRoute: () => inside,
  path: "/audit",
  validateSearch: readAuditSearch,
  component: lazyRouteComponent(code(() => import("./pages/audit/AuditPage")), "AuditPage"),
});
const admin = createRoute({
  getParentRoute: () => inside,
  path: "/admin",
  component: lazyRouteComponent(code(() => import("./pages/access/AdminPage")), "AdminPage"),
});

/** Any other URL: the menu stays. */
const unknown = createRoute({ getParentRoute: () => inside, path: "$", component: NotFound });

const readPath = (search: Record<string, unknown>): { path?: string } => {
  const path = text(search["path"]);
  return path ? { path } : {};
};
const files = createRoute({
  getParentRoute: () => job,
  path: "/files",
  validateSearch: (search): { path?: string; view?: "images" } => ({
    ...readPath(search),
    ...(search["view"] === "images" ? { view: "images" } : {}),
  }),
  component: lazyRouteComponent(code(() => import("./pages/files/FilesTab")), "FilesTab"),
});
const codeOfJob = createRoute({
  getParentRoute: () => job,
  path: "/code",
  validateSearch: (search): { path?: string; against?: string } => {
    const against = text(search["against"]);
    return { ...readPath(search), ...(against && { against }) };
  },
  component: lazyRouteComponent(code(() => import("./pages/code/CodeTab")), "CodeTab"),
});

const tree = root.addChildren([
  signIn,
  provider,
  inside.addChildren([
    jobs,
    job.addChildren([
      // One a line, as the tabs are.
      overview,
      logs,
      metrics,
      media,
      system,
      profiles,
      files,
      codeOfJob,
      events,
    ]),
    compare,
    submit,
    sweeps,
    sweep,
    schedules,
    schedule,
    models,
    model,
    cluster,
    stores,
    data,
    tokens,
    device,
    audit,
    admin,
    unknown,
  ]),
]);

export function makeRouter(queries: QueryClient) {
  return createRouter({
    routeTree: tree,
    context: { queries },
    defaultPreload: "intent",
    defaultPreloadStaleTime: 0,
    defaultErrorComponent: PageError,
    defaultNotFoundComponent: NotFound,
    scrollRestoration: true,
    parseSearch,
    stringifySearch,
  });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
