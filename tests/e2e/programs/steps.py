"""A training loop in small: counts steps, saves a checkpoint after each, goes on from the last one.

usage: steps.py STEPS SECONDS_BETWEEN [DIE_AT]

When both learners have come to step DIE_AT of the first attempt, learner 2 kills itself as the kernel would (SIGKILL).
With $HOLD, the last step is not done before that file is there.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

steps, pause = int(sys.argv[1]), float(sys.argv[2])
die_at = int(sys.argv[3]) if len(sys.argv) > 3 else -1
learner, attempt = os.environ["LEARNER_ID"], os.environ["WEFT_ATTEMPT"]

checkpoint = Path(os.environ["CHECKPOINT_DIR"], "step.txt")
start = int(checkpoint.read_text()) if checkpoint.exists() else 0
print(f"attempt {attempt} starts at step {start}", flush=True)


def save(step: int) -> None:
    temporary = checkpoint.with_suffix(".tmp")
    temporary.write_text(str(step))
    temporary.replace(checkpoint)


def meet() -> None:
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if learner == "1":
        with socket.create_server(address) as server:
            server.accept()
        return
    while True:
        try:
            return socket.create_connection(address).close()
        except ConnectionRefusedError:
            time.sleep(0.05)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
for step in range(start, steps):
    if attempt == "1" and step == die_at:
        meet()
        if learner == "2":
            os.kill(os.getpid(), signal.SIGKILL)
    while step == steps - 1 and "HOLD" in os.environ and not Path(os.environ["HOLD"]).exists():
        time.sleep(0.05)
    print(f"step {step}", flush=True)
    time.sleep(pause)
    if learner == "1":
        save(step + 1)
if learner == "1":
    Path(os.environ["RESULT_DIR"], "model.txt").write_text(f"trained for {steps} steps\n")
