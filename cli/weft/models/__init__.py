"""The server's answers as frozen values. ``raw`` is the server's JSON, with fields that this version may not know."""

from weft.models.access import (
    AuditRecord,
    Budget,
    Caps,
    Member,
    Project,
    Quota,
    Retention,
    ServiceAccount,
    Share,
    Token,
    User,
)
from weft.models.base import TERMINAL, Json, Problem, parse_time
from weft.models.engines import Engine, EngineNode, Room, WaitingJob
from weft.models.jobs import (
    Attempt,
    Checkpoint,
    Delivery,
    Event,
    FileInfo,
    Framework,
    LearnerStatus,
    Round,
    StateChange,
)
from weft.models.lists import Usage, UserUse, View
from weft.models.logs import Gap, LogLine, LogMatch
from weft.models.profiles import Profile, ProfileFile
from weft.models.registry import Model, ModelVersion
from weft.models.schedules import Schedule, Start
from weft.models.stores import Datastore, ObjectInfo, Secret
from weft.models.sweeps import SweepInfo, Trial

__all__ = [
    "TERMINAL",
    "Attempt",
    "AuditRecord",
    "Budget",
    "Caps",
    "Checkpoint",
    "Datastore",
    "Delivery",
    "Engine",
    "EngineNode",
    "Event",
    "FileInfo",
    "Framework",
    "Gap",
    "Json",
    "LearnerStatus",
    "LogLine",
    "LogMatch",
    "Member",
    "Model",
    "ModelVersion",
    "ObjectInfo",
    "Problem",
    "Profile",
    "ProfileFile",
    "Project",
    "Quota",
    "Retention",
    "Room",
    "Round",
    "Schedule",
    "Secret",
    "ServiceAccount",
    "Share",
    "Start",
    "StateChange",
    "SweepInfo",
    "Token",
    "Trial",
    "Usage",
    "User",
    "UserUse",
    "View",
    "WaitingJob",
    "parse_time",
]
