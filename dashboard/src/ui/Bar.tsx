/** A share of a whole, 0 … 1, as a bar. */
export function Bar({ share, label }: { share: number; label: string }) {
  const percent = Math.round(100 * Math.min(1, Math.max(0, share)));
  return (
    <div className="bar" role="meter" aria-label={label} aria-valuenow={percent} aria-valuemin={0} aria-valuemax={100}>
      <span style={{ width: `${percent}%` }} />
    </div>
  );
}
