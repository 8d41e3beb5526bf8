"""Nodes: one beside the others, the fleet, and what people note."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from datetime import date, timedelta
from random import Random

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.web import stories
from tests.web.conftest import MakeAttempt
from tests.web.figures import followed
from tests.web.test_incidents import undo
from triage.gpus import Told
from triage.models import Attempt, Cluster, EventKind, TimelineEvent
from triage.selectors.nodes import Day, Standing, fleet, standing
from triage.services.gpus import keep_gpus
from triage.services.nodes import NodeRefused, add_note, drain, is_drained, return_to_service
from triage.statistics import poisson_interval, time_between, wilson
from triage.templatetags.fleet import node_url
from triage.web import figures


@pytest.fixture
def now_and_then(make_attempt: MakeAttempt) -> MakeAttempt:
    """Attempts that ended in these minutes, so that they are among the last 90 days."""

    def make(story: object = stories.nvlink(), **facts: object) -> Attempt:
        return make_attempt(story, ended_at=timezone.now(), **facts)  # type: ignore[arg-type]

    return make


def test_a_node_that_is_worse_than_the_others_is_said_to_be(signed_in: Client, now_and_then: MakeAttempt) -> None:
    for _ in range(6):
        now_and_then()
    page = signed_in.get("/nodes/gx-02/").content.decode()
    assert "Yes. Blamed in 6 of 6 attempts; the other nodes of c1 in 0 of 18." in page
    assert "6 of them because of this node" in page
    assert "0000:61:00" in page and "<strong>6</strong>" in page, "faults by device"
    assert 'data-domain="hardware" x="1068"' in page, "today's bar is in the domain's colour"
    assert "No. Never blamed in 6 attempts." in signed_in.get("/nodes/gx-01/").content.decode()


def test_every_figure_of_a_node_leads_to_its_list(signed_in: Client, now_and_then: MakeAttempt) -> None:
    for _ in range(3):
        now_and_then()
    now_and_then(stories.key_error(), name="vit-h")
    now_and_then(stories.succeeded(), name="vit-h")
    now_and_then(stories.key_error(), nodes=("gx-05",))
    page = signed_in.get("/nodes/gx-02/").content.decode()
    assert ">5 attempts</a> ran here" in page
    assert followed(signed_in, page) == 7, "ran; of two workloads ran, failed, of one to blame; the faults of a device"


def test_gpus_are_named_by_model_bus_and_serial_number_where_evidence_tells_them(
    signed_in: Client, now_and_then: MakeAttempt
) -> None:
    now_and_then()
    attempt = now_and_then()
    page = signed_in.get("/nodes/gx-02/").content.decode()
    assert "c1, 8 GPUs</span>" in page and "serial" not in page
    told = [
        Told("gx-02", "0000:61:00", 3, serial="1652179791123", model="NVIDIA H100 80GB HBM3"),
        Told("gx-02", "0000:1b:00", 0, uuid="GPU-5cab3167-9337-dd41-21df-2d29c848b27a"),
        Told("gx-01", model="b200"),
    ]
    keep_gpus(attempt.cluster, told, timezone.now())
    page = signed_in.get("/nodes/gx-02/").content.decode()
    assert "c1, 8 GPUs: NVIDIA H100 80GB HBM3</span>" in page
    assert "<code>1652179791123</code>" in page and page.count("0000:61:00</td>") + page.count("0000:61:00<span") >= 1
    assert "<code>GPU-5cab3167&hellip;</code>" in page
    assert followed(signed_in, page) >= 4, "the failures of a GPU have a list"
    assert "c1, 8 GPUs: b200</span>" in signed_in.get("/nodes/gx-01/").content.decode()


def test_the_strip_says_what_it_was_and_leads_to_the_days_failures(
    signed_in: Client, now_and_then: MakeAttempt
) -> None:
    now_and_then()
    now_and_then()
    page = signed_in.get("/nodes/gx-02/").content.decode()
    assert ">Xid 149, 2 times</text>" in page
    assert "2 attempts, 2 failed, 2 by it</title>" in page
    day = timezone.now().date()
    address = f"/?q=on:gx-02+cluster:c1+after:{day}+before:{day + timedelta(days=1)}"
    assert f'<a href="{address}" tabindex="-1"' in page
    assert "2 attempts match" in signed_in.get(address).content.decode()


def test_labels_of_the_strip_stand_beside_each_other() -> None:
    days = [Day(date(2026, 1, 1) + timedelta(days=number)) for number in range(90)]
    for number, rule in (
        (3, "xid.79"),
        (5, "xid.79"),
        (6, "nccl.x"),
        (40, "sxid.20034"),
        (88, "xid.149-a"),
        (89, "xid.149"),
    ):
        days[number] = replace(days[number], blamed=1, domain="hardware", sub_domain="nvlink", rule=rule)
    labels = figures.strip(days).causes
    assert [(label.text, label.end) for label in labels] == [
        ("NVLink", False), ("SXid 20034", False), ("Xid 149, 2 times", True),
    ], "the newest first in line; what has no room is not said"  # fmt: skip
    assert labels[-1].x == 89 * 12 + 10


def test_chance_alone_makes_no_node_of_hundreds_worse() -> None:
    """600 nodes that are all alike, each blamed in 2 % of 500 attempts."""
    random = Random(3)
    fleet_share = wilson(6000, 300_000)
    hits = [sum(random.random() < 0.02 for _ in range(500)) for _ in range(600)]
    strict = sum(standing(wilson(count, 500), fleet_share) == Standing.WORSE for count in hits)
    loose = sum(wilson(count, 500).low > fleet_share.high for count in hits)
    assert strict <= 2 < loose


def test_one_failure_is_no_proof(signed_in: Client, now_and_then: MakeAttempt) -> None:
    now_and_then()
    page = signed_in.get("/nodes/gx-02/").content.decode()
    assert "Not certain. Blamed in 1 of 1 attempts" in page
    assert "anything from 21 to 100 % fits" in page


def test_the_fleet_puts_the_surest_first_and_leads_to_each_list(signed_in: Client, now_and_then: MakeAttempt) -> None:
    for _ in range(3):
        now_and_then()
    page = signed_in.get("/nodes/").content.decode()
    assert "4 nodes on which something ran" in page
    assert 'href="/nodes/gx-02?cluster=c1"' in page or 'href="/nodes/gx-02/?cluster=c1"' in page
    assert followed(signed_in, page) == 2, "to blame; attempts"
    assert "gx-03" not in re.sub(r"<form.*?</form>", "", page, flags=re.S), "only nodes that were to blame"
    assert "gx-03" in signed_in.get("/nodes/?q=gx-03").content.decode()


def test_a_node_that_is_blamed_for_what_never_ran_on_it_has_no_rate_above_one(
    signed_in: Client, now_and_then: MakeAttempt
) -> None:
    now_and_then()
    for _ in range(2):
        now_and_then(nodes=("gx-07",))  # gx-02 is to blame all the same
    page = signed_in.get("/nodes/")
    assert page.status_code == 200
    (row,) = fleet().nodes
    assert (row.name, row.attempts, row.blamed) == ("gx-02", 1, 1)


def test_the_fleet_comes_as_csv(signed_in: Client, now_and_then: MakeAttempt) -> None:
    for _ in range(3):
        now_and_then()
    answer = signed_in.get("/nodes.csv?cluster=c1&q=gx-0")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))  # type: ignore[arg-type]
    worst = rows[0]
    assert (worst["node"], worst["to_blame"], worst["attempts"]) == ("gx-02", "3", "3")
    assert len(rows) == 4 and worst["beside_the_others"] == "unclear" and float(worst["share_low"]) > 0.4


def test_a_name_in_two_clusters_is_two_nodes(signed_in: Client, now_and_then: MakeAttempt) -> None:
    now_and_then()
    now_and_then(stories.key_error(), cluster="c2")
    assert "The name is also used in" in signed_in.get("/nodes/gx-02/?cluster=c1").content.decode()
    assert "Never blamed in 1 attempt." in signed_in.get("/nodes/gx-02/?cluster=c2").content.decode()


def test_a_node_nobody_knows_says_so(signed_in: Client, db: None) -> None:
    answer = signed_in.get("/nodes/nowhere/")
    assert answer.status_code == 404 and "No attempt is known that ran on nowhere" in answer.content.decode()
    assert signed_in.get("/nodes/?name=%00").status_code == 404


@pytest.mark.parametrize("name", ["a/../b", "..", "<b>\"x'", "q?x=1#y", "50%", "name with space"])
def test_any_name_has_an_address(name: str, signed_in: Client, now_and_then: MakeAttempt) -> None:
    now_and_then(nodes=(name, "gx-02"))
    answer = signed_in.get(node_url(name, "c1"))
    assert answer.status_code == 200
    assert "Never blamed in 1 attempt." in answer.content.decode()


def test_notes_are_kept_with_who_and_when_and_drained_is_shown(signed_in: Client, now_and_then: MakeAttempt) -> None:
    now_and_then()
    url = reverse("node", args=["gx-02"]) + "?cluster=c1"
    assert signed_in.post(url, {"action": "drain", "text": "Cable of GPU 3 <b>"}).status_code == 302
    page = signed_in.get("/nodes/gx-02/").content.decode()
    assert "Drained</span>" in page and "Ada Moreau" in page and "Cable of GPU 3 &lt;b&gt;" in page
    assert "Drained" in signed_in.get("/nodes/").content.decode()
    signed_in.post(url, {"action": "return", "text": ""})
    signed_in.post(url, {"action": "note", "text": "clean for an hour"})
    signed_in.post(url, {"action": "note", "text": "clean for an hour"})
    page = signed_in.get("/nodes/gx-02/").content.decode()
    assert "In service" in page and page.count("clean for an hour") == 1, "pressed twice, noted once"
    kinds = list(TimelineEvent.objects.exclude(node="").values_list("kind", flat=True))
    assert kinds == [EventKind.NODE_DRAINED, EventKind.NODE_RETURNED, EventKind.NODE_NOTED]
    assert signed_in.post(reverse("node", args=["other"]), {"action": "note", "text": "x"}).status_code == 404


def test_drained_by_mistake_is_taken_back(signed_in: Client, now_and_then: MakeAttempt) -> None:
    cluster = now_and_then().cluster
    url = reverse("node", args=["gx-02"]) + "?cluster=c1"
    shown = signed_in.post(url, {"action": "drain", "text": "wrong node"}, follow=True).content.decode()
    assert "Recorded as in service again" in undo(signed_in, shown) and not is_drained(cluster, "gx-02")
    assert "Not undone." in undo(signed_in, shown), "it is in service already"
    signed_in.post(url, {"action": "drain", "text": "this one"})
    shown = signed_in.post(url, {"action": "return", "text": ""}, follow=True).content.decode()
    assert "Recorded as drained again" in undo(signed_in, shown) and is_drained(cluster, "gx-02")


def test_draining_needs_a_reason_and_happens_once(ada: object, now_and_then: MakeAttempt) -> None:
    cluster = now_and_then().cluster
    with pytest.raises(NodeRefused, match="why"):
        drain(cluster, "gx-02", ada, "  ")  # type: ignore[arg-type]
    with pytest.raises(NodeRefused):
        add_note(cluster, "gx-02", ada, "")  # type: ignore[arg-type]
    assert drain(cluster, "gx-02", ada, "broken") and not drain(cluster, "gx-02", ada, "broken")  # type: ignore[arg-type]
    assert is_drained(cluster, "gx-02") and not is_drained(Cluster.objects.create(name="c9"), "gx-02")
    assert return_to_service(cluster, "gx-02", ada) and not return_to_service(cluster, "gx-02", ada)  # type: ignore[arg-type]


def test_the_fleets_order_prefers_many_failures_to_a_high_ratio() -> None:
    assert wilson(10, 100).low > wilson(1, 2).low * 0 and wilson(1, 2).low < wilson(20, 60).low
    assert standing(wilson(4, 61), wilson(31, 4118)) == Standing.WORSE
    assert standing(wilson(1, 61), wilson(31, 4118)) == Standing.UNCLEAR
    assert standing(wilson(0, 61), wilson(31, 4118)) == Standing.NEVER


def test_intervals_are_those_of_the_textbooks() -> None:
    four = wilson(4, 61)
    assert (round(four.low, 3), round(four.high, 3)) == (0.026, 0.157)
    assert (wilson(0, 10).low, wilson(10, 10).high) == (0.0, 1.0)
    low, high = poisson_interval(12)
    assert (round(low, 2), round(high, 2)) == (6.20, 20.96)
    assert poisson_interval(0) == (0.0, pytest.approx(3.689, abs=0.001))
    assert poisson_interval(400)[0] == pytest.approx(361.8, abs=0.3)
    between = time_between(12, 168)
    assert (between.hours, round(between.low, 1), round(between.high or 0, 1)) == (14.0, 8.0, 27.1)
    assert time_between(0, 168).high is None


@pytest.mark.django_db
def test_an_empty_fleet_is_no_error(signed_in: Client) -> None:
    assert fleet().total == 0
    assert "No nodes yet" in signed_in.get("/nodes/").content.decode()
