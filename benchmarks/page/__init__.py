"""The web page as a browser shows it: when it is ready for its user, and how smoothly it scrolls.

A real API process with Postgres, Redis and S3, and a headless Chromium whose own trace says when frames were drawn and
how long its main thread was busy. Static pages of the same size, in the same browser, show what the machine can do.
"""

from benchmarks.page.measure import measure

__all__ = ["measure"]
