"""``python -m tests.trainer.program.record_tensorflow``: records the reports of gangs of TensorFlow that hang, and
prints their verdicts. No test does: each rank imports TensorFlow, which takes ten seconds of a core."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from tests.trainer.program.gangs import Gangs, write

from weft_core.hangs.verdict import judge

NAMES = ("skipped", "uneven", "debugger", "peer", "loader", "lock")
_SETTLED = 20.0
"""Seconds from the last step of the ranks until all of them hang."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        gangs = Gangs(Path(folder), NAMES, "hangs_tensorflow.py", "tensorflow:2.21.0", ranks=2)
        try:
            gangs.hang()
            time.sleep(_SETTLED)
            reports = {name: gangs.report(name) for name in NAMES}
        finally:
            gangs.end()
    write("_tensorflow", reports)
    verdicts = {name: judge(gang, {}) for name, gang in reports.items()}
    json.dump({name: verdict and verdict.text for name, verdict in verdicts.items()}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
