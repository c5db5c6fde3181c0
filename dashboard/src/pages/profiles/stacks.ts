// The stacks that py-spy has seen: a stack per line, from the outermost call to the innermost, and how often it was seen.

export interface Call {
  name: string;
  value: number;
  children: Call[];
}

const MAIN = /: MainThread$/;
const THREAD = /^thread \([^)]*\):? ?/;

/** One tree for each thread, the main thread first, then the busiest. */
export function threads(text: string): Call[] {
  const roots = new Map<string, Call>();
  for (const line of text.split("\n")) {
    const end = line.lastIndexOf(" ");
    const times = Number(line.slice(end + 1));
    const frames = line.slice(0, end).split(";");
    if (end < 1 || !Number.isInteger(times) || times < 1 || frames.length < 2) continue;
    const [thread = "", ...calls] = frames;
    let call = root(roots, thread);
    call.value += times;
    for (const name of calls) {
      call = child(call, name);
      call.value += times;
    }
  }
  return [...roots.entries()]
    .sort(([a, x], [b, y]) => Number(MAIN.test(b)) - Number(MAIN.test(a)) || y.value - x.value)
    .map(([name, call]) => ({ ...call, name: name.replace(THREAD, "") || name }));
}

function root(roots: Map<string, Call>, name: string): Call {
  const found = roots.get(name) ?? { name, value: 0, children: [] };
  roots.set(name, found);
  return found;
}

function child(parent: Call, name: string): Call {
  let found = parent.children.find((call) => call.name === name);
  if (!found) {
    found = { name, value: 0, children: [] };
    parent.children.push(found);
  }
  return found;
}

export interface Hot {
  name: string;
  /** Of the thread's time: in the call itself, and in it and all that it calls. */
  own: number;
  whole: number;
}

/** The calls in which a thread was most often. */
export function hottest(thread: Call, most: number): Hot[] {
  const found = new Map<string, Hot>();
  const visit = (call: Call, above: ReadonlySet<string>) => {
    const inner = call.children.reduce((sum, { value }) => sum + value, 0);
    const hot = found.get(call.name) ?? { name: call.name, own: 0, whole: 0 };
    hot.own += (call.value - inner) / thread.value;
    if (!above.has(call.name)) hot.whole += call.value / thread.value; // a recursive call counts once
    found.set(call.name, hot);
    const inside = new Set(above).add(call.name);
    call.children.forEach((next) => visit(next, inside));
  };
  thread.children.forEach((call) => visit(call, new Set()));
  return [...found.values()].sort((a, b) => b.own - a.own).slice(0, most);
}
