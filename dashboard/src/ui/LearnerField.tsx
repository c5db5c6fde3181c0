/** Chooses a learner of a job, from 1; nothing if the job has one. */
export function LearnerField({ learners, value, onChange }: { learners: number; value: number; onChange: (learner: number) => void }) {
  if (learners <= 1) return null;
  return (
    <label className="row">
      Learner
      <input
        className="input learner-field"
        type="number"
        min={1}
        max={learners}
        value={value}
        onChange={(event) => onChange(Math.min(learners, Math.max(1, event.target.valueAsNumber || 1)))}
      />
    </label>
  );
}
