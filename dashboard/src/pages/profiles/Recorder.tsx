import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { profilesQuery } from "../../api/queries";
import type { JobDetail } from "../../api/types";
import { openTunnel } from "../../shell/open";
import { LearnerField } from "../../ui/LearnerField";
import { profileId, record } from "./record";

const STEPS = 10;

/** Records a profile of a learner of a running job. */
export function Recorder({ job }: { job: JobDetail }) {
  const queries = useQueryClient();
  const [learner, setLearner] = useState(1);
  const [busy, setBusy] = useState(false);
  const [said, setSaid] = useState("");
  const start = async () => {
    setBusy(true);
    setSaid("Asking the learner …");
    try {
      const socket = await openTunnel(job.id, "profile", learner);
      const request = { profile: profileId(new Date(), Math.random()), steps: STEPS, seconds: null };
      const missing = await record(socket, request, setSaid);
      setSaid(missing.join("; "));
      await queries.invalidateQueries(profilesQuery(job.id));
    } catch (error) {
      setSaid(error instanceof Error ? error.message : String(error));
    }
    setBusy(false);
  };
  return (
    <div className="row">
      <LearnerField learners={job.learners} value={learner} onChange={setLearner} />
      <button type="button" className="button" disabled={busy} onClick={() => void start()}>
        Record {STEPS} steps
      </button>
      <span className="muted" role="status">
        {said}
      </span>
    </div>
  );
}
