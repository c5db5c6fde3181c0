"""The manifest: from what a user wrote to what a job is."""

from weft_core.launch import EvaluationMetrics, Launcher
from weft_core.manifest.models import (
    After,
    Credentials,
    DataStore,
    Framework,
    Identity,
    Manifest,
    ModelReference,
    MountConnection,
    Notify,
    ParsedManifest,
    Place,
    Repository,
    Rule,
    Schedule,
    TrainingData,
    TrainingResults,
)
from weft_core.manifest.parse import parse_manifest
from weft_core.manifest.problems import ManifestError, Problem
from weft_core.manifest.schedules import refuse_schedule
from weft_core.manifest.schema import manifest_schema
from weft_core.manifest.sweep_models import Sweep, Value
from weft_core.manifest.sweeps import refuse_sweep
from weft_core.manifest.unparse import manifest_text

__all__ = [
    "After",
    "Credentials",
    "DataStore",
    "EvaluationMetrics",
    "Framework",
    "Identity",
    "Launcher",
    "Manifest",
    "ManifestError",
    "ModelReference",
    "MountConnection",
    "Notify",
    "ParsedManifest",
    "Place",
    "Problem",
    "Repository",
    "Rule",
    "Schedule",
    "Sweep",
    "TrainingData",
    "TrainingResults",
    "Value",
    "manifest_schema",
    "manifest_text",
    "parse_manifest",
    "refuse_schedule",
    "refuse_sweep",
]
