import type { components } from "../../api/schema";
import { Fact } from "../../ui/Fact";
import { plural, size } from "../../ui/format";

export interface Canonical {
  engine?: string;
  learners?: number;
  elastic?: { min: number; max: number };
  priority?: number;
  resources?: { cpus: number; gpus: number; memory: number; gpu_type?: string | null };
  framework?: { name: string; version: string; image?: string; launcher?: string; command: string };
}

/** What the server makes of the manifest. */
export function Resolved({ checked }: { checked: components["schemas"]["ValidManifest"] }) {
  const { engine, learners, elastic, priority, resources, framework } = checked.manifest as Canonical;
  return (
    <section className="card" aria-labelledby="resolved">
      <h2 id="resolved">What it will run as</h2>
      <dl className="facts">
        <Given name="Engine" of={engine} />
        <Given name="Image" of={framework?.image ?? `${framework?.name} ${framework?.version}`} />
        <Given name="Launcher" of={framework?.launcher} />
        <Given name="Command" of={framework?.command} />
        <Given name="Learners" of={elastic ? `${learners} (${elastic.min} to ${elastic.max})` : learners} />
        {resources && (
          <Given
            name="Each has"
            of={
              `${plural(resources.cpus, "CPU")}, ${size(resources.memory)}` +
              (resources.gpus ? `, ${plural(resources.gpus, resources.gpu_type ?? "GPU")}` : "")
            }
          />
        )}
        <Given name="Priority" of={priority} />
      </dl>
      {checked.notes.length > 0 && (
        <ul className="notes">
          {checked.notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Given({ name, of }: { name: string; of: string | number | undefined }) {
  return of === undefined ? null : <Fact name={name}>{of}</Fact>;
}
