"""``python -m weft_trainer.ray_gang SUBMISSION_ID NOTES``: the entrypoint of a run's Ray job."""

from __future__ import annotations

import sys

from weft_trainer.ray_gang.driver import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
