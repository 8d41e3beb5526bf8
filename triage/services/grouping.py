"""Attempts that failed in the same way join an incident by themselves. What people decided about it stays decided."""

from __future__ import annotations

from django.db import connection
from django.db.models import Count, Max, Min, Sum
from django.utils import timezone

from engine.model import UNATTRIBUTED, Outcome
from triage.models import Attempt, Diagnosis, EventKind, Incident, IncidentKey, IncidentStatus, Membership
from triage.models.incident import SETTLED
from triage.services.events import record_event
from triage.services.facts import short
from triage.services.teams import teams_that_see

TOTALS = ("attempts_count", "gpu_hours", "first_at", "last_at", "nodes", "nodes_count")
"""What `renew_totals` sets on an incident."""
NODES = 3
"""So many of the nodes that an incident's attempts blame are kept with it."""
_NODES = """
SELECT incident_id, (array_agg(node ORDER BY times DESC, node))[:%s], count(*)
FROM (
    SELECT incident_id, node, count(*) AS times
    FROM triage_membership JOIN triage_attempt ON triage_attempt.id = attempt_id, unnest(blamed_nodes) AS node
    WHERE incident_id = ANY(%s) GROUP BY incident_id, node
) named
GROUP BY incident_id
"""


def group_attempt(attempt: Attempt, diagnosis: Diagnosis) -> Incident | None:
    """Puts an attempt where the fingerprint of its current diagnosis belongs. None when it belongs nowhere.

    Call inside the transaction that holds the attempt's row. Called again for the same diagnosis it changes nothing.
    """
    membership = Membership.objects.select_related("incident").filter(attempt=attempt).first()
    if membership is not None and membership.by_hand:
        renew_totals(membership.incident_id)
        return membership.incident
    if diagnosis.outcome == Outcome.SUCCEEDED or diagnosis.domain == UNATTRIBUTED:
        if membership is not None:
            _leave(attempt, membership, "its newer diagnosis names no cause")
            membership.delete()
            renew_totals(membership.incident_id)
        return None
    home, opened = _home(attempt, diagnosis)
    if membership is not None and membership.home_id == home.pk:
        renew_totals(membership.incident_id)
        return membership.incident
    shown = in_force(home)
    if membership is not None:
        _leave(attempt, membership, "its newer diagnosis has another fingerprint")
        before = membership.incident_id
        membership.home, membership.incident = home, shown
        membership.save(update_fields=["home", "incident"])
        renew_totals(before)
    else:
        Membership.objects.create(attempt=attempt, home=home, incident=shown)
    kind = EventKind.INCIDENT_OPENED if opened else EventKind.INCIDENT_JOINED
    record_event(kind, attempt=attempt, incident=shown, on=next(iter(attempt.blamed_nodes), ""))
    _regress(shown, attempt)
    renew_totals(shown.pk)
    return shown


def in_force(incident: Incident) -> Incident:
    """The incident itself, or the one that it was merged into."""
    while incident.merged_into is not None:
        incident = incident.merged_into
    return incident


def renew_totals(*ids: int) -> None:
    """Counts what lists show of these incidents anew. The rows are locked in the order of their ids."""
    incidents = list(Incident.objects.select_for_update().filter(pk__in=set(ids)).order_by("pk"))
    members = Attempt.objects.filter(membership__incident__in=incidents).order_by().values_list("membership__incident")
    counted = members.annotate(
        attempts=Count("*"), lost=Sum("lost_gpu_hours"), first=Min("sort_at"), last=Max("sort_at")
    )
    totals = {pk: row for pk, *row in counted}
    with connection.cursor() as cursor:
        cursor.execute(_NODES, [NODES, [incident.pk for incident in incidents]])
        nodes = {pk: row for pk, *row in cursor.fetchall()}
    for one in incidents:
        one.attempts_count, one.gpu_hours, one.first_at, one.last_at = totals.get(one.pk, (0, 0.0, None, None))
        one.nodes, one.nodes_count = nodes.get(one.pk, ([], 0))
    Incident.objects.bulk_update(incidents, TOTALS, batch_size=500)


def _home(attempt: Attempt, diagnosis: Diagnosis) -> tuple[Incident, bool]:
    """The incident of this fingerprint, and whether it was made now. Two workers at once make one.

    Attempts that other teams see have another incident, since all of it is seen by who sees each of its attempts.
    """
    fingerprint = diagnosis.contract["fingerprint"]
    teams = ",".join(map(str, teams_that_see(attempt)))
    key = short(f"{fingerprint['version']}:{fingerprint['key']}" + (f"@{teams}" if teams else ""), 240)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 118))", [key])
    known = IncidentKey.objects.select_related("incident__merged_into").filter(key=key).first()
    if known is not None:
        return known.incident, False
    root = diagnosis.root_cause or {}
    incident = Incident.objects.create(
        title=short(root.get("title") or diagnosis.title, 500),
        domain=diagnosis.domain,
        sub_domain=diagnosis.sub_domain,
        rule=diagnosis.rule,
        parts=fingerprint["parts"],
    )
    incident.refresh_from_db()
    IncidentKey.objects.create(key=key, incident=incident)
    return incident, True


def _leave(attempt: Attempt, membership: Membership, why: str) -> None:
    record_event(EventKind.INCIDENT_LEFT, attempt=attempt, incident=membership.incident, why=why)


def _regress(incident: Incident, attempt: Attempt) -> None:
    """A settled incident whose failure comes back is regressed; one that merely became known late is not."""
    incident = Incident.objects.select_for_update().get(pk=incident.pk)
    if incident.status not in SETTLED or attempt.when <= incident.status_at:
        return
    before, incident.status, incident.status_at = incident.status, IncidentStatus.REGRESSED, timezone.now()
    incident.save(update_fields=["status", "status_at"])
    record_event(
        EventKind.INCIDENT_REGRESSED,
        attempt=attempt,
        incident=incident,
        before=before,
        on=next(iter(attempt.blamed_nodes), ""),
    )
