"""The page of one attempt."""

from __future__ import annotations

import json
import re
from datetime import timedelta

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from engine import model as engine
from tests.web import stories
from tests.web.conftest import MakeAttempt, diagnose_with
from triage.models import Attempt, Collection, CollectionState, TimelineEvent, TriageState
from triage.selectors.first_reports import first_reports
from triage.services.nodes import drain
from triage.services.verdicts import confirm


def page_of(client: Client, attempt: Attempt) -> str:
    answer = client.get(reverse("attempt", args=[attempt.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_verdict_comes_first_with_outcome_domain_nodes_and_advice(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    page = page_of(signed_in, make_attempt())
    verdict = page[page.index('<article class="verdict"') : page.index("</article>")]
    for words in (
        'data-domain="hardware"',
        "NVLink signal-integrity fault on gx-02 (Xid 149)",
        "Failed",
        "Restart without gx-02",
        'data-copy="--exclude=gx-02"',
        "gx-02/0000:61:00",
        "5 Oct 04:11:57 UTC",
        "10 m 34 s after it began",
        "76.0 GPU-hours lost",
        "4 nodes × 8 GPUs",
    ):
        assert words in verdict, words
    assert "javascript:" not in page, "only http addresses become links"


def test_every_cited_line_is_a_link_to_its_evidence(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    page = page_of(signed_in, attempt)
    for ref in ("e1", "e2", "e3", "e4", "e5"):
        assert f'<a class="ev" href="/attempts/{attempt.pk}/evidence/{ref}/"' in page
    assert not re.search(r">[^<]*\[e\d", page), "no bracket is left over"


def test_it_says_why_not_the_others_and_what_was_missing(signed_in: Client, make_attempt: MakeAttempt) -> None:
    page = page_of(signed_in, make_attempt())
    assert "Why not something else" in page and "The job made progress for 9 minutes after it" in page
    assert "no metrics were collected" in page and "Missing" in page
    assert "19 lines that report the failure and did not cause it" in page
    assert "ranks 24, 25, 27, 30, 31" in page


def test_the_timeline_is_a_picture_with_a_lane_a_node_and_a_table_beside_it(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    page = page_of(signed_in, make_attempt())
    begin = page.index('<svg class="fig timeline"')
    svg = page[begin : page.index("</svg>", begin)]
    assert [name for name in stories.NODES if f">{name}<" in svg] == list(stories.NODES)
    assert "Root: NVLink signal-integrity fault (Xid 149), 04:11:57" in svg
    assert "End, exit 134:0, 04:22:31" in svg
    assert svg.count('class="root"') == 1 and svg.count('class="sym"') == 2 and svg.count('class="warn"') == 1
    assert "10 m 4 s without progress" in svg
    assert "times wider" in svg, "the end of two hours is drawn on a scale of its own"
    assert "Timeline as a table, 7 events" in page


def test_the_map_shows_each_rank_by_its_first_error(signed_in: Client, make_attempt: MakeAttempt) -> None:
    page = page_of(signed_in, make_attempt())
    assert "32 ranks, 7 with a report of their own" in page
    assert "gx-04 GPU 0, rank 24: Collective timeout" in page
    assert "gx-01 GPU 0, rank 0: no report of its own" in page


def test_there_is_no_map_when_the_evidence_contradicts_its_layout(signed_in: Client, make_attempt: MakeAttempt) -> None:
    story = stories.nvlink()
    moved = stories._changed(
        story, evidence=(*story.evidence, stories.evidence("e6", "x.y", "applog/a.log", 1, "x", node="gx-01", rank=30))
    )
    assert "Each GPU by the first thing" not in page_of(signed_in, make_attempt(moved))


def test_an_attempt_without_a_cause_names_no_node_and_what_would_have_decided(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    page = page_of(signed_in, make_attempt(stories.no_cause()))
    assert "none to blame" in page
    assert "What was not there to decide" in page and "Metrics: missing. no metrics were collected" in page
    assert "What it could have been" in page


def test_attempts_of_a_workload_stand_in_one_strip(signed_in: Client, make_attempt: MakeAttempt) -> None:
    first = make_attempt(stories.key_error(), id="777")
    second = make_attempt(id="777", number=2)
    page = page_of(signed_in, second)
    strip = page[page.index('<ol class="strip">') : page.index("</ol>", page.index('<ol class="strip">'))]
    assert f'href="/attempts/{first.pk}/"' in strip and "Attempt 1: KeyError" in strip
    assert f'href="/attempts/{second.pk}/" aria-current="page"' in strip


def test_while_it_is_triaged_the_page_polls_and_without_script_reloads(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    attempt = make_attempt(None)
    page = page_of(signed_in, attempt)
    assert "Waiting for a worker" in page
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in page
    url = reverse("attempt-progress", args=[attempt.pk])
    assert f'hx-get="{url}"' in page
    first = signed_in.get(url, headers={"HX-Request": "true"})
    assert first.status_code == 200 and b"<html" not in first.content
    assert signed_in.get(url, headers={"HX-Request": "true", "If-None-Match": first["ETag"]}).status_code == 304
    diagnose_with(attempt, stories.nvlink())
    done = signed_in.get(url, headers={"HX-Request": "true", "If-None-Match": first["ETag"]})
    assert done.status_code == 204 and done["HX-Refresh"] == "true"
    assert signed_in.get(url).status_code == 302, "by hand it leads to the page"
    assert "http-equiv" not in page_of(signed_in, attempt)


def test_failed_triage_gives_the_reason_and_can_be_asked_for_again(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    attempt = make_attempt(None)
    Attempt.objects.filter(pk=attempt.pk).update(
        triage_state=TriageState.FAILED, triage_reason="syslog/gx-01.log: disk <full>"
    )
    page = page_of(signed_in, attempt)
    assert "syslog/gx-01.log: disk &lt;full&gt;" in page and "Try again" in page
    url = reverse("attempt-retry", args=[attempt.pk])
    assert signed_in.get(url).status_code == 405
    assert signed_in.post(url)["Location"] == reverse("attempt", args=[attempt.pk])
    attempt.refresh_from_db()
    assert attempt.triage_state == TriageState.PENDING
    assert TimelineEvent.objects.filter(attempt=attempt, kind="triage.requested").latest("id").actor.username == "ada"


def test_the_contract_can_be_downloaded_as_it_is(signed_in: Client, make_attempt: MakeAttempt) -> None:
    answer = signed_in.get(reverse("attempt-json", args=[make_attempt().pk]))
    assert answer["Content-Type"] == "application/json" and "attachment" in answer["Content-Disposition"]
    assert json.loads(answer.content) == json.loads(json.dumps(stories.nvlink().to_dict()))


def test_who_reported_first_stands_in_order_with_each_ranks_own_time(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    page = page_of(signed_in, make_attempt())
    order = page[page.index('<ol class="order">') : page.index("</ol>", page.index('<ol class="order">'))]
    assert re.findall(r"<li><span>(?:<time[^>]*>)?([^<]+)", order) == ["04:11:57", "+10 m 1 s", "+10 m 3 s"]
    assert "gx-02" in order and "<strong>root</strong>" in order
    assert "ranks 24, 25, 27, 30, 31" in order and "ranks 19, 22" in order


def test_a_ranks_first_report_is_told_by_its_own_line_or_its_nodes_and_not_by_the_first_rank_of_all() -> None:
    plain = stories.nvlink()
    early = engine.Symptom(
        rule="x.ops", title="Taken down", nodes=("gx-03", "gx-04"), ranks=(19, 22, 24), count=9,
        first_at=stories.at("04:21:59"), last_at=stories.at("04:22:09"), explained_by="root", evidence=(),
    )  # fmt: skip
    entries = tuple(
        engine.TimelineEntry(at=stories.at(clock), kind="teardown", node=node, title="Taken down", evidence=())
        for node, clock in (("gx-04", "04:21:59"), ("gx-03", "04:22:09"))
    )
    story = stories._changed(plain, symptoms=(early, *plain.symptoms), timeline=(*plain.timeline, *entries))
    reports = first_reports(story.to_dict())
    assert reports[19].title == reports[22].title == "InfiniBand completion, status 12"
    assert reports[24].title == "Collective timeout", "its own line came before"
    assert {rank for rank, report in reports.items() if report.is_root} == set(), "the root names no rank"


def test_rivals_that_one_reason_tells_apart_stand_as_one_with_what_would_decide(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    rival = stories.nvlink().candidates[0]
    changes = [
        {},
        {"nodes": ("gx-03",), "evidence": ("e3",)},
        {"not_root_because": "Another reason.", "evidence": ("e5",)},
    ]
    other = stories.struct(rival, rule="ib.link-down", domain="network", sub_domain="infiniband", title="Port down")
    many = tuple(stories.struct(rival, **change) for change in changes)
    page = page_of(signed_in, make_attempt(stories._changed(stories.nvlink(), candidates=(*many, other))))
    section = page[page.index('id="wn"') : page.index("</section>", page.index('id="wn"'))]
    assert section.count("<h3>Lustre client error") == 2 and "on gx-02, gx-03" in section and "2 places" in section
    assert "3 rivals" in section
    port = section[section.index("Port down") :]
    assert "<strong>Would decide:</strong> metrics, not read (no metrics were collected)." in port
    assert "subnet manager" in port, "what the rule says to look at"


def test_nothing_is_said_to_be_no_rival_when_no_cause_was_found(signed_in: Client, make_attempt: MakeAttempt) -> None:
    assert "what was read tells of consequences alone" in page_of(signed_in, make_attempt(stories.no_cause()))
    assert "Nothing else in the evidence could have ended" in page_of(signed_in, make_attempt(stories.key_error()))


def test_the_verdict_says_that_the_node_failed_before_and_whether_it_is_in_service(
    signed_in: Client, make_attempt: MakeAttempt, ada: User
) -> None:
    first = make_attempt(ended_at=stories.END - timedelta(days=2))
    assert "badge repeat" not in page_of(signed_in, first)
    second = make_attempt()
    drain(second.cluster, "gx-02", ada, "link 10")
    page = page_of(signed_in, second)
    verdict = page[page.index('<article class="verdict"') : page.index("</article>")]
    assert "2nd time on gx-02 in 7 days" in verdict and "drained since" in verdict


def test_the_rule_leads_to_its_page_with_how_often_it_was_right(
    signed_in: Client, make_attempt: MakeAttempt, ada: User
) -> None:
    attempt = make_attempt()
    assert "nobody has judged it yet" in page_of(signed_in, attempt)
    confirm(attempt.pk, ada, diagnosis_id=attempt.diagnosis_id)
    page = page_of(signed_in, attempt)
    assert 'href="/rules/xid.149/"' in page and 'href="/rules/cases/?rule=xid.149">right in 1 of 1</a>' in page
    assert f'href="/incidents/{attempt.membership.incident_id}/">{attempt.membership.incident.name}: ' in page
    assert 'data-copy="**NVLink signal-integrity fault on gx-02 (Xid 149)**' in page


def test_sources_are_asked_again_and_a_received_bundle_is_only_diagnosed_again(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    attempt = make_attempt()
    assert "Diagnose again" in page_of(signed_in, attempt)
    Collection.objects.create(attempt=attempt, connector="files", ref="spool:x", state=CollectionState.DONE)
    asked = Collection.objects.create(
        attempt=attempt, connector="c1/loki", ref="48213", state=CollectionState.DONE, tries=3, streams_done=4,
        reports=[{"source": "syslog", "status": "missing", "streams": 0}],
    )  # fmt: skip
    assert "Fetch again" in page_of(signed_in, attempt)
    assert signed_in.post(reverse("attempt-retry", args=[attempt.pk])).status_code == 302
    asked.refresh_from_db()
    assert (asked.state, asked.tries, asked.streams_done) == (CollectionState.PENDING, 0, 0)
    assert asked.reports, "what was said before is kept until there is better"
    assert attempt.collections.get(connector="files").state == CollectionState.DONE
    attempt.refresh_from_db()
    assert attempt.triage_state == TriageState.PENDING
    event = TimelineEvent.objects.filter(attempt=attempt, kind="triage.requested").latest("id")
    assert event.payload["reason"] == "sources asked again on the page" and event.actor.username == "ada"
    run = attempt.triage_run
    signed_in.post(reverse("attempt-retry", args=[attempt.pk]))
    attempt.refresh_from_db()
    assert attempt.triage_run == run, "pressed twice it is asked once"


def test_an_unknown_attempt_is_not_found_on_any_of_its_addresses(signed_in: Client, db: None) -> None:
    for path in ("", "evidence/e1/", "diagnosis.json", "diagnosis.md", "streams/syslog/a.log", "99999999999999999999/"):
        answer = signed_in.get(f"/attempts/99999999999999999999/{path}")
        assert answer.status_code == 404, path
    assert "There is nothing here" in answer.content.decode()


def test_pages_are_only_for_people_who_signed_in(client: Client, make_attempt: MakeAttempt) -> None:
    pk = make_attempt().pk
    for url in ("/", "/upload/", f"/attempts/{pk}/", f"/attempts/{pk}/evidence/e1/", f"/attempts/{pk}/diagnosis.json"):
        answer = client.get(url)
        assert answer.status_code == 302 and answer["Location"].startswith("/sign-in/?next="), url
    page = client.get(f"/sign-in/?next=/attempts/{pk}/").content.decode()
    assert f"You will return to <code>/attempts/{pk}/</code>" in page


def test_what_a_source_was_asked_is_a_link_into_grafana(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    link = "https://grafana.example.org/explore?schemaVersion=1&panes=%7B%22a%22%3A1%7D"
    reports = [
        {"source": "applog", "status": "ok", "link": link}, {"source": "applog", "status": "ok", "link": link},
        {"source": "metric", "status": "ok", "link": "javascript:alert(1)"}, {"source": "syslog", "status": "ok"},
    ]  # fmt: skip
    Collection.objects.create(attempt=attempt, connector="c1/loki", ref="x", state="done", reports=reports)
    page = signed_in.get(f"/attempts/{attempt.pk}/").content.decode()
    assert page.count(link.replace("&", "&amp;")) == 1 and "Job log (c1/loki)" in page
    assert "javascript:alert" not in page
