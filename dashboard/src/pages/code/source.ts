/** The git repository that has a job's code. */
export interface Repository {
  url: string;
  ref?: string;
  commit?: string;
  path?: string;
}

/** Where a job's code is, if a repository has it. */
export function sourceOf(manifest: Record<string, unknown>): string | null {
  const repo = manifest.repo as Repository | undefined;
  if (!repo) return null;
  const ref = repo.ref && repo.ref !== repo.commit ? ` (${repo.ref})` : "";
  const path = repo.path ? `, folder ${repo.path}` : "";
  return `Commit ${repo.commit}${ref} of ${repo.url}${path}`;
}
