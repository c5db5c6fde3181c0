"""Whether the targets and the patterns in a manifest's ``notify`` and ``rules`` can work in this installation."""

from __future__ import annotations

from weft_api.context import Context
from weft_api.http.patterns import ACCEPTED, BadPattern, rule_pattern
from weft_api.jobs.checks import Checks
from weft_api.storage.checker import Checker
from weft_core.manifest import Manifest
from weft_core.objects import StoreError
from weft_core.outgoing import NotAllowed, Outgoing
from weft_core.rules import LogCondition, parse_condition
from weft_core.store.models import Secret
from weft_core.store.scope import Scope


def look_up_targets(scope: Scope, context: Context, manifest: Manifest, checks: Checks) -> None:
    """Ask the database about the secrets that ``notify`` names, and check what needs no question."""
    for number, target in enumerate(manifest.notify):
        path = f"notify[{number}]"
        if target.email and not context.settings.notify.smtp.host:
            message = "this installation sends no e-mail (the administrator's setting is notify.smtp)"
            checks.add(f"{path}.email", message, found=target.email, accepted="url")
        if target.url:
            checks.webhooks.append((f"{path}.url", target.url))
        if target.secret is None:
            continue
        kept = scope.find(Secret, Secret.name == target.secret, Secret.job_id.is_(None))
        if kept is None:
            checks.add_missing_secret(f"{path}.secret", target.secret)
        elif target.format == "slack":
            checks.webhooks.append((f"{path}.secret", context.box.decrypt(kept.ciphertext).strip()))
    for number, rule in enumerate(manifest.rules):
        condition = parse_condition(rule.when)
        if isinstance(condition, LogCondition):
            try:
                rule_pattern(condition.pattern)
            except BadPattern as error:
                checks.add(f"rules[{number}].when", str(error), found=condition.pattern, accepted=ACCEPTED)


def check_webhooks(context: Context, checker: Checker, checks: Checks) -> list[str]:
    """Note the webhooks that the service does not call; only their hosts are looked up. Returns a warning if that takes
    too long."""
    if not checks.webhooks:
        return []
    try:
        for path, message in checker.within_patience(lambda: _refused(context, checks.webhooks)):
            checks.add(path, f"can't be called: {message}")
    except StoreError:
        return ["notify: not checked: the hosts of its URLs can't be looked up at the moment"]
    return []


def _refused(context: Context, webhooks: list[tuple[str, str]]) -> list[tuple[str, str]]:
    outgoing = Outgoing(context.settings.outgoing.allow)
    found = []
    for path, url in webhooks:
        try:
            outgoing.check(url)
        except NotAllowed as error:
            found.append((path, str(error)))
    return found
