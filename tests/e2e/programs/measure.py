"""Says a number in every way there is: log_metrics, an event file (PyTorch has written it), the log, FfDL's file."""

import json
import os
import shutil
import time
from pathlib import Path

from weft_trainer import log_metrics

logs = Path(os.environ["LOG_DIR"])
for step in range(5):
    log_metrics(loss=1 / (step + 1), step=step, group="own")
    print(f"Iteration {step}, accuracy = {step / 10}", flush=True)
(logs / "train").mkdir()
shutil.copy("events.out.tfevents.torch", logs / "train")
line = {
    "grouplabel": "test",
    "etimes": {"iteration": {"type": 2, "value": "3"}},
    "values": {"f1": {"type": 3, "value": "0.5"}},
}
(logs / "evaluation-metrics.txt").write_text(json.dumps(line) + "\n")
if "HOLD" in os.environ:
    while not Path(os.environ["HOLD"]).exists():
        time.sleep(0.05)
