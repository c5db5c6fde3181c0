"""Weft's agent: the program inside a learner, in a process, an actor or a pod alike. It speaks HTTP and S3 only.

Training code needs one name of it: ``from weft_trainer import log_metrics``.
"""

import os
import sys

# Packages that an engine has put beside the agent, for an image that lacks them; last, so that the image's own come
# first.
_BROUGHT = os.path.join(os.path.dirname(__file__), "brought")
if os.path.isdir(_BROUGHT) and _BROUGHT not in sys.path:
    sys.path.append(_BROUGHT)

from weft_trainer.metrics.logging import log_metrics  # noqa: E402

__all__ = ["log_metrics"]
