"""Does one thing until it is stopped; a deadlock is over in the second attempt.

usage: quiet.py deadlock|burn|log|write
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

what = sys.argv[1]


def wait_for_a_peer_that_never_comes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()


print(f"{what} begins", flush=True)
if what == "deadlock" and os.environ["WEFT_ATTEMPT"] == "1":
    wait_for_a_peer_that_never_comes()
while what != "deadlock":
    if what == "burn":  # in children that are gone before anybody looks
        subprocess.run([sys.executable, "-S", "-c", "sum(range(6_000_000))"], check=True)
        time.sleep(0.2)
    elif what == "log":
        print("still here", flush=True)
        time.sleep(1)
    else:
        Path(os.environ["RESULT_DIR"], "state.txt").write_text(str(time.time()))
        time.sleep(1)
