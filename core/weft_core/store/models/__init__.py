"""The schema. The database itself refuses what must never be (partial unique indexes, checks, foreign keys).

Every row a tenant owns carries its ``project_id``; reads go through :class:`weft_core.store.scope.Scope`.
Times are ``timestamptz`` from the database's clock (``now()``), so that workers' clocks never matter.
"""

from weft_core.store.models.access import (
    DeviceLogin,
    Identity,
    Installation,
    Member,
    Project,
    ProjectUsage,
    SignInLink,
    Token,
    User,
)
from weft_core.store.models.audit import ActorKind, AuditExport, AuditRecord
from weft_core.store.models.base import Base
from weft_core.store.models.budgets import Budget, Charge
from weft_core.store.models.engines import EngineStatus, NodeBlame, Queue, QueueChange
from weft_core.store.models.identity import SigningKey
from weft_core.store.models.inputs import CodeBundle, Datastore, Overlay, OverlayState, Secret
from weft_core.store.models.jobs import (
    Attempt,
    Event,
    IdempotencyKey,
    Job,
    JobLabel,
    JobText,
    Learner,
    Predecessor,
    Round,
    View,
)
from weft_core.store.models.logs import LogChunk, LogCursor, LogFrame, LogSource
from weft_core.store.models.metrics import (
    JobMetric,
    MetricBatch,
    MetricBlock,
    MetricCursor,
    MetricRecords,
    MetricSeries,
)
from weft_core.store.models.mlflow import MlflowExperiment, MlflowModel, MlflowPoint, MlflowRun
from weft_core.store.models.notifications import Delivery, RuleFiring
from weft_core.store.models.registry import Model, ModelPromotion, ModelVersion
from weft_core.store.models.schedules import ScheduleRow, ScheduleState, Start, StartState, Trigger
from weft_core.store.models.sweeps import SweepRow, SweepState, Trial, TrialState

__all__ = [
    "ActorKind",
    "Attempt",
    "AuditExport",
    "AuditRecord",
    "Base",
    "Budget",
    "Charge",
    "CodeBundle",
    "Datastore",
    "Delivery",
    "DeviceLogin",
    "EngineStatus",
    "Event",
    "IdempotencyKey",
    "Identity",
    "Installation",
    "Job",
    "JobLabel",
    "JobMetric",
    "JobText",
    "Learner",
    "LogChunk",
    "LogCursor",
    "LogFrame",
    "LogSource",
    "Member",
    "MetricBatch",
    "MetricBlock",
    "MetricCursor",
    "MetricRecords",
    "MetricSeries",
    "MlflowExperiment",
    "MlflowModel",
    "MlflowPoint",
    "MlflowRun",
    "Model",
    "ModelPromotion",
    "ModelVersion",
    "NodeBlame",
    "Overlay",
    "OverlayState",
    "Predecessor",
    "Project",
    "ProjectUsage",
    "Queue",
    "QueueChange",
    "Round",
    "RuleFiring",
    "ScheduleRow",
    "ScheduleState",
    "Secret",
    "SignInLink",
    "SigningKey",
    "Start",
    "StartState",
    "SweepRow",
    "SweepState",
    "Token",
    "Trial",
    "TrialState",
    "Trigger",
    "User",
    "View",
]
