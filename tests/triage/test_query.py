"""The language of the search box: read, written back, refused with the word that is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from tests.triage import cast
from tests.triage.conftest import MakeAttempt
from triage.models import Attempt
from triage.selectors.attempts import list_attempts
from triage.selectors.query import FIELDS, Query, Term, parse, read_query

NOW = datetime(2026, 11, 3, 6, 42, tzinfo=UTC)


def test_the_example_of_the_page_is_read() -> None:
    text = 'domain:hardware node:node-02 user:ada xid:149 rule:pytorch.* cluster:c1 outcome:hung is:unconfirmed before:2026-11-01 -domain:software "signal integrity"'  # noqa: E501
    query = parse(text)
    assert not query.errors
    assert str(query) == text
    narrowed = query.to_filter(now=NOW)
    assert narrowed.domain == ("hardware",) and narrowed.node == ("node-02",) and narrowed.verdict == ("unconfirmed",)
    assert narrowed.matched == ("xid.149", "xid.149-*") and narrowed.rule == ("pytorch.*",)
    assert narrowed.until == datetime(2026, 11, 1, tzinfo=UTC)
    assert narrowed.excluded == (("domain", "software"),) and narrowed.phrases == ("signal integrity",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("domain:hardwear", "domain:hardwear: there is no such value. Did you mean hardware?"),
        ("outcome:exploded", "outcome:exploded: there is no such value. Known: succeeded, failed"),
        ("is:confirmd", "is:confirmd: there is no such value. Did you mean confirmed?"),
        ("nod:gx-01", "nod:gx-01: there is no field nod:. Did you mean node:?"),
        ("foo:bar", 'foo:bar: there is no field foo:. To find the text itself, quote it: "foo:bar"'),
        ("node:", "node: needs a value (node to blame, or none), for example node:node-02"),
        ("ended:soon", "ended:soon: write hours, days or weeks, for example ended:24h"),
        ("ended:0d", "ended:0d: write hours"),
        ("before:yesterday", "before:yesterday: is no day or time"),
        ("xid:abc", "xid:abc: an Xid is a number"),
        ("incident:x", "incident:x: is no incident"),
        ("-ended:7d", "-ended:7d: a time can't be excluded"),
        ('llama "signal integrity', '"signal: the quote is not closed'),
        ("x" * 3000, "The search is longer than 2,000 characters"),
        (" ".join(f"w{n}" for n in range(50)), "50 conditions are too many"),
    ],
)
def test_what_is_wrong_names_the_word(text: str, says: str) -> None:
    query = parse(text)
    assert query.errors and query.errors[0].startswith(says), query.errors
    assert str(query) == text[:2000], "it stands in the box as it was written"


def test_every_fault_is_told_at_once() -> None:
    assert len(parse("domain:x outcome:y foo:z").errors) == 3


@pytest.mark.parametrize(
    "text", ["KeyError: 'input_ids'", "0000:61:00", "Foo::bar", "https://x", "-", "a - b", "100%", 'say"hi"']
)
def test_text_with_signs_in_it_is_text(text: str) -> None:
    query = parse(text)
    assert text == "https://x" or (not query.errors and all(not term.field for term in query.terms))


def test_names_with_spaces_quotes_and_backslashes_come_back_whole() -> None:
    for value in (
        "a b",
        'a "b" c',
        "a\\b c",
        '"',
        "\\",
        "-x",
        "node:x",
        "\u65e5\u672c",
        "a\u202eb",
        "\x1b[31m",
        "\\u{41}",
    ):
        for field in ("", "node", "user"):
            term = Term(field, value)
            assert parse(str(term)) == Query((term,)), str(term)


WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp", "Cf", "Co", "Cn")),
    min_size=1,
    max_size=12,
)


@given(st.lists(st.builds(Term, st.sampled_from(["", "node", "user", "workload"]), WORDS, st.booleans()), max_size=6))
def test_what_is_written_is_read_back_the_same(terms: list[Term]) -> None:
    query = Query(tuple(dict.fromkeys(terms)))
    assert parse(str(query)) == query


@given(st.text(max_size=200))
def test_no_text_is_a_crash(text: str) -> None:
    query = parse(text)
    if not query.errors:
        assert parse(str(query)) == query
        query.to_filter(now=NOW)


def test_the_boxes_say_the_same_as_the_text() -> None:
    boxes = read_query(
        QueryDict("q=llama&domain=hardware&domain=network&is=unconfirmed&until=2026-10-31&after=2026-10-01")
    )
    assert boxes == parse("llama domain:hardware domain:network is:unconfirmed after:2026-10-01 before:2026-11-01")
    assert read_query(QueryDict("status=pending&text=a+b")) == parse("triage:pending a b")
    assert read_query(QueryDict("domain=nonsense")).errors == (
        "domain:nonsense: there is no such value. Known: hardware, network, storage, platform, scheduler, software, "
        "unattributed.",
    )


def test_relative_times_count_from_now_and_the_narrowest_counts() -> None:
    narrowed = parse("ended:7d ended:24h after:2026-01-01").to_filter(now=NOW)
    assert narrowed.since == NOW - timedelta(days=1) and narrowed.until is None


def test_terms_are_taken_away_and_added() -> None:
    query = parse("domain:hardware -domain:network gx-02")
    assert str(query.set("domain", "storage", "software")) == "-domain:network gx-02 domain:storage domain:software"
    assert str(query.minus(Term("", "gx-02"))) == "domain:hardware -domain:network"
    assert query.values("domain") == ("hardware",)


def test_every_field_is_explained() -> None:
    assert all(field.about and (field.values or field.example) for field in FIELDS.values())


@pytest.fixture
def failures(diagnosed: MakeAttempt) -> dict[int, str]:
    gpu = diagnosed("1", facts={"user": "ada", "queue": "pretrain"})
    ib = diagnosed(
        "2", facts={"user": "priya", "cluster": "c2", "ended_at": cast.END.timestamp() - 7200}, domain="network",
        sub_domain="infiniband", nodes={"gx-01": "suspect"}, title="InfiniBand port down on gx-01",
    )  # fmt: skip
    code = diagnosed(
        "3", facts={"user": "ada", "name": "sft"}, domain="unattributed", sub_domain="none", outcome="hung", nodes={},
        title="No cause",
    )  # fmt: skip
    Attempt.objects.filter(pk=code.pk).update(missing=["syslog"])
    return {gpu.pk: "gpu", ib.pk: "ib", code.pk: "code"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {"gpu", "ib", "code"}),
        ("xid:79", {"gpu", "ib"}),  # the cast's rule
        ("-xid:79", {"code"}),
        ("rule:xid.*", {"gpu", "ib"}),
        ("-rule:xid.*", {"code"}),
        ("saw:xid.79 user:ada", {"gpu"}),
        ("user:a*", {"gpu", "code"}),
        ("-user:ada", {"ib"}),
        ("queue:pretrain", {"gpu"}),
        ("team:gpu", {"ib", "code"}),
        ("node:gx-02 node:none", {"gpu", "code"}),
        ("-node:gx-02", {"ib", "code"}),
        ("on:gx-01 -domain:network", {"gpu", "code"}),
        ("workload:sft", {"code"}),
        ("workload:2", {"ib"}),
        ("missing:syslog", {"code"}),
        ("-missing:syslog", {"gpu", "ib"}),
        ('"port down"', {"ib"}),
        ('-"port down"', {"gpu", "code"}),
        ("assignee:none", {"gpu", "ib", "code"}),
        ("assignee:me", set()),
        ("incident:INC-999999", set()),
        ("after:2026-11-03T03:00", {"gpu", "code"}),
        ("outcome:hung -outcome:failed", {"code"}),
        ("is:unconfirmed domain:hardware domain:network", {"gpu", "ib"}),
    ],
)
@pytest.mark.django_db
def test_a_query_narrows_the_list(failures: dict[int, str], text: str, wanted: set[str]) -> None:
    query = parse(text)
    assert not query.errors
    assert {failures[row.pk] for row in list_attempts(query.to_filter(me="ada")).attempts} == wanted
