/** The job and the learner that the path of a shell names: `/jobs/JOB/shell/LEARNER`. */
export function place(path: string): { job: string; learner: number } {
  const [, , job, , learner] = path.split("/");
  return { job: decodeURIComponent(job ?? ""), learner: Number(learner) || 1 };
}
