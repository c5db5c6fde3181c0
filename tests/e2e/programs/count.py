"""Prints numbered lines; used to see that a log has every line once.

usage: count.py LINES SECONDS_BETWEEN [UNTIL]

With UNTIL it goes on until that file is there, prints LINES lines from then on, and "end".
"""

import os
import sys
import time
from pathlib import Path

lines, pause = int(sys.argv[1]), float(sys.argv[2])
until = Path(sys.argv[3]) if len(sys.argv) > 3 else None
number = 0
while number < lines:
    print(f"line {number}", flush=True)
    time.sleep(pause)
    number += 1
    if until and not until.exists():
        lines = number + int(sys.argv[1])
if until:
    print("end", flush=True)
Path(os.environ["RESULT_DIR"], f"learner-{os.environ['LEARNER_ID']}.txt").write_text(f"{lines}\n")
