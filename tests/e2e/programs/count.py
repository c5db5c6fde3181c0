"""Prints numbered lines; used to see that a log has every line once.

usage: count.py LINES SECONDS_BETWEEN
"""

import os
import sys
import time
from pathlib import Path

lines, pause = int(sys.argv[1]), float(sys.argv[2])
for number in range(lines):
    print(f"line {number}", flush=True)
    time.sleep(pause)
Path(os.environ["RESULT_DIR"], f"learner-{os.environ['LEARNER_ID']}.txt").write_text(f"{lines}\n")
