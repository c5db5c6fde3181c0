"""Labels that change after the submission follow the rules of the manifest's ``labels``."""

from __future__ import annotations

from collections import abc

from weft_core.manifest.fields import MANIFEST
from weft_core.manifest.findings import Findings
from weft_core.manifest.problems import Problem
from weft_core.manifest.tree import Mapping, Scalar


def label_problems(labels: abc.Mapping[str, str]) -> list[Problem]:
    """What a manifest with these labels would be refused for; the paths begin with ``labels``."""
    findings = Findings()
    entries = [(Scalar(None, key, '"'), Scalar(None, value, '"')) for key, value in labels.items()]
    MANIFEST.fields["labels"].kind.read(Mapping(None, entries=[*entries]), "labels", findings)
    return findings.problems
