"""What is left of a budget while a queue is planned (docs/budgets.md)."""

from __future__ import annotations

from dataclasses import dataclass

from weft_core.store.budgets import Need, Standing, hours


@dataclass
class Purse:
    """The rest of one budget; changed as jobs are planned. All amounts are GPU-seconds."""

    name: str
    limit: float
    used: float
    reserved: float
    kept: float = 0.0
    """Set aside for jobs that wait."""

    @classmethod
    def of(cls, standing: Standing) -> Purse:
        return cls(standing.name, standing.limit, standing.used, standing.reserved)

    @property
    def left(self) -> float:
        return self.limit - self.used - self.reserved

    def grant(self, need: Need) -> float:
        """How much a job may reserve now; 0: none. While other jobs may still give something back, a job waits for all
        that it needs. After that, the last job gets the rest, and is halted when it is used up."""
        if need.full <= self.left - self.kept:
            return need.full
        if not self.reserved and need.least <= self.left - self.kept:
            return self.left - self.kept
        return 0.0

    def is_used_up(self, need: Need) -> bool:
        """Whether a job will never start: nothing can come back, and too little is left."""
        return not self.reserved and not self.kept and self.left < need.least

    def take(self, amount: float) -> None:
        self.reserved += amount

    def hold_back(self, need: Need) -> str:
        """Why a job has to wait; sets aside what it needs, so that small jobs never starve it."""
        self.kept += need.full
        used = f"{hours(self.used + self.reserved)} of {hours(self.limit)} GPU-hours are used or reserved"
        return f"waiting for the budget of token {self.name}: {used}, asks {hours(need.full)}"

    def halt(self) -> str:
        """Why a job that waits is halted."""
        return (
            f"halted by the budget of token {self.name}: {hours(self.used)} of {hours(self.limit)} GPU-hours are used"
        )
