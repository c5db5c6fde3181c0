"""A program that prints text that could harm a web page, until a given file is there; then it leaves files."""

from __future__ import annotations

import os
import struct
import sys
import time
import zlib
from pathlib import Path


def png(width: int, height: int) -> bytes:
    """A small picture, made by hand so that any environment can make it."""
    rows = b"".join(
        b"\0" + bytes(part for x in range(width) for part in (x * 255 // width, y * 255 // height, 128))
        for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


release = Path(sys.argv[1])
print("\x1b[1;31mcareful\x1b[0m: <script>window.broken = 1</script>", flush=True)
print('<img src="x" onerror="window.broken = 1"> \x1b]8;;javascript:window.broken=1\x07link\x1b]8;;\x07', flush=True)
# In one write, so that no state of the bar is ever the last one for a while (one a second is kept of those).
sys.stdout.write("loading 10 %\rloading 100 %\n")
sys.stdout.flush()
step = 0
while not release.exists():
    print(f"step {step:05d}  loss {1 / (1 + step / 40):.4f}", flush=True)
    step += 1
    time.sleep(0.05)
results = Path(os.environ["RESULT_DIR"])
(results / "<img src=x onerror=window.broken=1>.txt").write_text("<script>window.broken = 1</script>\n")
(results / "metrics.json").write_text('{"accuracy": 0.98}')
(results / "page.html").write_text("<script>window.broken = 1</script>")
(results / "curve.png").write_bytes(png(240, 160))
print("all done", flush=True)
