"""``python -m weft_trainer.function MODULE:NAME KEYWORDS [POSITIONALS]``: calls a function of the user's code.

The arguments of the function are JSON: an object and an array. ``@weft.job`` of the client library writes the command.
"""

from __future__ import annotations

import importlib
import json
import sys


def main(arguments: list[str]) -> None:
    """Import the module and call its function; an exception ends the process with a traceback."""
    target, keywords, *more = arguments
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    function(*(json.loads(more[0]) if more else ()), **json.loads(keywords))


if __name__ == "__main__":
    main(sys.argv[1:])
