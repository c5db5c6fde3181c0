import { useState } from "react";

import type { JobDetail } from "../../api/types";
import { openTunnel } from "../../shell/open";
import { plural, size } from "../../ui/format";
import { LearnerField } from "../../ui/LearnerField";
import { type Item, readEvents } from "./eventFile";
import { readLearner } from "./live";

/** Reads the event files of a learner that runs, as they are now. */
export function LiveEvents({ job, onRead }: { job: JobDetail; onRead: (items: Map<string, Item[]>) => void }) {
  const [learner, setLearner] = useState(1);
  const [busy, setBusy] = useState(false);
  const [said, setSaid] = useState("");
  const read = async () => {
    setBusy(true);
    setSaid("Asking the learner …");
    try {
      const socket = await openTunnel(job.id, "events", learner);
      const files = await readLearner(socket, (bytes) => setSaid(`${size(bytes)} …`));
      onRead(new Map([...files].map(([name, bytes]) => [name, readEvents(bytes)])));
      setSaid(`${plural(files.size, "event file", "event files")} as of ${new Date().toLocaleTimeString("en", { hour12: false })}`);
    } catch (error) {
      setSaid(error instanceof Error ? error.message : String(error));
    }
    setBusy(false);
  };
  return (
    <div className="row">
      <LearnerField learners={job.learners} value={learner} onChange={setLearner} />
      <button type="button" className="button" disabled={busy} onClick={() => void read()}>
        Read learner {learner}
      </button>
      <span className="muted" role="status">
        {said}
      </span>
    </div>
  );
}
