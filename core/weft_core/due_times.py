"""CronSim for zones whose summer time is not a whole hour. :mod:`weft_core.cron` imports it when a schedule is used."""

from __future__ import annotations

from cronsim import CronSim

_MINUTE, _HOUR = 60, 3600


class DueTimes(CronSim):
    """The due times of a schedule after a moment, or before it.

    CronSim goes from hour to hour by adding 3600 s, and to a single minute in one step. In a night that moves the clock
    by half an hour (Lord Howe Island) it then lands in the middle of an hour, and leaves due times out.
    """

    def tick(self, seconds: int = 1) -> None:
        before = self.dt
        if seconds == _HOUR:  # to the first second of the next hour, or back to the last one of the hour before
            edge = 59 if self.tick_direction == 1 else 0
            self.dt = self.dt.replace(minute=edge, second=edge)
            seconds = 1
        super().tick(seconds)
        if seconds > _MINUTE and self.dt.utcoffset() != before.utcoffset():
            self.dt = before
            super().tick(_MINUTE)  # CronSim goes on from there
