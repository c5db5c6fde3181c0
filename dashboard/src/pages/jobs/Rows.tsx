// The rows of a long table: those far from the window are not in the document, as the browser lays out all of a table when
// one of its cells changes. Rows come and go by the part, each a <tbody>, with a row of the same height in its place.
import { type ReactElement, type ReactNode, useEffect, useRef, useState } from "react";

import type { Job } from "../../api/types";
import { partsOf } from "./parts";

interface Props {
  jobs: readonly Job[];
  row: (job: Job) => ReactElement;
  /** How many columns there are. */
  span: number;
  /** A row above them. */
  head?: ReactNode;
}

const AROUND = "1200px"; // above and below the window
const ROW = 31; // px

export function Rows({ jobs, row, span, head }: Props) {
  const parts = partsOf(jobs);
  return (parts.length ? parts : [[]]).map((part, at) => (
    <Part key={at} jobs={part} row={row} span={span} head={at === 0 ? head : undefined} first={at < 2} />
  ));
}

function Part({ jobs, row, span, head, first }: Props & { first: boolean }) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [near, setNear] = useState(first);
  const [height, setHeight] = useState(ROW); // of a row, on average: on a phone, they differ
  useEffect(() => {
    const element = body.current;
    if (!element) return;
    const watch = new IntersectionObserver(
      (entries) => {
        const last = entries.at(-1);
        if (!last) return;
        // The keys go on from the row that has the focus.
        const comes = last.isIntersecting || element.contains(document.activeElement);
        if (!comes && !element.querySelector(".away")) setHeight(last.boundingClientRect.height / element.rows.length);
        setNear(comes);
      },
      { rootMargin: `${AROUND} 0px` },
    );
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  return (
    <tbody ref={body}>
      {near ? (
        <>
          {head}
          {jobs.map(row)}
        </>
      ) : (
        <tr aria-hidden="true" className="away" style={{ height: height * (jobs.length + (head ? 1 : 0)) }}>
          <td colSpan={span} />
        </tr>
      )}
    </tbody>
  );
}
