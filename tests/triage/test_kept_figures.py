"""Figures over many attempts are counted once for many looks, and never shown to other eyes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.access.sight import NOTHING, Sight, seeing
from triage.selectors import facets as facet
from triage.selectors.filters import AttemptFilter
from triage.selectors.insights import Scope, insights
from triage.selectors.kept import kept
from triage.selectors.nodes import fleet
from triage.selectors.rules import confusions, list_rules
from triage.services.verdicts import confirm

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def keeping(settings: Any) -> Iterator[None]:
    settings.FAULTLINE_FIGURES_SECONDS = 60
    cache.clear()
    yield
    cache.clear()


def test_figures_are_as_old_as_the_setting_says_and_no_older(diagnosed: MakeAttempt, settings: Any) -> None:
    def counted() -> tuple[int, int, int]:
        roots = sum(row.roots for row in list_rules(now=cast.END).rows)
        return insights(Scope(cast.END)).total.total, fleet(now=cast.END).blamed_nodes, roots

    diagnosed("1", facts={"ended_at": cast.END.timestamp() - 60})
    first = counted()
    assert first == (1, 1, 1)
    diagnosed("2", facts={"ended_at": cast.END.timestamp() - 30}, nodes={"gx-01": "cause"})
    assert counted() == first, "counted a moment ago"
    settings.FAULTLINE_FIGURES_SECONDS = 0
    assert counted() == (2, 2, 2)


def test_what_people_corrected_is_counted_once_for_many_looks(diagnosed: MakeAttempt, settings: Any) -> None:
    judge = User.objects.create_user("ada")

    def judged(workload: str) -> None:
        attempt = diagnosed(workload, facts={"ended_at": cast.END.timestamp() - 60})
        confirm(attempt.pk, judge, diagnosis_id=attempt.diagnosis_id)

    judged("1")
    assert confusions()[1:] == (0, 1)
    judged("2")
    with CaptureQueriesContext(connection) as seen:
        assert confusions()[1:] == (0, 1), "counted a moment ago"
    assert not len(seen)
    settings.FAULTLINE_FIGURES_SECONDS = 0
    assert confusions()[1:] == (0, 2)


def test_what_one_sees_is_never_given_to_another(diagnosed: MakeAttempt) -> None:
    attempt = diagnosed("1", facts={"ended_at": cast.END.timestamp() - 60})
    assert insights(Scope(cast.END)).total.total == 1
    for other in (NOTHING, Sight(clusters=frozenset({attempt.cluster_id + 1}))):
        with seeing(other):
            assert insights(Scope(cast.END)).total.total == 0
            assert fleet(now=cast.END).total == 0
    with seeing(Sight(queues=frozenset({(attempt.cluster_id, "gpu")}))):
        assert insights(Scope(cast.END)).total.total == 1


def test_nothing_is_a_figure_too() -> None:
    looks: list[int] = []

    def count() -> None:
        looks.append(1)

    assert kept("none", 1, count) is None and kept("none", 1, count) is None
    assert len(looks) == 1
    kept("none", 2, count)
    assert len(looks) == 2, "another scope is another figure"


def test_a_list_that_counts_its_newest_alone_counts_them_once_for_many_looks(
    diagnosed: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(workload: str, hours: int, user: str = "ada") -> None:
        diagnosed(workload, facts={"ended_at": cast.END.timestamp() - 3600 * hours, "user": user})

    for hours in range(2, 5):
        ended(str(hours), hours)
    failures = AttemptFilter(failures=True)
    assert facet.counts(failures).total == 3
    ended("1", 1)
    assert facet.counts(failures).total == 4, "few are counted at each look"
    monkeypatch.setattr(facet, "COUNTED", 2)
    cache.clear()
    first = facet.counts(failures)
    assert (first.total, first.facets_since) == (3, cast.END - timedelta(hours=3))
    ended("0", 0, user="ben")
    assert facet.counts(failures) == first, "counted a moment ago"
    of_ben = facet.counts(replace(failures, user=("ben",)))
    assert of_ben.total == 1, "the few of one user are counted at each look"
    with seeing(NOTHING):
        assert facet.counts(failures).total == 0
    cache.clear()
    assert facet.counts(failures).facets_since == cast.END - timedelta(hours=2)


def test_what_is_asked_since_some_days_is_one_figure_within_a_minute(
    diagnosed: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facet, "COUNTED", 1)
    for workload in ("1", "2"):
        diagnosed(workload, facts={"ended_at": cast.END.timestamp()})
    week = AttemptFilter(failures=True, since=cast.END.replace(second=1) - timedelta(days=7))
    first = facet.counts(week)
    with CaptureQueriesContext(connection) as seen:
        assert facet.counts(replace(week, since=week.since and week.since + timedelta(seconds=9))) == first
    assert len(seen) == 1, "the names of the clusters"
