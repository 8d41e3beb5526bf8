"""The audit as admins read it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from triage.models import AuditEntry, EventKind

PAGE = 100
HIDDEN = "..."
"""Stands for secrets."""
_AUTOMATIC = ("id", "created_at", "date_joined", "prefix")
_NOTHING = (None, "", [], {}, False, HIDDEN)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d(?:\.\d+)?(?:\+00:00|Z)$")
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
    """What changed. Of what was made or deleted, what was said of it: no empty, hidden or automatic values."""
    if entry.action == "changed":
        return [_change(key, value) for key, value in sorted(entry.changes.items())]
    if entry.action in ("created", "deleted"):
        after = entry.action == "created"
        said = {key: value[after] for key, value in sorted(entry.changes.items()) if key not in _AUTOMATIC}
        return [f"{key}: {_text(value)}" for key, value in said.items() if value not in _NOTHING]
    return [f"{key}: {_text(value)}" for key, value in sorted(entry.changes.items()) if value not in _NOTHING]


def _change(key: str, value: list[Any]) -> str:
    before, after = value
    if before == after == HIDDEN:
        return f"{key}: changed"
    if before is None:
        return f"{key}: {_text(after)}"
    return f"{key}: {_text(before)} → {_text(after)}" if after is not None else f"{key}: was {_text(before)}"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, str) and (moment := _MOMENT.match(value)):
        return f"{moment[1]} {moment[2]} UTC"
    return "empty" if value in (None, "") else str(value)
