"""Attempts with the same fingerprint, and what people decide about them."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.utils import timezone

from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from tests.triage.test_verdicts import at_once, diagnose_again
from triage.models import Attempt, Incident, IncidentKey, IncidentStatus, Membership, Notification, TimelineEvent
from triage.services.attempts import record_attempt
from triage.services.diagnoses import record_diagnosis
from triage.services.incidents import (
    IncidentConflict,
    IncidentRefused,
    assign,
    link_ticket,
    merge,
    rename,
    say_not_the_same,
    set_severity,
    set_status,
    split,
    unlink_ticket,
    unmerge,
)
from triage.services.triage import begin_triage, lease_diagnosis, request_triage
from triage.services.verdicts import Answer, correct, withdraw


@pytest.fixture
def maren(db: None) -> User:
    return User.objects.create_user("maren")


@pytest.fixture
def owen(db: None) -> User:
    return User.objects.create_user("owen", first_name="Owen", last_name="Achebe")


def incident_of(attempt: Attempt) -> Incident:
    return Incident.objects.get(memberships__attempt=attempt)


def members(incident: Incident) -> set[int]:
    return set(incident.memberships.values_list("attempt_id", flat=True))


def kinds(incident: Incident) -> list[str]:
    return list(incident.events.values_list("kind", flat=True))


def test_the_same_fingerprint_joins_one_incident_by_itself(diagnosed: MakeAttempt) -> None:
    first, second = diagnosed("1"), diagnosed("2")
    other = diagnosed("3", domain="network", sub_domain="dns")
    incident = incident_of(first)
    assert incident_of(second) == incident != incident_of(other)
    assert incident.name == f"INC-{incident.pk}" and incident.status == IncidentStatus.NEW
    assert (incident.attempts_count, round(incident.gpu_hours, 1)) == (2, 76.0), "2 nodes x 8 GPUs x 2 h 22 m, twice"
    assert incident.first_at == incident.last_at == cast.END
    assert kinds(incident) == ["incident.opened", "incident.joined"]
    assert TimelineEvent.objects.get(kind="incident.joined").attempt == second


def test_the_nodes_that_are_blamed_most_are_kept_with_it(diagnosed: MakeAttempt, maren: User) -> None:
    first = diagnosed("1", nodes={"gx-02": "cause"})
    diagnosed("2", nodes={"gx-02": "cause", "gx-01": "suspect", "gx-03": "affected"})
    diagnosed("3", nodes={"gx-05": "cause", "gx-06": "cause"})
    incident = incident_of(first)
    assert (incident.nodes, incident.nodes_count) == (["gx-02", "gx-01", "gx-05"], 4)
    answer = Answer("hardware", "gpu", "", nodes=["gx-01"])
    said = correct(
        first.pk, maren, diagnosis_id=first.diagnosis_id, seen=None, kind="wrong_node", reason="Swapped.", answer=answer
    )
    assert incident_of(first).nodes == ["gx-01", "gx-02", "gx-05"], "a person's word counts"
    withdraw(first.pk, maren, verdict_id=said.pk)
    assert incident_of(first).nodes == ["gx-02", "gx-01", "gx-05"]


@pytest.mark.parametrize("story", [{"domain": "unattributed", "sub_domain": "none"}, {"outcome": "succeeded"}])
def test_what_has_no_cause_or_did_not_fail_makes_no_incident(story: dict[str, Any], diagnosed: MakeAttempt) -> None:
    diagnosed(**story)
    assert not Incident.objects.exists() and not Membership.objects.exists()


def test_diagnosed_again_it_stays_moves_or_leaves_with_its_fingerprint(diagnosed: MakeAttempt) -> None:
    stays, moves = diagnosed("1"), diagnosed("2")
    incident = incident_of(stays)
    diagnose_again(stays, title="The same, said better")
    assert incident_of(stays) == incident and kinds(incident).count("incident.joined") == 1
    diagnose_again(moves, domain="network", sub_domain="dns")
    incident.refresh_from_db()
    assert incident_of(moves) != incident and incident.attempts_count == 1
    assert kinds(incident)[-1] == "incident.left" and kinds(incident_of(moves)) == ["incident.opened"]
    diagnose_again(moves, domain="unattributed", sub_domain="none")
    assert not Membership.objects.filter(attempt=moves).exists()


@pytest.mark.django_db(transaction=True)
def test_workers_that_find_the_same_failure_at_once_open_one_incident(db: None) -> None:
    leases = []
    for workload in ("1", "2", "3", "4"):
        attempt, _ = record_attempt(cast.facts(workload))
        request_triage(attempt.pk)
        begin_triage(attempt.pk)
        leases.append(lease_diagnosis(attempt.pk))
    at_once([partial(record_diagnosis, lease, cast.contract(), evidence="e") for lease in leases])
    assert Incident.objects.get().attempts_count == 4
    assert sorted(kinds(Incident.objects.get())) == ["incident.joined"] * 3 + ["incident.opened"]


def test_a_merge_brings_present_and_future_attempts_and_can_be_undone(diagnosed: MakeAttempt, maren: User) -> None:
    dns = {"domain": "network", "sub_domain": "dns"}
    one, two = diagnosed("1"), diagnosed("2", **dns)
    target, source = incident_of(one), incident_of(two)
    assert merge(source.pk, target.pk, maren) == target
    assert merge(source.pk, target.pk, maren) == target, "sent twice"
    later = diagnosed("3", **dns)
    diagnose_again(two, **dns, title="Grouping anew never undoes it")
    target.refresh_from_db()
    assert members(target) == {one.pk, two.pk, later.pk} and target.attempts_count == 3
    assert TimelineEvent.objects.filter(kind="incident.merged").count() == 2, "one in the record of each"
    assert unmerge(source.pk, maren) and not unmerge(source.pk, maren)
    assert members(target) == {one.pk} and members(source) == {two.pk, later.pk}
    target.refresh_from_db()
    source.refresh_from_db()
    assert (target.attempts_count, source.attempts_count) == (1, 2)
    assert incident_of(diagnosed("4", **dns)) == source, "and unmerged it stays"


def test_merges_of_merges_come_apart_in_any_order(diagnosed: MakeAttempt, maren: User) -> None:
    subs = ("dns", "roce", "ethernet")
    attempts = [diagnosed(sub, domain="network", sub_domain=sub) for sub in subs]
    a, b, c = (incident_of(attempt) for attempt in attempts)
    merge(a.pk, b.pk, maren)
    merge(b.pk, c.pk, maren)
    assert members(c) == {attempt.pk for attempt in attempts}
    with pytest.raises(IncidentRefused, match="part of"):
        merge(a.pk, incident_of(diagnosed("4")).pk, maren)
    with pytest.raises(IncidentRefused, match="itself"):
        merge(c.pk, a.pk, maren)
    unmerge(a.pk, maren)
    assert members(a) == {attempts[0].pk} and members(c) == {attempts[1].pk, attempts[2].pk}
    unmerge(b.pk, maren)
    assert [members(incident) for incident in (a, b, c)] == [{attempt.pk} for attempt in attempts]


@pytest.mark.django_db(transaction=True)
def test_two_people_who_merge_crosswise_make_no_ring(diagnosed: MakeAttempt) -> None:
    maren, owen = User.objects.create_user("maren"), User.objects.create_user("owen")
    one = incident_of(diagnosed("1"))
    two = incident_of(diagnosed("2", domain="network", sub_domain="dns"))
    at_once([partial(merge, one.pk, two.pk, maren), partial(merge, two.pk, one.pk, owen)])
    merged = Incident.objects.filter(merged_into__isnull=False)
    assert merged.count() == 1 and Incident.objects.get(merged_into=None).attempts_count == 2


def test_what_was_split_off_stays_whatever_its_fingerprint(diagnosed: MakeAttempt, maren: User) -> None:
    first, second, third = diagnosed("1"), diagnosed("2"), diagnosed("3")
    incident = incident_of(first)
    new = split(incident.pk, [second.pk], maren, title="The same error, another cable")
    assert (new.title, new.split_from, new.attempts_count) == ("The same error, another cable", incident, 1)
    diagnose_again(second, title="Said better")
    diagnose_again(second, domain="network", sub_domain="dns")
    assert incident_of(second) == new
    assert incident_of(diagnosed("4")) == incident, "new ones follow the fingerprint"
    assert members(incident) >= {first.pk, third.pk}
    merge(new.pk, incident.pk, maren)
    assert incident_of(second) == incident, "a split is undone by merging it back"
    unmerge(new.pk, maren)
    assert incident_of(second) == new


def test_a_split_of_nothing_of_everything_or_of_strangers_is_refused(diagnosed: MakeAttempt, maren: User) -> None:
    first, second = diagnosed("1"), diagnosed("2")
    stranger = diagnosed("3", domain="network", sub_domain="dns")
    incident = incident_of(first)
    for chosen in ([], [stranger.pk], [first.pk, second.pk]):
        with pytest.raises(IncidentRefused):
            split(incident.pk, chosen, maren)
    assert Incident.objects.count() == 2


def test_it_regresses_by_itself_when_the_failure_comes_back(diagnosed: MakeAttempt, maren: User) -> None:
    incident = incident_of(diagnosed("1"))
    set_status(incident.pk, maren, "resolved", seen="new")
    diagnosed("2")
    incident.refresh_from_db()
    assert incident.status == IncidentStatus.RESOLVED, "an attempt that ended before is no return"
    again = (timezone.now() + timedelta(hours=1)).timestamp()
    back = diagnosed("3", facts={"ended_at": again})
    incident.refresh_from_db()
    assert incident.status == IncidentStatus.REGRESSED
    event = TimelineEvent.objects.get(kind="incident.regressed")
    assert event.attempt == back and event.actor is None and event.payload["before"] == "resolved"
    diagnosed("4", facts={"ended_at": again})
    assert TimelineEvent.objects.filter(kind="incident.regressed").count() == 1


def test_status_owner_and_severity_are_set_once_with_their_events(
    diagnosed: MakeAttempt, maren: User, owen: User
) -> None:
    incident = incident_of(diagnosed())
    for _ in range(2):
        set_status(incident.pk, maren, "mitigated", seen="new", note="cable reseated")
        assign(incident.pk, maren, owen.pk, seen=None)
        set_severity(incident.pk, maren, 2, seen=None)
        rename(incident.pk, maren, "Link 10")
    incident.refresh_from_db()
    assert (incident.status, incident.assignee, incident.severity, incident.title) == ("mitigated", owen, 2, "Link 10")
    assert kinds(incident)[1:] == ["incident.status", "incident.assigned", "incident.severity", "incident.renamed"]
    assert Notification.objects.get().user == owen, "who was given it is told"
    with pytest.raises(IncidentRefused, match="by itself"):
        set_status(incident.pk, maren, "regressed", seen="mitigated")


def test_two_people_who_change_the_same_thing_learn_of_it(diagnosed: MakeAttempt, maren: User, owen: User) -> None:
    incident = incident_of(diagnosed())
    set_status(incident.pk, maren, "investigating", seen="new")
    assign(incident.pk, maren, maren.pk, seen=None)
    set_severity(incident.pk, maren, 1, seen=None)
    with pytest.raises(IncidentConflict, match="investigating"):
        set_status(incident.pk, owen, "resolved", seen="new")
    with pytest.raises(IncidentConflict):
        assign(incident.pk, owen, owen.pk, seen=None)
    with pytest.raises(IncidentConflict):
        set_severity(incident.pk, owen, 4, seen=None)


def test_tickets_are_links_and_nothing_else(diagnosed: MakeAttempt, maren: User) -> None:
    incident = incident_of(diagnosed())
    ticket = link_ticket(incident.pk, maren, url="https://tickets.example.org/browse/HW-2291", note="new cable")
    assert ticket.label == "HW-2291"
    assert link_ticket(incident.pk, maren, url=ticket.url) == ticket
    for url in ("javascript:alert(1)", "HW-2291", "https://", "http://[", "https://a/\u202eb"):
        with pytest.raises(IncidentRefused):
            link_ticket(incident.pk, maren, url=url)
    assert unlink_ticket(ticket.pk, maren) and not unlink_ticket(ticket.pk, maren)
    assert kinds(incident)[1:] == ["ticket.linked", "ticket.unlinked"]


def test_two_that_are_not_the_same_are_said_so_once(diagnosed: MakeAttempt, maren: User) -> None:
    one = incident_of(diagnosed("1"))
    two = incident_of(diagnosed("2", domain="network", sub_domain="dns"))
    assert say_not_the_same(two.pk, one.pk, maren) and not say_not_the_same(one.pk, two.pk, maren)


def test_each_fingerprint_has_one_key(diagnosed: MakeAttempt) -> None:
    diagnosed("1")
    diagnosed("2")
    assert IncidentKey.objects.get().key == "1:f-hardware-gpu"


@pytest.mark.django_db(transaction=True)
def test_attempts_that_were_diagnosed_before_there_were_incidents_join_theirs(diagnosed: MakeAttempt) -> None:
    first, second = diagnosed("1"), diagnosed("2")
    diagnosed("3", domain="unattributed", sub_domain="none")
    before = incident_of(first)
    TimelineEvent.objects.exclude(incident=None).delete()
    Incident.objects.all().delete()
    migration = import_module("triage.migrations.0009_incidents_of_earlier_attempts")
    migration.group(apps, None)
    incident = Incident.objects.get()
    assert members(incident) == {first.pk, second.pk} and incident.attempts_count == 2
    assert (incident.title, round(incident.gpu_hours, 3)) == (before.title, round(before.gpu_hours, 3))
    assert incident_of(diagnosed("4")) == incident, "and new ones follow"
