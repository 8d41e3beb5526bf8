"""What people do with many failures at once. Each attempt is its own transaction with its own events, as if done alone;
what can't be done is said, and doesn't stop the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from typing import Any

from django.contrib.auth.models import User

from triage.models import Attempt, Incident, VerdictStatus
from triage.services import incidents, verdicts
from triage.services.triage import request_triage

LIMIT = 1000
"""So many attempts at once; more are done in several goes."""


@dataclass
class Done:
    """What became of it."""

    done: list[int] = field(default_factory=list)
    """Ids of attempts; of incidents when those were given to somebody."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Why the others were left as they are, and how many."""
    undo: list[Any] = field(default_factory=list)
    """What takes it back: attempts and the verdicts that were made; incidents and who had and who got them; places."""


def diagnose_again(ids: Iterable[int], actor: User) -> Done:
    """Asks for each attempt to be triaged from the start."""
    result = Done()
    for pk in ids:
        try:
            asked = request_triage(pk, actor=actor, reason="asked for with others")
        except Attempt.DoesNotExist:
            result.skipped["gone"] += 1
            continue
        if asked:
            result.done.append(pk)
        else:
            result.skipped["waiting already"] += 1
    return result


def confirm(ids: Iterable[int], actor: User) -> Done:
    """Confirms the diagnosis of each attempt of which nobody has said anything."""
    result = Done()
    columns = ("pk", "diagnosis_id", "diagnosis__domain", "verdict_status")
    known = {row[0]: row[1:] for row in Attempt.objects.filter(pk__in=list(ids)).values_list(*columns)}
    for pk in ids:
        diagnosis, domain, status = known.get(pk, (None, None, None))
        if diagnosis is None:
            result.skipped["not diagnosed yet"] += 1
        elif status != VerdictStatus.UNCONFIRMED:
            result.skipped["judged already"] += 1
        elif domain == "unattributed":
            result.skipped["without a cause to confirm"] += 1
        else:
            try:
                verdict = verdicts.confirm(pk, actor, diagnosis_id=diagnosis, seen=None)
            except verdicts.VerdictConflict:
                result.skipped["changed meanwhile"] += 1
                continue
            result.done.append(pk)
            result.undo.append((pk, verdict.pk))
    return result


def take_back(made: Iterable[tuple[int, int]], actor: User) -> int:
    """Withdraws verdicts that were made together; those that no longer stand stay as they are. Returns how many."""
    return sum(verdicts.withdraw(attempt, actor, verdict_id=verdict) for attempt, verdict in made)


def assign(ids: Iterable[int], actor: User, assignee_id: int | None) -> Done:
    """Gives the incidents of these attempts to somebody, or to nobody."""
    result = Done()
    ids = list(ids)
    found = Incident.objects.filter(memberships__attempt__in=ids).distinct().order_by("pk")
    with_incident = Attempt.objects.filter(pk__in=ids, membership__isnull=False).count()
    if len(ids) > with_incident:
        result.skipped["without an incident"] += len(ids) - with_incident
    for incident in found:
        try:
            if incidents.assign(incident.pk, actor, assignee_id, seen=incident.assignee_id):
                result.done.append(incident.pk)
                result.undo.append((incident.pk, incident.assignee_id, assignee_id))
        except (incidents.IncidentConflict, incidents.IncidentRefused) as error:
            result.skipped[str(error).rstrip(".")] += 1
    return result


def give_back(changes: Iterable[tuple[int, int | None, int | None]], actor: User) -> int:
    """Undoes assignments: those that nobody changed since. Returns how many."""
    number = 0
    for incident, before, after in changes:
        try:
            number += incidents.assign(incident, actor, before, seen=after)
        except (incidents.IncidentConflict, incidents.IncidentRefused):
            continue  # somebody else was given it meanwhile, or who had it is gone
    return number


def add_to_incident(ids: Iterable[int], actor: User, incident_id: int) -> Done:
    """Puts these attempts into one incident, where they stay. Raises IncidentRefused."""
    ids = list(ids)
    moved = incidents.add_attempts(incident_id, ids, actor)
    result = Done(done=[place.attempt for place in moved], undo=[astuple(place) for place in moved])
    if len(ids) > len(moved):
        result.skipped["in it already, or gone"] += len(ids) - len(moved)
    return result
