"""Put what a job has stored where later jobs look for it, under its version: python publish.py JOB PLACE

PLACE is a container with the model's prefix, such as default:models/digits; the model of the job JOB goes to
PLACE/<its version>, which must not be there yet. Needs the `weft` command, logged in.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def weft(*arguments: str) -> str:
    done = subprocess.run(["weft", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"weft {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python publish.py JOB DATASTORE:CONTAINER/PREFIX")
    job, place = sys.argv[1], sys.argv[2].rstrip("/")
    with tempfile.TemporaryDirectory() as folder:
        weft("download", job, "--trainedmodel", "--unpack", "-o", folder)
        found = sorted(Path(folder).rglob("version.json"))
        if len(found) != 1:
            sys.exit(f"job {job} has stored no model: there is no version.json in its results")
        target = f"{place}/{json.loads(found[0].read_text())['version']}"
        container = target.partition("/")[0]
        if container in weft("data", "ls").split() and json.loads(weft("data", "ls", target + "/", "--json")):
            sys.exit(f"{target} is there already; versions are never overwritten")
        for name in ("model.pt", "version.json"):
            weft("data", "put", str(found[0].with_name(name)), target + "/")
    print(target)


if __name__ == "__main__":
    main()
