"""``python -m docs.generate [FOLDER]``: write the references into FOLDER (default: ``docs/reference``)."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.generate.pages import REFERENCES, write

if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else REFERENCES)
