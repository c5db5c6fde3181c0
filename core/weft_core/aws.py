"""Clients of the protocols of AWS: S3, and the service that issues temporary keys."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

from botocore.loaders import JSONFileLoader, Loader
from botocore.session import Session

_SERVICES = ("s3", "sts")
_one_at_a_time = Lock()


class _Files(JSONFileLoader):
    """botocore's descriptions of services without what Weft never reads, which takes 7 MB of each process: the
    documentation, and the endpoints of other services."""

    def load_file(self, file_path: str) -> Any:
        found = super().load_file(file_path)
        if found is None:
            return None
        if file_path.endswith("service-2"):
            _drop_documentation(found)
        elif file_path.endswith("endpoints"):
            for partition in found["partitions"]:
                partition["services"] = {
                    name: endpoints for name, endpoints in partition["services"].items() if name in _SERVICES
                }
        return found


def _drop_documentation(node: Any) -> None:
    if isinstance(node, dict):
        if isinstance(node.get("documentation"), str):  # an operation's member may have the name, too
            node["documentation"] = ""
        for value in node.values():
            _drop_documentation(value)
    elif isinstance(node, list):
        for value in node:
            _drop_documentation(value)


@cache
def _session() -> Session:
    session = Session()
    session.register_component("data_loader", Loader(file_loader=_Files()))
    return session


def make_client(service: str, **options: Any) -> Any:
    """A client of ``service`` with botocore's ``options``. boto3's clients have the same methods, and those that
    transfer files besides."""
    with _one_at_a_time:  # sessions are not thread-safe, clients are
        return _session().create_client(service, **options)
