"""From a manifest's text to its canonical form."""

from __future__ import annotations

from collections.abc import Mapping as MappingType

from weft_core.catalogue import Catalogue
from weft_core.manifest import overrides as sets
from weft_core.manifest.fields import MANIFEST
from weft_core.manifest.findings import INVALID, Findings
from weft_core.manifest.models import Credentials, ParsedManifest
from weft_core.manifest.problems import ManifestError
from weft_core.manifest.resolve import resolve
from weft_core.manifest.tree import compose, decode
from weft_core.settings import Settings


def parse_manifest(
    text: str | bytes,
    settings: Settings,
    *,
    overrides: MappingType[str, str] | None = None,
    catalogue: Catalogue | None = None,
    credentials: MappingType[tuple[str, str], Credentials] | None = None,
) -> ParsedManifest:
    """Read, check and resolve a manifest; FfDL's are taken as they are.

    Args:
        text: YAML (so JSON, too).
        overrides: ``--set`` values by path, put in before anything is checked.
        catalogue: default: the shipped one.
        credentials: by data store id and endpoint, for connections that have none of their own.

    Returns:
        The canonical manifest, and the credentials that were lifted out of it.

    Raises:
        ManifestError: with everything that is wrong, each with its path and line.
    """
    root = compose(decode(text, settings.limits.manifest_bytes))
    if overrides:
        root = sets.apply(root, overrides)
    findings = Findings()
    findings.nodes[""] = root
    values = MANIFEST.read(root, "", findings)
    assert values is not INVALID
    parsed = resolve(values, settings, catalogue or Catalogue.load(), findings, credentials or {})
    if parsed is None:
        raise ManifestError(findings.problems)
    return parsed
