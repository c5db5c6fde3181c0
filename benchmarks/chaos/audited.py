"""The jobs' program: says in the audit file that it begins and ends, and numbers its lines. Run by learners."""

import fcntl
import os
import sys
import time

folder, lines, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
job, attempt = os.environ["TRAINING_ID"], os.environ["WEFT_ATTEMPT"]
audit = os.open(os.path.join(folder, "audit"), os.O_WRONLY | os.O_APPEND)


def note(what: str) -> None:
    os.write(audit, f"{job} {attempt} {what} {time.time()}\n".encode())  # one write is never torn


lock = open(os.path.join(folder, "locks", job), "a")  # noqa: SIM115 - held until this process ends
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("overlaps")
note("begin")
for number in range(lines):
    print(f"{attempt} {number}", flush=True)
    time.sleep(seconds / lines)
note("end")
