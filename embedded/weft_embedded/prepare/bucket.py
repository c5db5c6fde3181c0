"""``python -m weft_embedded.prepare.bucket``: the installation's own bucket in somebody else's store.

:class:`weft_embedded.servers.SeaweedServer` makes it in our own.
"""

from __future__ import annotations

import argparse
import sys

from weft_core.objects import Objects, StoreError
from weft_core.settings import load_settings
from weft_embedded.prepare import patiently


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m weft_embedded.prepare.bucket", description=__doc__)
    parser.parse_args(arguments)
    try:
        settings = load_settings()
        patiently(lambda: Objects(settings.s3).ensure(), _is_away)
    except (StoreError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _is_away(error: Exception) -> bool:
    """Whether the store could not be reached: no other trouble passes by itself."""
    return isinstance(error, StoreError) and error.kind == "unreachable"


if __name__ == "__main__":
    sys.exit(main())
