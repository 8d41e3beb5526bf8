"""Attempts that failed in the same way join an incident by themselves. What people decided about it stays decided."""

from __future__ import annotations

from django.db import connection
from django.db.models import Count, DurationField, ExpressionWrapper, F, FloatField, Func, IntegerField, Max, Min, Sum
from django.db.models.functions import Cast, Extract, Greatest
from django.utils import timezone

from engine.model import UNATTRIBUTED, Outcome
from triage.models import Attempt, Diagnosis, EventKind, Incident, IncidentKey, IncidentStatus, Membership
from triage.models.incident import SETTLED
from triage.services.events import record_event
from triage.services.facts import short

_GPU_HOURS = (
    Cast(Func("nodes", function="CARDINALITY", output_field=IntegerField()), FloatField())
    * F("gpus_per_node")
    * Greatest(
        Cast(
            Extract(ExpressionWrapper(F("ended_at") - F("started_at"), output_field=DurationField()), "epoch"),
            FloatField(),
        ),
        0.0,
    )
    / 3600.0
)


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
    home, opened = _home(diagnosis)
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
    """Counts what lists show of an incident anew. The rows are locked in the order of their ids."""
    for incident in Incident.objects.select_for_update().filter(pk__in=set(ids)).order_by("pk"):
        totals = Attempt.objects.filter(membership__incident=incident).aggregate(
            attempts_count=Count("*"), gpu_hours=Sum(_GPU_HOURS), first_at=Min("sort_at"), last_at=Max("sort_at")
        )
        totals["gpu_hours"] = totals["gpu_hours"] or 0.0
        Incident.objects.filter(pk=incident.pk).update(**totals)


def _home(diagnosis: Diagnosis) -> tuple[Incident, bool]:
    """The incident of this fingerprint, and whether it was made now. Two workers at once make one."""
    fingerprint = diagnosis.contract["fingerprint"]
    key = short(f"{fingerprint['version']}:{fingerprint['key']}", 240)
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
