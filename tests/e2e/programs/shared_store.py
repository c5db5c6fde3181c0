"""Reads its inputs, downloaded and streamed, and tries what its keys must not open. Prints a line of JSON.

    shared_store.py BUCKET

BUCKET is another project's.
"""

import json
import os
import sys
from pathlib import Path

from weft_trainer.data import Stream
from weft_trainer.errors import DataError
from weft_trainer.spec import S3Location
from weft_trainer.stores.s3 import S3Store

streams = Path(os.environ["WEFT_STREAM_DIR"])
signing = json.loads((streams / "streamed.signing.json").read_text())
url = json.loads((streams / "streamed.jsonl").read_text().splitlines()[0])["url"]
endpoint, own = url.split("/")[0] + "//" + url.split("/")[2], url.split("/")[3]


def opens(bucket, prefix):
    location = S3Location(endpoint, container=bucket, prefix=prefix, key_file=signing["key_file"])
    try:
        return len(S3Store(location).list()) > 0
    except DataError as error:
        return "may not" not in str(error)


found = {
    "downloaded": (Path(os.environ["DATA_DIR"]) / "a.txt").read_text(),
    "streamed": {item.key: item.read().decode() for item in Stream("streamed")},
    "in parts": Stream("streamed")["b.txt"].open().read(3).decode(),
    "its own prefix": opens(own, "stream"),
    "its own container": opens(own, ""),
    "another prefix": opens(own, "secret"),
    "another project": opens(sys.argv[1], ""),
    "the installation": opens("weft", ""),
}
Path(os.environ["RESULT_DIR"], "model.txt").write_text("trained")
print("FOUND " + json.dumps(found), flush=True)
