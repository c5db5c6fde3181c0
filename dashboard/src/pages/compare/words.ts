// The parts of a value that another value does not have.
import { diffWordsWithSpace } from "diff";

export interface Part {
  text: string;
  changed: boolean;
}

const LONGEST = 4000; // characters: more are not compared word by word

export function changedWords(before: string | undefined, after: string): Part[] {
  if (before === undefined || before === after) return [{ text: after, changed: false }];
  if (before.length + after.length > LONGEST) return [{ text: after, changed: true }];
  return diffWordsWithSpace(before, after)
    .filter((part) => !part.removed)
    .map((part) => ({ text: part.value, changed: part.added }));
}
