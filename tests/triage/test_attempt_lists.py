"""Lists of attempts: narrowed by what one looks for, paged without loss, in a fixed number of queries."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext

from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.models import Attempt
from triage.selectors import facets as facet
from triage.selectors import neighbours
from triage.selectors.attempts import (
    AttemptFilter,
    CursorError,
    attempt_detail,
    count_attempts,
    count_each,
    count_newer,
    list_attempts,
    triage_counts,
)
from triage.services.attempts import record_attempt
from triage.services.triage import request_triage

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet_of_failures(diagnosed: MakeAttempt) -> dict[str, Attempt]:
    """Three diagnosed attempts and one that waits."""
    waiting, _ = record_attempt(cast.facts("4", user="tomas", cluster="c2", ended_at=None))
    request_triage(waiting.pk)
    return {
        "gpu": diagnosed("1", facts={"user": "ada"}),
        "ib": diagnosed(
            "2", facts={"user": "priya", "cluster": "c2", "ended_at": cast.END.timestamp() - 3600}, domain="network",
            sub_domain="infiniband", nodes={"gx-01": "suspect"}, title="InfiniBand port down on gx-01",
        ),
        "code": diagnosed(
            "3", facts={"user": "ada", "name": "sft_100%"}, domain="software", sub_domain="user_code",
            outcome="failed", nodes={}, title="KeyError: 'input_ids' on rank 3",
        ),
        "waiting": Attempt.objects.get(pk=waiting.pk),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", {"gpu", "ib", "code", "waiting"}),
        ("domain=hardware", {"gpu"}),
        ("domain=hardware&domain=network", {"gpu", "ib"}),
        ("sub_domain=infiniband", {"ib"}),
        ("cluster=c2", {"ib", "waiting"}),
        ("user=ada", {"gpu", "code"}),
        ("user=ada&domain=software", {"code"}),
        ("outcome=failed", {"gpu", "ib", "code"}),
        ("status=pending", {"waiting"}),
        ("node=gx-02", {"gpu"}),
        ("node=gx-01", {"ib"}),  # only affected in the first, suspect in the second
        ("node=none", {"code"}),
        ("node=none&node=gx-02", {"code", "gpu"}),
        ("text=keyerror", {"code"}),
        ("text=GX-01+infiniband", {"ib"}),
        ("text=100%25", {"code"}),
        ("text=_00", set()),  # no wildcard of the database
        ("text=nothing+like+it", set()),
        ("since=2026-11-03T04:00:00Z&until=2026-11-04", {"gpu", "code"}),
        ("until=2026-11-03T04:00", {"ib", "waiting"}),  # it started at 02:00
        ("since=yesterday&unknown=1", {"gpu", "ib", "code", "waiting"}),
        ("domain=%00&text=%00", {"gpu", "ib", "code", "waiting"}),
        ("domain='+OR+1=1", set()),
    ],
)
def test_a_filter_of_the_address_narrows_the_list(
    fleet_of_failures: dict[str, Attempt], query: str, wanted: set[str]
) -> None:
    narrowed = AttemptFilter.from_query(QueryDict(query))
    page = list_attempts(narrowed)
    names = {attempt.pk: name for name, attempt in fleet_of_failures.items()}
    assert {names[attempt.pk] for attempt in page.attempts} == wanted
    assert count_attempts(narrowed) == len(wanted)


def test_a_filter_goes_to_the_address_and_back() -> None:
    narrowed = AttemptFilter(domain=("hardware", "network"), node=("gx-02",), since=cast.START, text="xid 149")
    query = QueryDict(mutable=True)
    for name, values in narrowed.to_query().items():
        query.setlist(name, values)
    assert AttemptFilter.from_query(QueryDict(query.urlencode())) == narrowed
    assert AttemptFilter.from_query(narrowed.to_query()).domain == narrowed.domain
    assert not narrowed.is_empty and narrowed.without("domain").domain == ()


def test_a_row_knows_the_nodes_that_are_blamed(fleet_of_failures: dict[str, Attempt]) -> None:
    blamed = {attempt.pk: attempt.blamed_nodes for attempt in list_attempts().attempts}
    assert blamed == {
        fleet_of_failures["gpu"].pk: ["gx-02"],
        fleet_of_failures["ib"].pk: ["gx-01"],
        fleet_of_failures["code"].pk: [],
        fleet_of_failures["waiting"].pk: [],
    }


def make_rows(count: int, same_time: int = 1) -> list[int]:
    """Attempts whose end repeats `same_time` times; ids newest first, as a list shows them."""
    attempts = []
    for number in range(count):
        ended_at = (cast.END + timedelta(minutes=number // same_time)).timestamp()
        attempts.append(record_attempt(cast.facts(f"{number:05}", ended_at=ended_at))[0])
    return [a.pk for a in sorted(attempts, key=lambda a: (a.ended_at, a.pk), reverse=True)]


@pytest.mark.parametrize("same_time", [1, 4, 100])
def test_pages_to_older_and_back_show_every_row_once_in_one_order(same_time: int) -> None:
    wanted = make_rows(23, same_time)
    pages, cursor = [], None
    while True:
        page = list_attempts(cursor=cursor, limit=5)
        pages.append([attempt.pk for attempt in page.attempts])
        if page.older is None:
            break
        cursor = page.older
    assert [pk for rows in pages for pk in rows] == wanted
    back = []
    while page.newer is not None:
        page = list_attempts(cursor=page.newer, limit=5)
        back.append([attempt.pk for attempt in page.attempts])
    assert back == pages[-2::-1]


def test_a_row_that_comes_in_while_one_pages_moves_nothing() -> None:
    wanted = make_rows(10)
    first = list_attempts(limit=5)
    newest = first.attempts[0]
    record_attempt(cast.facts("new", ended_at=(cast.END + timedelta(days=1)).timestamp()))
    assert [attempt.pk for attempt in list_attempts(cursor=first.older, limit=5).attempts] == wanted[5:]
    assert count_newer(AttemptFilter(), newest, limit=99) == 1


@pytest.mark.parametrize(
    "cursor", ["x", "AAAA", "WyJvIiwxLDJd", "bnVsbA", "WyJvIiwiMjAyNi0xMS0wMyIsMV0", "\u00fc", "[" * 3000]
)
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(CursorError):
        list_attempts(cursor=cursor)


def test_facets_count_what_their_own_choice_would_give(fleet_of_failures: dict[str, Attempt]) -> None:
    facets = facet.counts(AttemptFilter(domain=("hardware",), user=("ada",))).facets
    counted = {name: {value.value: value.count for value in values} for name, values in facets.items()}
    assert counted["domain"] == {"hardware": 1, "software": 1}  # ada's, whatever the domain
    assert counted["user"] == {"ada": 1}  # hardware's, whoever the user
    assert counted["cluster"] == {"c1": 1}
    assert counted["node"] == {"gx-02": 1}
    assert [value.selected for value in facets["domain"] if value.value == "hardware"] == [True]


def test_of_too_many_attempts_the_newest_are_counted_and_since_when_is_said(
    diagnosed: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hours in range(5):
        user = "ben" if hours % 2 else "ada"
        ended = cast.END.timestamp() - 3600 * hours
        diagnosed(str(hours), facts={"ended_at": ended, "user": user}, domain="network")
    whole = facet.counts(AttemptFilter())
    assert (whole.since, whole.facets_since) == (None, None)
    monkeypatch.setattr(facet, "COUNTED", 2)
    counted = facet.counts(AttemptFilter(domain=("network",)))
    assert counted.since == counted.facets_since == cast.END - timedelta(hours=2)
    assert counted.total == 3 and counted.facets["domain"][0].count == 3
    by_words = facet.counts(AttemptFilter(domain=("network",), text="gx-0"))
    assert (by_words.since, by_words.total) == (counted.since, 3)
    early = facet.counts(AttemptFilter(until=cast.END - timedelta(hours=2)))
    assert early.since is None and early.total == 2, "a list of a time that can be counted is counted whole"
    of_ben = facet.counts(AttemptFilter(user=("ben",)))
    assert of_ben.since is None and of_ben.total == 2, "few match, though others would be too many"
    assert of_ben.facets_since is not None
    assert {value.value: value.count for value in of_ben.facets["user"]} == {"ada": 2, "ben": 1}


@pytest.mark.parametrize(
    "query",
    [
        "", "domain=hardware&domain=network", "user=ada", "user=a*", "node=gx-02", "node=none", "verdict=unconfirmed",
        "cluster=c2&user=priya", "outcome=failed&user=nobody", "outcome=succeeded", "node=gx-01&node=none&user=priya",
    ],
)  # fmt: skip
def test_facets_count_the_same_whether_words_are_looked_for_or_not(
    query: str, fleet_of_failures: dict[str, Attempt], diagnosed: MakeAttempt
) -> None:
    diagnosed("9", outcome="succeeded", nodes={})
    narrowed = replace(AttemptFilter.from_query(QueryDict(query)), failures="succeeded" not in query)
    by_words = facet.counts(replace(narrowed, text="gx-0"))  # all of them ran on such nodes
    assert by_words == facet.counts(narrowed)
    assert by_words.facets["user"], "there is something to compare"


def test_successes_found_by_words_are_counted_up_to_a_limit(
    diagnosed: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    for workload in ("1", "2", "3"):
        diagnosed(workload, outcome="succeeded", nodes={})
    monkeypatch.setattr(facet, "MANY", 2)
    found = facet.counts(AttemptFilter(text="llama", failures=True))
    assert (found.succeeded, found.succeeded_more) == (2, True)
    assert (facet.counts(AttemptFilter(failures=True)).succeeded, found.total) == (3, 0)
    asked = facet.counts(AttemptFilter(text="llama", outcome=("succeeded",)))
    assert (asked.succeeded, asked.succeeded_more, asked.total) == (3, False, 3), "what is listed is counted whole"


def test_others_that_failed_in_the_same_way_are_those_diagnosed_last_newest_first(
    diagnosed: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [diagnosed(str(day), facts={"ended_at": cast.END.timestamp() - 86400 * day}) for day in range(8)]
    diagnosed("other", domain="network", sub_domain="dns")
    found = neighbours.alike(made[3])
    assert [one.pk for one in found.newest] == [made[day].pk for day in (0, 1, 2, 4, 5)]
    assert (found.count, found.more, found.many) == (7, 2, False)
    monkeypatch.setattr(neighbours, "MAX_COUNTED", 3)
    last = neighbours.alike(made[3])
    assert [one.pk for one in last.newest] == [made[day].pk for day in (5, 6, 7)]
    assert (last.count, last.many) == (3, True)


def test_many_lists_are_counted_in_one_query_that_stops_at_its_limit(fleet_of_failures: dict[str, Attempt]) -> None:
    lists = [
        AttemptFilter(),
        AttemptFilter(domain=("network",)),
        AttemptFilter(text="100%"),
        AttemptFilter(user=("x",)),
    ]
    with CaptureQueriesContext(connection) as seen:
        assert count_each(lists, 3) == [3, 1, 1, 0]
        assert count_each([], 3) == []
    assert len(seen) == 1


def test_a_chosen_value_without_rows_stays_in_its_facet(fleet_of_failures: dict[str, Attempt]) -> None:
    (chosen,) = [value for value in facet.counts(AttemptFilter(domain=("storage",))).facets["domain"] if value.selected]
    assert (chosen.value, chosen.count) == ("storage", 0)


def test_queries_dont_grow_with_rows(diagnosed: MakeAttempt) -> None:
    def queries(number: int) -> tuple[int, int, int]:
        counts = []
        for run in (
            lambda: [(a.workload.name, a.cluster.name, a.diagnosis.title) for a in list_attempts().attempts],
            lambda: facet.counts(AttemptFilter(domain=("hardware",))),
            lambda: attempt_detail(first.pk),
        ):
            with CaptureQueriesContext(
                connection,
            ) as captured:
                run()
            counts.append(len(captured))
        return counts[0], counts[1], counts[2]

    first = diagnosed("1")
    few = queries(1)
    for number in range(2, 12):
        diagnosed(str(number), nodes={f"gx-{node:02}": "cause" for node in range(number)})
    assert queries(12) == few == (3, 5, 7)


def test_one_attempt_comes_with_everything_its_page_shows(diagnosed: MakeAttempt) -> None:
    first = diagnosed("1")
    diagnosed("1", domain="network", sub_domain="dns", ruleset="sha256:two")
    second = diagnosed("1", facts={"number": 2})
    detail = attempt_detail(first.pk)
    assert detail.attempt == first
    assert detail.diagnosis is not None and detail.diagnosis.domain == "network"
    assert [diagnosis.domain for diagnosis in detail.earlier_diagnoses] == ["hardware"]
    assert [attempt.number for attempt in detail.siblings] == [1, 2]
    assert detail.siblings[1] == second
    assert detail.events[0].kind == "attempt.recorded"
    with pytest.raises(Attempt.DoesNotExist):
        attempt_detail(10**9)


def test_states_are_counted(fleet_of_failures: dict[str, Attempt]) -> None:
    assert triage_counts() == {"pending": 1, "collecting": 0, "diagnosing": 0, "done": 3, "failed": 0}


def test_gpu_hours_are_nodes_times_gpus_times_hours() -> None:
    attempt, _ = record_attempt(cast.facts())
    assert attempt.gpu_hours == pytest.approx(2 * 8 * (2 + 22 / 60 + 31 / 3600))
    unknown, _ = record_attempt(cast.facts("2", ended_at=None))
    assert unknown.gpu_hours is None
