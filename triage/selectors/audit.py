"""The audit as admins read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from triage.models import AuditEntry, EventKind

PAGE = 100
LABELS = {kind.value: kind.label for kind in EventKind} | {
    "created": "Made", "changed": "Changed", "deleted": "Deleted", "signed in": "Signed in", "signed out": "Signed out",
    "sign-in failed": "Wrong name or password", "locked out": "Locked out after wrong passwords",
}  # fmt: skip
SUBJECTS = {
    "user": "Account", "group": "Team", "user_groups": "Membership of a team", "person": "Role",
    "socialaccount": "Account of the provider", "teamreach": "What a team sees", "apitoken": "API token",
    "savedview": "Saved view", "sharelink": "Share link", "followed": "Feed or badge",
    "channel": "Channel", "route": "Route",
    "cluster": "Cluster", "configuredcluster": "Configured cluster", "configuredsource": "Configured source",
    "attempt": "Attempt", "incident": "Incident", "node": "Node", "event": "Other",
}  # fmt: skip


@dataclass(frozen=True)
class AuditFilter:
    """What the list is narrowed to; empty: everything."""

    who: str = ""
    action: str = ""
    subject: str = ""
    number: str = ""


@dataclass(frozen=True)
class AuditRow:
    entry: AuditEntry
    action: str
    subject: str
    details: list[str]
    """Each key with what it was and is."""


@dataclass(frozen=True)
class AuditPage:
    rows: Sequence[AuditRow]
    older: int | None
    """For `before` of the next page; None on the last."""


def audit_page(narrowed: AuditFilter, before: int | None = None) -> AuditPage:
    """A page, newest first. One query."""
    found = AuditEntry.objects.order_by("-id")
    columns = {"actor_name": narrowed.who, "action": narrowed.action, "subject": narrowed.subject}
    found = found.filter(**{column: value for column, value in columns.items() if value})
    if narrowed.number:
        found = found.filter(subject_id=narrowed.number)
    if before is not None:
        found = found.filter(pk__lt=before)
    entries = list(found[: PAGE + 1])
    rows = [
        AuditRow(
            entry, LABELS.get(entry.action, entry.action), SUBJECTS.get(entry.subject, entry.subject), _details(entry)
        )
        for entry in entries[:PAGE]
    ]
    return AuditPage(rows, entries[PAGE - 1].pk if len(entries) > PAGE else None)


def _details(entry: AuditEntry) -> list[str]:
    pairs = entry.action in ("created", "changed", "deleted")
    return [
        _change(key, value) if pairs and isinstance(value, list) and len(value) == 2 else f"{key}: {_text(value)}"
        for key, value in sorted(entry.changes.items())
        if not (pairs and key == "id") and value not in (None, "", [], {})
    ]


def _change(key: str, value: list[Any]) -> str:
    before, after = map(_text, value)
    if value[0] is None:
        return f"{key}: {after}"
    return f"{key}: {before} → {after}" if value[1] is not None else f"{key}: was {before}"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "empty" if value in (None, "") else str(value)
