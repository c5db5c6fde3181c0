"""Why Kueue holds a gang back, read from its Workload's status. Pure."""

from __future__ import annotations

import re
from typing import Any

Json = dict[str, Any]

# A Workload has more conditions, in any order; `PodsReady` and `Requeued` are about what comes after admission.
_DECIDE = ("QuotaReserved", "Admitted")
_POD_SET = re.compile(r"couldn't assign flavors to pod set \S+: ")  # a pod set of a group has a hash for a name


def explain(status: Json) -> str:
    """Kueue's own words, without its internal terms; '' when it says nothing."""
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    for kind in _DECIDE:
        found = conditions.get(kind) or {}
        if found.get("status") == "False" and found.get("message"):
            return _brief(found["message"])
        if kind == "QuotaReserved" and (waits := _checks(status)):
            return waits
    return ""


def _checks(status: Json) -> str:
    """The admission checks (of an autoscaler, of another cluster) that are not through yet."""
    waits = [check for check in status.get("admissionChecks") or [] if check.get("state") != "Ready"]
    told = [
        f"{check['name']} ({_brief(check['message'])})" if check.get("message") else check["name"] for check in waits
    ]
    return f"waits for admission check {', '.join(told)}" if told else ""


def _brief(message: str) -> str:
    text = _POD_SET.sub("", " ".join(message.split()))
    return text if len(text) <= 300 else f"{text[:299]}…"
