import type { Repository } from "../code/source";

/** What a lineage tells, of what the pages show; parts may be missing in old ones. */
export interface Told {
  job?: { id: string; name: string };
  code_sha256?: string | null;
  repo?: Repository | null;
  data?: { files: number; bytes: number } | null;
  pretrained?: { files: number; bytes: number } | null;
  image?: { reference: string; digest: string } | null;
  metrics?: Record<string, { last?: number | null; min?: number | null; max?: number | null } | number>;
  run?: { engine: string; learners: number; seconds: number; attempt: number };
}
