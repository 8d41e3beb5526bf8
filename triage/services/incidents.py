"""What people do with an incident: state, owner, severity, merge, split, tickets. Each is kept as a record of its own,
so that grouping new attempts never undoes it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils import timezone

from triage.access.sight import all_seeing
from triage.access.viewer import seen_people
from triage.models import (
    Attempt,
    EventKind,
    Incident,
    IncidentStatus,
    Membership,
    Notification,
    NotTheSame,
    Severity,
    Ticket,
)
from triage.services.events import record_event
from triage.services.facts import keepable, short, told
from triage.services.grouping import in_force, renew_totals
from triage.text import printable

BY_HAND = tuple(status for status in IncidentStatus if status != IncidentStatus.REGRESSED)
"""The statuses that people set; `regressed` comes by itself."""
MAX_TICKETS = 50


class IncidentRefused(ValueError):
    """What was asked for can't be done; one sentence that says why."""


class IncidentConflict(Exception):
    """Somebody else changed the same thing meanwhile."""


@transaction.atomic
def set_status(
    incident_id: int, actor: AbstractBaseUser, status: str, *, seen: str, note: str = "", undo: bool = False
) -> bool:
    """Where the work is now. `seen` is the status that the person saw; False when it was set already. With `undo` it
    may also become what only the system sets, because it was that before.

    Raises IncidentRefused, IncidentConflict.
    """
    incident = _locked(incident_id)
    if status == incident.status:
        return False
    if status not in (IncidentStatus if undo else BY_HAND):
        raise IncidentRefused("Regressed is set by itself, when the failure comes back.")
    if incident.status != seen:
        raise IncidentConflict(f"Meanwhile the status became {incident.get_status_display().lower()}.")
    incident.status, incident.status_at = status, timezone.now()
    incident.save(update_fields=["status", "status_at"])
    record_event(
        EventKind.INCIDENT_STATUS,
        incident=incident,
        actor=actor,
        before=seen,
        after=status,
        note=told(printable(note), 300),
    )
    return True


@transaction.atomic
def assign(incident_id: int, actor: AbstractBaseUser, assignee_id: int | None, *, seen: int | None) -> bool:
    """Gives the incident to somebody, who is told, or to nobody. Raises IncidentRefused, IncidentConflict."""
    incident = _locked(incident_id)
    if assignee_id == incident.assignee_id:
        return False
    if incident.assignee_id != seen:
        raise IncidentConflict("Meanwhile somebody else was given this incident.")
    assignee = seen_people().filter(pk=assignee_id).first() if assignee_id is not None else None
    if assignee_id is not None and assignee is None:
        raise IncidentRefused("There is no such person.")
    incident.assignee = assignee
    incident.save(update_fields=["assignee"])
    record_event(
        EventKind.INCIDENT_ASSIGNED,
        incident=incident,
        actor=actor,
        assignee=assignee_id,
        name=(assignee.get_full_name() or assignee.get_username()) if assignee else "",
    )
    if assignee is not None and assignee.pk != actor.pk:
        Notification.objects.create(user=assignee, actor=actor, kind="assigned", incident=incident)
    return True


@transaction.atomic
def set_severity(incident_id: int, actor: AbstractBaseUser, severity: int | None, *, seen: int | None) -> bool:
    """How much it hurts, 1 the worst; None for not said. Raises IncidentRefused, IncidentConflict."""
    incident = _locked(incident_id)
    if severity == incident.severity:
        return False
    if severity is not None and severity not in Severity.values:
        raise IncidentRefused("Severity is 1 to 4.")
    if incident.severity != seen:
        raise IncidentConflict("Meanwhile somebody else set the severity.")
    incident.severity = severity
    incident.save(update_fields=["severity"])
    record_event(EventKind.INCIDENT_SEVERITY, incident=incident, actor=actor, before=seen, after=severity)
    return True


@transaction.atomic
def rename(incident_id: int, actor: AbstractBaseUser, title: str, *, seen: str | None = None) -> bool:
    """Gives the incident another title; with `seen` only when that is its title now.

    Raises IncidentRefused, IncidentConflict.
    """
    incident = _locked(incident_id)
    title = short(printable(" ".join(title.split())), 500)
    if not title:
        raise IncidentRefused("A title has at least one word.")
    if title == incident.title:
        return False
    if seen is not None and short(printable(" ".join(seen.split())), 500) != incident.title:
        raise IncidentConflict("Meanwhile somebody else changed the title.")
    before, incident.title = incident.title, title
    incident.save(update_fields=["title"])
    record_event(EventKind.INCIDENT_RENAMED, incident=incident, actor=actor, before=before, after=title)
    return True


# --- merge and split --------------------------------------------------------------------------------------------------


@transaction.atomic
def merge(source_id: int, target_id: int, actor: AbstractBaseUser) -> Incident:
    """Makes one incident part of another: its attempts, also future ones, show there. Returns what they are part of.

    Done again, it changes nothing. Raises IncidentRefused.
    """
    source, target = _locked_pair(source_id, target_id)
    target = in_force(target)
    if source.merged_into is not None and in_force(source).pk == target.pk:
        return target
    if source.merged_into is not None:
        raise IncidentRefused(f"{source.name} is part of {in_force(source).name} already.")
    if source.pk == target.pk:
        raise IncidentRefused("An incident can't be merged into itself.")
    source.merged_into = target
    source.save(update_fields=["merged_into"])
    Membership.objects.filter(incident=source).update(incident=target)
    _tell_both(EventKind.INCIDENT_MERGED, source, target, actor)
    return target


@transaction.atomic
def unmerge(source_id: int, actor: AbstractBaseUser) -> bool:
    """Undoes a merge: what the incident brought, and what its fingerprint brought since, goes back to it."""
    source = _locked(source_id)
    if source.merged_into is None:
        return False
    target = in_force(source)
    source.merged_into = None
    source.save(update_fields=["merged_into"])
    Membership.objects.filter(incident=target, home__in=family(source.pk)).update(incident=source)
    _tell_both(EventKind.INCIDENT_UNMERGED, source, target, actor)
    return True


@transaction.atomic
def split(incident_id: int, attempt_ids: Collection[int], actor: AbstractBaseUser, *, title: str = "") -> Incident:
    """Takes attempts out of an incident into one of their own, where they stay whatever their fingerprint.

    Raises IncidentRefused.
    """
    incident = _locked(incident_id)
    members = Membership.objects.select_for_update().filter(incident=incident)
    chosen = list(members.filter(attempt_id__in=list(attempt_ids)).order_by("attempt_id"))
    if not chosen:
        raise IncidentRefused("Choose the attempts to split off.")
    if len(chosen) == members.count():
        raise IncidentRefused("These are all of its attempts. Leave at least one, or change the title instead.")
    new = Incident.objects.create(
        title=short(printable(" ".join(title.split())), 500) or incident.title,
        domain=incident.domain,
        sub_domain=incident.sub_domain,
        rule=incident.rule,
        parts=incident.parts,
        split_from=incident,
    )
    Membership.objects.filter(pk__in=[member.pk for member in chosen]).update(home=new, incident=new, by_hand=True)
    low, high = sorted((incident.pk, new.pk))
    NotTheSame.objects.get_or_create(low_id=low, high_id=high, defaults={"by": actor})
    _tell_both(EventKind.INCIDENT_SPLIT, incident, new, actor, attempts=[member.attempt_id for member in chosen])
    return Incident.objects.get(pk=new.pk)


@all_seeing
def _have_a_home(attempts: Collection[int]) -> bool:
    """Whether any of them is in an incident, also one that isn't seen right now."""
    return Membership.objects.filter(attempt__in=attempts).exists()


@dataclass(frozen=True)
class Place:
    """Where an attempt was: the home of its membership, if it had one."""

    attempt: int
    home: int | None = None
    by_hand: bool = False


@transaction.atomic
def add_attempts(incident_id: int, attempt_ids: Collection[int], actor: AbstractBaseUser) -> list[Place]:
    """Puts attempts into an incident, where they stay whatever their fingerprint; also those without a cause, which are
    in none by themselves. Returns where the ones that moved were, for `put_back`. Raises IncidentRefused.
    """
    target = in_force(_locked(incident_id))
    attempts = Attempt.objects.select_for_update(of=("self",)).filter(pk__in=list(attempt_ids)).order_by("pk")
    found = {attempt.pk: attempt for attempt in attempts}
    known = {one.attempt_id: one for one in Membership.objects.filter(attempt__in=found)}
    if _have_a_home(set(found) - set(known)):
        raise IncidentRefused(
            "One of these is in an incident with attempts of other teams; only who sees those moves it."
        )
    moved, left = [], set()
    for pk in found:
        member = known.get(pk)
        if member is None:
            Membership.objects.create(attempt_id=pk, home=target, incident=target, by_hand=True)
            moved.append(Place(pk))
        elif member.incident_id != target.pk:
            moved.append(Place(pk, member.home_id, member.by_hand))
            left.add(member.incident_id)
            member.home, member.incident, member.by_hand = target, target, True
            member.save(update_fields=["home", "incident", "by_hand"])
    if moved:
        _tell_moved(EventKind.INCIDENT_ADDED, target, left, [place.attempt for place in moved], actor)
    return moved


@transaction.atomic
def put_back(incident_id: int, places: Collection[Place], actor: AbstractBaseUser) -> int:
    """Undoes `add_attempts`: those that are still there return to where they were. Returns how many did."""
    target = in_force(_locked(incident_id))
    before = {place.attempt: place for place in places}
    members = Membership.objects.select_for_update().filter(incident=target, by_hand=True, attempt__in=before)
    homes = Incident.objects.in_bulk([place.home for place in places if place.home is not None])
    moved, reached = [], set()
    for member in members.order_by("attempt_id"):
        place = before[member.attempt_id]
        moved.append(member.attempt_id)
        if place.home is None or place.home not in homes:
            member.delete()
            continue
        member.home, member.by_hand = homes[place.home], place.by_hand
        member.incident = in_force(member.home)
        member.save(update_fields=["home", "incident", "by_hand"])
        reached.add(member.incident.pk)
    if moved:
        _tell_moved(EventKind.INCIDENT_PUT_BACK, target, reached, moved, actor)
    return len(moved)


@transaction.atomic
def say_not_the_same(one_id: int, other_id: int, actor: AbstractBaseUser) -> bool:
    """These two are not to be proposed to each other again."""
    one, other = _locked_pair(one_id, other_id)
    low, high = sorted((one.pk, other.pk))
    if low == high:
        raise IncidentRefused("An incident is the same as itself.")
    _, created = NotTheSame.objects.get_or_create(low_id=low, high_id=high, defaults={"by": actor})
    if created:
        record_event(EventKind.INCIDENT_NOT_SAME, incident=one, actor=actor, other=other.pk, other_title=other.title)
    return created


@transaction.atomic
def say_maybe_the_same(one_id: int, other_id: int, actor: AbstractBaseUser) -> bool:
    """Takes `say_not_the_same` back: they may be proposed to each other again."""
    one, other = _locked_pair(one_id, other_id)
    low, high = sorted((one.pk, other.pk))
    deleted, _ = NotTheSame.objects.filter(low=low, high=high).delete()
    if deleted:
        record_event(EventKind.INCIDENT_MAY_BE_SAME, incident=one, actor=actor, other=other.pk, other_title=other.title)
    return bool(deleted)


def family(incident_id: int) -> list[int]:
    """The incident and all that were merged into it, directly or through others."""
    found, last = [incident_id], [incident_id]
    while last:
        last = list(Incident.objects.filter(merged_into__in=last).values_list("pk", flat=True))
        found += last
    return found


# --- tickets ----------------------------------------------------------------------------------------------------------


@transaction.atomic
def link_ticket(incident_id: int, actor: AbstractBaseUser, *, url: str, label: str = "", note: str = "") -> Ticket:
    """Adds a link to where else it is worked on; only http and https. Raises IncidentRefused."""
    incident = _locked(incident_id)
    url = keepable(url.strip())
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc or len(url) > 1000 or not url.isprintable():
        raise IncidentRefused("A ticket's address begins with https:// or http://.")
    if incident.tickets.count() >= MAX_TICKETS:
        raise IncidentRefused(f"At most {MAX_TICKETS} tickets.")
    label = short(printable(" ".join(label.split())), 100) or short(
        parts.path.rstrip("/").rsplit("/", 1)[-1] or parts.netloc, 100
    )
    ticket, created = Ticket.objects.get_or_create(
        incident=incident, url=url, defaults={"label": label, "note": told(printable(note.strip()), 300), "by": actor}
    )
    if created:
        record_event(EventKind.TICKET_LINKED, incident=incident, actor=actor, label=ticket.label, url=url)
    return ticket


@transaction.atomic
def unlink_ticket(ticket_id: int, actor: AbstractBaseUser) -> bool:
    """Takes a link away; linking the same again undoes it."""
    ticket = Ticket.objects.select_for_update(of=("self",)).select_related("incident").filter(pk=ticket_id).first()
    if ticket is None:
        return False
    record_event(EventKind.TICKET_UNLINKED, incident=ticket.incident, actor=actor, label=ticket.label, url=ticket.url)
    ticket.delete()
    return True


def _tell_both(kind: EventKind, source: Incident, target: Incident, actor: AbstractBaseUser, **more: Any) -> None:
    """Attempts went from one incident to the other: an event in the record of each, and both are counted anew."""
    for incident in (target, source):
        record_event(
            kind,
            incident=incident,
            actor=actor,
            source=source.pk,
            source_title=source.title,
            target=target.pk,
            target_title=target.title,
            **more,
        )
    renew_totals(source.pk, target.pk)


def _tell_moved(
    kind: EventKind, target: Incident, others: Collection[int], attempts: list[int], actor: AbstractBaseUser
) -> None:
    """Attempts came to the target from others, or went back to them: an event for each, and all are counted anew."""
    for pk in sorted({target.pk, *others}):
        record_event(
            kind,
            incident=target if pk == target.pk else Incident.objects.get(pk=pk),
            actor=actor,
            target=target.pk,
            target_title=target.title,
            attempts=attempts,
        )
    renew_totals(target.pk, *others)


def _locked(incident_id: int) -> Incident:
    incident = Incident.objects.select_for_update().filter(pk=incident_id).first()
    if incident is None:
        raise IncidentRefused("There is no such incident.")
    return incident


def _locked_pair(one_id: int, other_id: int) -> tuple[Incident, Incident]:
    """Both, locked in the order of their ids, so that two people who merge crosswise don't wait for each other."""
    locked: dict[int, Any] = {pk: _locked(pk) for pk in sorted({one_id, other_id})}
    return locked[one_id], locked[other_id]
