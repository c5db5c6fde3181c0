const HAS_LINES = /; its last lines:$/;

/** A job's reason in one line, without the lines of its log that the API puts under it. */
export const headlineOf = (reason: string) => (reason.split("\n")[0] ?? "").replace(HAS_LINES, "");
