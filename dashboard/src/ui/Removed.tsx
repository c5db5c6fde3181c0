import { Empty } from "./Empty";
import { dateTime } from "./format";

const NAMES = { logs: "The log was", metrics: "The metrics were", results: "The results were" };

/** In place of what the project no longer keeps of a job. */
export function Removed({ what, at }: { what: keyof typeof NAMES; at: string }) {
  return (
    <Empty title={`${NAMES[what]} removed`}>
      <p>
        That was on {dateTime(at)}: the project no longer keeps {what === "logs" ? "it" : "them"}. Owners see and change
        for how long with <code>weft projects retention</code>.
      </p>
    </Empty>
  );
}
