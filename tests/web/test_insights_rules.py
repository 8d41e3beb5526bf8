"""Insights and rules: figures that agree with the lists behind them."""

from __future__ import annotations

import csv
import html
import io
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.web import stories
from tests.web.conftest import MakeAttempt
from tests.web.figures import followed, unlinked
from triage.models import Attempt
from triage.selectors.insights import Scope, insights, minute
from triage.selectors.rules import known_ids, list_rules, matching_ids, rule_detail
from triage.services import verdicts


@pytest.fixture
def week(make_attempt: MakeAttempt) -> list[Attempt]:
    """Three failures of this week, one of the week before, one success."""
    now = timezone.now()
    started = (now - timedelta(hours=3)).timestamp()
    made = [
        make_attempt(ended_at=now - timedelta(hours=1), started_at=started),
        make_attempt(stories.key_error(), ended_at=now - timedelta(hours=2), started_at=started, cluster="c2"),
        make_attempt(stories.no_cause(), ended_at=now - timedelta(hours=2), started_at=started, queue="vision"),
        make_attempt(ended_at=now - timedelta(days=8), started_at=(now - timedelta(days=8, hours=1)).timestamp()),
    ]
    make_attempt(stories.succeeded(), ended_at=now, started_at=started)
    return made


def links(page: str, text: str) -> list[str]:
    return [html.unescape(url) for url in re.findall(rf'href="([^"]+)">{re.escape(text)}</a>', page)]


def test_figures_agree_with_the_lists_that_they_lead_to(signed_in: Client, week: list[Attempt]) -> None:
    page = signed_in.get("/insights/").content.decode()
    assert "3 failures" in page and "Hardware" in page
    assert followed(signed_in, page) >= 6
    assert unlinked(page) == []


def test_what_has_no_team_and_what_is_not_diagnosed_have_lists_too(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    now = timezone.now()
    for story, queue in ((stories.nvlink(), ""), (None, "gpu"), (None, "gpu")):
        make_attempt(story, ended_at=now, started_at=(now - timedelta(hours=1)).timestamp(), queue=queue, cluster="")
    page = signed_in.get("/insights/").content.decode()
    assert "Not diagnosed yet" in page and "none named" in page
    assert followed(signed_in, page) >= 5 and unlinked(page) == []
    assert '<th scope="row">All</th><td class="num"><a class="plain" href="/?q=ended:7d">3</a>' in page


def test_weeks_are_those_of_the_search_box(week: list[Attempt]) -> None:
    found = insights(Scope(now=minute()))
    hardware = next(one for one in found.domains if one.name == "hardware")
    assert hardware.failures[-2:] == [1, 1] and hardware.change == 0
    assert found.total.now == 3 and {one.name for one in found.clusters} == {"c1", "c2"}
    assert found.without_cause[-1].hits == 1 and found.without_cause[-1].trials == 3
    assert [(one.source, one.attempts) for one in found.missing] == [("metric", 1)] and found.complete == 0
    assert found.top[0].attempts == 3 and hardware.between.hours == 168.0


def test_the_page_is_narrowed_by_cluster_team_and_range(signed_in: Client, week: list[Attempt]) -> None:
    page = signed_in.get("/insights/?cluster=c2&weeks=4").content.decode()
    assert "4 weeks to" in page and links(page, "1 failure") == ["/?q=cluster:c2+ended:7d"]
    assert "No failures in these 12 weeks" in signed_in.get("/insights/?queue=nobody").content.decode()
    assert signed_in.get("/insights/?weeks=999&cluster=%00&queue=%00").status_code == 200


def test_the_figures_come_as_csv(signed_in: Client, week: list[Attempt]) -> None:
    answer = signed_in.get("/insights.csv?weeks=4")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))  # type: ignore[arg-type]
    assert sum(int(row["failures"]) for row in rows if row["by"] == "domain") == 4
    assert {row["name"] for row in rows if row["by"] == "queue"} == {"gpu", "vision"}


def test_an_empty_installation_has_no_figures_and_says_so(signed_in: Client) -> None:
    assert "No failures in these 12 weeks" in signed_in.get("/insights/").content.decode()


# --- rules ------------------------------------------------------------------------------------------------------------


def test_the_list_says_how_each_rule_fared(signed_in: Client, ada: User, week: list[Attempt]) -> None:
    other = stories.nvlink()
    for attempt in week[:1]:
        attempt.refresh_from_db()
        verdicts.confirm(attempt.pk, ada, diagnosis_id=attempt.diagnosis_id)
    verdicts.correct(
        week[3].pk, ada, diagnosis_id=Attempt.objects.get(pk=week[3].pk).diagnosis_id, seen=None, kind="wrong_cause",
        reason="The cable of the switch.", answer=verdicts.Answer("network", "infiniband", "Cable", nodes=[]),
    )  # fmt: skip
    page = signed_in.get("/rules/").content.decode()
    assert "1 of 2" in page and "50 %" in page
    first = re.search(r'<tbody>\s*<tr><th scope="row"><a class="plain" href="([^"]+)">', page)
    assert first and first.group(1) in ("/rules/xid.149/", "/rules/python.exception/")
    assert "Where people disagreed" in page and "1 of 2 verdicts that stand" in page
    assert html.escape("/?q=rule:xid.149+is:corrected+domain:network+sub:infiniband") in page
    assert other.root_cause is not None


def test_a_rules_page_says_what_it_proves_and_where_it_decided(signed_in: Client, week: list[Attempt]) -> None:
    page = signed_in.get("/rules/xid.149/").content.decode()
    for words in (
        "What it does not prove",
        "What to check next",
        "NVRM: Xid",
        "2 times the root",
        "gx-02",
        "Nobody has judged",
    ):
        assert words in page, words
    assert "table <code>xid</code>" in page and 'href="/rules/xid.event/"' in page
    table = signed_in.get("/rules/xid.event/").content.decode()
    assert "Rows of xid" in table and 'href="/rules/xid.79/"' in table
    assert signed_in.get("/rules/no.such-rule/").status_code == 404


def test_every_rule_has_a_page(signed_in: Client) -> None:
    for rule in known_ids()[::20]:
        assert signed_in.get(reverse("rule", args=[rule])).status_code == 200, rule
        assert rule_detail(rule) is not None


def test_a_pasted_line_finds_the_rules_that_match_it(signed_in: Client, db: None) -> None:
    line = "NVRM: Xid (PCI:0000:61:00): 79, pid=12044, name=python3, GPU has fallen off the bus."
    assert "xid.79" in matching_ids(line)
    page = signed_in.get("/rules/", {"q": line}).content.decode()
    assert "this line:" in page and 'href="/rules/xid.79/"' in page
    assert "No rule fits" in signed_in.get("/rules/", {"q": "nothing like it at all"}).content.decode()


def test_rules_are_searched_ordered_and_paged(signed_in: Client, db: None) -> None:
    assert [row.id for row in list_rules(search="fallen off bus").rows][:1] or list_rules(search="xid.79").rows
    assert {row.family for row in list_rules(family="nccl").rows} == {"nccl"}
    first, second = list_rules(page=1), list_rules(page=2)
    assert first.pages > 2 and not {row.id for row in first.rows} & {row.id for row in second.rows}
    for query in ("?page=99999", "?page=x", "?sort=nonsense", "?family=nonsense", "?q=%00", "?sort=precision&page=2"):
        assert signed_in.get(f"/rules/{query}").status_code == 200
