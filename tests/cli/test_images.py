"""``weft images`` lists the images that jobs run in, and the names that manifests use for them."""

from __future__ import annotations

import json

from tests.cli.conftest import Weft
from tests.cli.double import Double, as_json


def test_images_with_what_manifests_call_them(double: Double, weft: Weft) -> None:
    image = {
        "reference": "tensorflow:2.21.0",
        "version": "2.21.0",
        "frameworks": ["tensorflow", "keras"],
        "devices": ["cpu", "gpu"],
        "launchers": ["none", "tensorflow"],
        "aliases": ["keras:latest", "tensorflow:1.5"],
        "engines": {"local": "ready", "gpu": "on demand", "ray": "unknown"},
    }
    double.on("GET", "catalogue", as_json({"images": [image], "aliases": {}}))
    rows = [line.split() for line in weft("images", "list").out.splitlines()]
    same = ["2.21.0", "tensorflow:2.21.0", "cpu,", "gpu", "none,", "tensorflow", "local,", "ray?"]
    assert rows[1:3] == [["tensorflow", *same], ["keras", *same]]
    assert [" ".join(row) for row in rows[4:]] == [
        "tensorflow 2.21.0 is also 1.5",
        "keras 2.21.0 is also latest",
    ]
    assert "tensorflow 2.21.0 is also" not in weft("images", "list", "-f", "keras").out
    assert "there is no image for the framework caffe" in weft("images", "list", "--framework", "caffe").err
    assert json.loads(weft("images", "list", "--json").out) == [image]
