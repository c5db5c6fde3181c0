// The tabs of a job's page, each with its URL.
export const TABS = [
  { to: "/jobs/$jobId", name: "Overview" },
  { to: "/jobs/$jobId/logs", name: "Logs" },
  { to: "/jobs/$jobId/metrics", name: "Metrics" },
  { to: "/jobs/$jobId/media", name: "Media" },
  { to: "/jobs/$jobId/system", name: "System" },
  { to: "/jobs/$jobId/profiles", name: "Profiles" },
  { to: "/jobs/$jobId/files", name: "Files" },
  { to: "/jobs/$jobId/code", name: "Code" },
  { to: "/jobs/$jobId/events", name: "Events" },
] as const;
