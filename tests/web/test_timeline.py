"""The timeline: zoomed, filtered, by node or by rank; with and without script."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from engine import model as engine
from tests.web import stories
from tests.web.conftest import MakeAttempt
from triage.models import Attempt
from triage.selectors.timeline import View, picture
from triage.selectors.timeline_axis import Axis, ticks
from triage.selectors.timeline_events import KINDS
from triage.times import parse

HTMX = {"HX-Request": "true"}


def contract(story: engine.Diagnosis | None = None, **changes: Any) -> dict[str, Any]:
    return (stories._changed(story or stories.nvlink(), **changes)).to_dict()


def epoch(clock: str) -> float:
    moment = parse(stories.at(clock))
    assert moment is not None
    return moment.timestamp()


def drawn(view: View = View(), story: dict[str, Any] | None = None) -> Any:  # noqa: B008
    made = picture(story or contract(), view)
    assert made is not None
    return made


def marks(made: Any) -> dict[str, list[str]]:
    return {lane.name: [mark.shape for mark in lane.marks] for lane in made.lanes}


def section(client: Client, attempt: Attempt, query: str = "", **headers: str) -> str:
    url = reverse("attempt-timeline" if headers else "attempt", args=[attempt.pk])
    answer = client.get(url + query, headers=headers)
    assert answer.status_code == 200
    page = answer.content.decode()
    begin = page.index('<section class="section" id="timeline"')
    return page[begin : page.index("</section>", begin)]


def test_a_part_of_the_time_has_one_scale_and_only_its_own_marks() -> None:
    made = drawn(View(first=epoch("04:21:00"), last=epoch("04:23:00")))
    assert made.axis.turn is None and made.breaks == () and made.root is None
    assert marks(made) == {"gx-01": [], "gx-02": [], "gx-03": ["sym"], "gx-04": ["sym"]}
    assert made.end is not None, "the end lies in it"
    assert [row.title for row in made.rows] == [
        "Collective timeout",
        "InfiniBand status 12",
        "Attempt ends, exit 134:0",
    ]


def test_zoomed_in_what_was_one_mark_becomes_two() -> None:
    near = tuple(
        engine.TimelineEntry(at=stories.at(f"04:21:58.{ms}"), kind="symptom", node="gx-04", title=f"s{ms}", evidence=())
        for ms in (310, 900)
    )
    story = contract(timeline=(*stories.nvlink().timeline, *near))
    assert marks(drawn(story=story))["gx-04"].count("sym") == 1
    part = drawn(View(first=epoch("04:21:58"), last=epoch("04:21:59")), story)
    assert marks(part)["gx-04"].count("sym") == 2
    assert "04:21:58.2" in [tick.text for tick in part.ticks]


def test_kinds_can_be_left_out_and_are_counted_all_the_same() -> None:
    made = drawn(View(kinds=frozenset({"cause"})))
    assert {shape for shapes in marks(made).values() for shape in shapes} == {"root", "warn"}
    assert made.counts == {"cause": 2, "symptom": 2, "progress": 1}
    assert made.root is not None and made.end is not None, "root and end stand whatever is shown"
    assert made.stall is None, "nothing is said of progress that is hidden"


def test_lanes_by_rank_show_each_rank_with_a_report_and_what_has_none_apart() -> None:
    made = drawn(View(by_rank=True))
    shown = marks(made)
    assert [name for name in shown if name != "no rank"] == [f"rank {n}" for n in (19, 22, 24, 25, 27, 30, 31)]
    assert shown["rank 24"] == ["sym"] and shown["rank 27"] == ["sym"]
    spread = next(lane for lane in made.lanes if lane.name == "rank 27").marks[0]
    assert "04:21:58 or later Collective timeout" in spread.text, "rank 27 has no line of its own"
    assert "root" in shown["no rank"], "nobody knows the rank of the GPU that failed"


def test_a_line_that_the_reasoning_names_is_more_than_context() -> None:
    plain = stories.nvlink()
    entry = engine.TimelineEntry(at=stories.at("04:02:20"), kind="context", node="gx-02", title="x", evidence=("e4",))
    others = tuple(e for e in plain.timeline if "e4" not in e.evidence)
    assert marks(drawn(story=contract(timeline=(*others, entry), candidates=())))["gx-02"][0] == "ctx"
    said = (*plain.reasoning, "It points the same way [e3, e4].")
    assert marks(drawn(story=contract(timeline=(*others, entry), candidates=(), reasoning=said)))["gx-02"][0] == "warn"
    quoted = (*plain.reasoning, "The log says e4.")
    assert marks(drawn(story=contract(timeline=(*others, entry), candidates=(), reasoning=quoted)))["gx-02"][0] == "ctx"


def test_kept_lines_beside_the_entries_are_marks_too() -> None:
    plain = stories.nvlink()
    more = stories.evidence(
        "e6", "nccl.watchdog-timeout", "applog/gx-01.log", 9, "t", at=stories.at("04:21:59"), node="gx-01", rank=3
    )
    symptoms = (stories.struct(plain.symptoms[0], evidence=("e2", "e6")), plain.symptoms[1])
    made = drawn(story=contract(evidence=(*plain.evidence, more), symptoms=symptoms))
    assert marks(made)["gx-01"] == ["sym"]
    assert made.lanes[0].marks[0].evidence == "e6"


def test_many_lanes_come_in_pages_the_weighty_ones_first() -> None:
    nodes = [f"n{number:03}" for number in range(40)]
    facts = stories.nvlink().attempt | {"nodes": [*nodes, "gx-02", "gx-03", "gx-04"]}
    story = contract(attempt=facts)
    first = drawn(story=story)
    assert (first.lanes_total, first.page, first.pages) == (43, 1, 4)
    assert {"gx-02", "gx-03", "gx-04"} <= {lane.name for lane in first.lanes}
    seen = {lane.name for page in range(1, 5) for lane in drawn(View(page=page), story).lanes}
    assert seen == {*nodes, "gx-02", "gx-03", "gx-04"}, "no lane is out of reach"
    named = drawn(View(only="N03, gx-02"), story)
    assert [lane.name for lane in named.lanes] == [*[f"n03{n}" for n in range(10)], "gx-02"]
    assert {row.node for row in named.rows} == {"gx-02"}
    assert [lane.name for lane in drawn(View(by_rank=True, only="24-25 31"), story).lanes] == [
        "rank 24",
        "rank 25",
        "rank 31",
    ]


@pytest.mark.parametrize("span", [0.5, 3, 60, 3600, 86400 * 3, 86400 * 500])
def test_ticks_stand_at_round_moments_and_never_on_each_other(span: float) -> None:
    axis = Axis(epoch("04:00:00.123"), epoch("04:00:00.123") + span)
    places = [float(tick.x) for tick in ticks(axis)]
    assert 2 <= len(places) <= 14
    assert all(later - earlier >= 60 for earlier, later in pairwise(places))


def test_the_fragment_is_the_pages_own_section_and_its_address_stays_out_of_the_history(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    attempt = make_attempt()
    query = "?by=rank&show=&show=symptom&from=04:21&to=04:22:31&only=24"
    url = reverse("attempt-timeline", args=[attempt.pk]) + query
    answer = signed_in.get(url, headers=HTMX)
    assert answer.headers["HX-Push-Url"].startswith(f"/attempts/{attempt.pk}/?by=rank")
    usual = url + "".join(f"&show={kind}" for kind in KINDS)
    plain = signed_in.get(usual.replace("by=rank", "by=node").replace("only=24", "only="), headers=HTMX)
    assert plain.headers["HX-Push-Url"] == f"/attempts/{attempt.pk}/?from=04%3A21&to=04%3A22%3A31"
    assert "HX-Request" in answer.headers["Vary"]
    assert section(signed_in, attempt, query, **HTMX) == section(signed_in, attempt, query)
    assert signed_in.get(url)["Location"].startswith(f"/attempts/{attempt.pk}/?by=rank"), "by hand it leads to the page"


def test_without_script_every_step_is_a_link_or_a_form_that_loses_nothing(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    shown = section(signed_in, make_attempt(), "?quote=syslog/gx-02.log:1&by=rank")
    ways = dict(re.findall(r'id="tl-(in|out|whole|failure|earlier|later)" href="([^"]+)"', shown))
    assert set(ways) == {"in", "whole", "failure"}
    assert all("quote=syslog" in way and "by=rank" in way and way.endswith("#timeline") for way in ways.values())
    assert '<input type="hidden" name="quote" value="syslog/gx-02.log:1">' in shown
    assert 'action="/attempts/' in shown and 'value="rank" selected' in shown
    zoomed = section(
        signed_in,
        Attempt.objects.get(),
        ways["failure"].replace("&amp;", "&").partition("?")[2].join(["?", ""]).partition("#")[0],
    )
    assert 'id="tl-failure"' in zoomed and 'aria-current="true"' in zoomed
    assert {"out", "earlier", "later"} <= set(re.findall(r'id="tl-(\w+)"', zoomed))


def test_zooming_out_ends_at_the_whole(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    query = "?from=2026-10-05T04:00:00Z&to=2026-10-05T04:20:00Z"
    for _ in range(8):
        way = re.search(r'id="tl-out" href="[^"?]*(\?[^"#]*)', section(signed_in, attempt, query))
        if way is None:
            break
        query = way[1].replace("&amp;", "&")
    assert query == "?"


@pytest.mark.parametrize(
    "query",
    [
        "?from=never&to=%00",
        "?from=0001-01-01&to=9999-12-31T23:59:59Z",
        "?from=04:22&to=04:11",
        "?by=%27&show=nonsense&lanes=99999&only=%3Cscript%3E",
        "?lanes=-1&only=" + "x" * 500,
        "?by=rank&only=999999999-0",
    ],
)
def test_what_can_not_be_understood_is_said_or_put_right(
    query: str, signed_in: Client, make_attempt: MakeAttempt
) -> None:
    shown = section(signed_in, make_attempt(), query)
    assert "<script>" not in shown
    if "never" in query:
        assert "“never” is no time." in shown and 'aria-invalid="true"' in shown
    if "from=04:22" in query:
        assert 'name="from" type="text" value="2026-10-05 04:11:00"' in shown, "turned round"


def test_the_plots_follow_the_part_of_the_timeline(signed_in: Client, make_attempt: MakeAttempt) -> None:
    url = reverse("attempt-metrics-data", args=[make_attempt().pk])
    whole, part = signed_in.get(url).json(), signed_in.get(url + "?from=04:11:30&to=04:12:30").json()
    assert whole["axis"]["turn"] is not None and part["axis"]["turn"] is None
    assert part["axis"]["end"] - part["axis"]["start"] == 60
    assert [event["kind"] for event in part["events"]] == ["root"]
    assert part["events"][0]["evidence"] == "e1" and part["evidence"].endswith("/evidence/")


def test_a_diagnosis_without_any_time_has_its_table_alone(signed_in: Client, make_attempt: MakeAttempt) -> None:
    plain = stories.nvlink()
    bare = stories._changed(
        plain,
        timeline=(engine.TimelineEntry(at=None, kind="symptom", node="gx-03", title="no time", evidence=()),),
        evidence=tuple(stories.struct(item, at=None) for item in plain.evidence),
        symptoms=(),
    )
    shown = section(signed_in, make_attempt(bare))
    assert "<svg" not in shown and "no time" in shown and "1 event" in shown
    assert signed_in.get(reverse("attempt-metrics-data", args=[Attempt.objects.get().pk])).status_code == 404


def test_every_kind_has_a_name_and_a_box(signed_in: Client, make_attempt: MakeAttempt) -> None:
    shown = section(signed_in, make_attempt(), "?show=&show=cause")
    boxes = re.findall(r'name="show" value="(\w+)"( checked)?', shown)
    assert [name for name, _ in boxes] == list(KINDS)
    assert [name for name, on in boxes if on] == ["cause"]


def test_ten_thousand_ranks_and_symptoms_stay_a_small_page(signed_in: Client, make_attempt: MakeAttempt) -> None:
    many = tuple(
        engine.Symptom(
            rule=f"x.s{n}", title=f"symptom {n}", nodes=(), ranks=tuple(range(n, n + 50)), count=1,
            first_at=stories.at("04:21:58"), last_at=None, explained_by="root", evidence=("e2",),
        )
        for n in range(10_000)
    )  # fmt: skip
    attempt = make_attempt(stories._changed(stories.nvlink(), symptoms=many))
    assert len(section(signed_in, attempt, "?by=rank", **HTMX)) < 200_000
