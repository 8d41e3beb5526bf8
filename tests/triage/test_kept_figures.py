"""Figures over many attempts are counted once for many looks, and never shown to other eyes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache

from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.access.sight import NOTHING, Sight, seeing
from triage.selectors.insights import Scope, insights
from triage.selectors.kept import kept
from triage.selectors.nodes import fleet
from triage.selectors.rules import list_rules

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
