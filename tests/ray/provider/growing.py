"""Ray's fake autoscaling provider, with nodes that have memory. Ray's autoscaler imports it, in Ray's environment."""

from __future__ import annotations

import functools
from typing import Any
from unittest.mock import patch

from ray._private.parameter import RayParams
from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class Provider(FakeMultiNodeProvider):  # type: ignore[misc]  # Ray is not installed here
    def _create_node_with_resources_and_labels(
        self, node_config: Any, tags: Any, count: int, resources: dict[str, float], labels: Any
    ) -> None:
        there = dict(resources)
        with patch("ray._private.parameter.RayParams", functools.partial(RayParams, memory=there.pop("memory", None))):
            super()._create_node_with_resources_and_labels(node_config, tags, count, there, labels)
