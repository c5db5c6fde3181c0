"""Prints what a learner finds: folders, environment, code, data; and never a secret of the platform's.

The user's own secret is printed twice: as it is, which the log masks, and backwards, which shows its true value.
"""

import json
import os
from pathlib import Path

names = ["DATA_DIR", "RESULT_DIR", "MODEL_DIR", "CHECKPOINT_DIR", "LOG_DIR", "JOB_STATE_DIR"]
found = {name: Path(os.environ[name]).is_dir() for name in names}
found["cwd is MODEL_DIR"] = Path.cwd().samefile(os.environ["MODEL_DIR"])
found["data"] = sorted(
    str(path.relative_to(os.environ["DATA_DIR"])) for path in Path(os.environ["DATA_DIR"]).rglob("*")
)
found["values"] = {
    n: os.environ.get(n) for n in ("LEARNER_ID", "NUM_LEARNERS", "GPU_COUNT", "TRAINING_ID", "GREETING", "API_KEY")
}
found["values"]["API_KEY backwards"] = os.environ["API_KEY"][::-1]
found["leaks"] = [n for n, v in os.environ.items() if "weft_a_" in v or n in ("WEFT_DATABASE_URL", "WEFT_SECRET_KEYS")]
print("FOUND " + json.dumps(found), flush=True)
