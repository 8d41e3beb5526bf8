"""The list of incidents, and one with all that people do with it."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from tests.web import stories
from tests.web.conftest import MakeAttempt
from triage.models import Attempt, Incident, NotTheSame, TimelineEvent
from triage.selectors.incidents import incident_detail
from triage.services.comments import add_comment
from triage.services.incidents import assign, link_ticket, rename, set_severity, set_status
from triage.services.nodes import drain
from triage.services.verdicts import confirm


def incident_of(attempt: Attempt) -> Incident:
    return Incident.objects.get(memberships__attempt=attempt)


def other_story(index: int = 1) -> object:
    return stories._changed(
        stories.key_error(), fingerprint=stories.engine.Fingerprint(key=f"{index:032x}", parts={}, version="1")
    )


def undo(client: Client, shown: str) -> str:
    """Presses the button that a page offers."""
    offer = re.search(r'name="offer" value="([^"]+)"', shown)
    assert offer, "nothing is offered"
    answer = client.post(reverse("undo"), {"offer": offer[1], "next": "/?q="}, follow=True)
    assert answer.status_code == 200
    return str(answer.content.decode())


def page_of(client: Client, incident: Incident, query: str = "") -> str:
    answer = client.get(reverse("incident", args=[incident.pk]) + query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_open_incidents_stand_in_the_list_the_last_to_fail_first(signed_in: Client, make_attempt: MakeAttempt) -> None:
    old = incident_of(make_attempt())
    new = incident_of(make_attempt(other_story(), ended_at=stories.later(1)))
    done = incident_of(make_attempt(other_story(2), ended_at=stories.later(2)))
    set_status(done.pk, User.objects.get(), "resolved", seen="new")
    page = signed_in.get("/incidents/").content.decode()
    assert re.findall(r'<tr id="i-(\d+)"', page) == [str(new.pk), str(old.pk)]
    assert "NVLink signal-integrity fault (Xid 149)" in page and ">gx-02</a>" in page and "76.0" in page
    assert re.findall(r'<tr id="i-(\d+)"', signed_in.get("/incidents/?view=resolved").content.decode()) == [
        str(done.pk)
    ]
    assert re.findall(r'<tr id="i-(\d+)"', signed_in.get("/incidents/?domain=hardware").content.decode()) == [
        str(old.pk)
    ]
    assert "Nothing is yours" in signed_in.get("/incidents/?view=mine").content.decode()
    assert signed_in.get("/incidents/?cursor=nonsense").status_code == 302


def test_the_list_goes_on_in_pages(
    signed_in: Client, make_attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triage.selectors.incident_lists.PAGE_SIZE", 2)
    wanted = [incident_of(make_attempt(other_story(index), ended_at=stories.later(-index))).pk for index in range(5)]
    seen, address = [], "/incidents/"
    while address:
        page = signed_in.get(address).content.decode()
        seen += [int(pk) for pk in re.findall(r'<tr id="i-(\d+)"', page)]
        older = re.search(r'href="(\?[^"]*)" rel="next"', page)
        address = "/incidents/" + older[1].replace("&amp;", "&") if older else ""
    assert seen == wanted


def listed(client: Client, query: str) -> list[int]:
    return [int(pk) for pk in re.findall(r'<tr id="i-(\d+)"', client.get(f"/incidents/{query}").content.decode())]


def test_the_list_is_narrowed_by_words_people_and_severity(signed_in: Client, make_attempt: MakeAttempt) -> None:
    ada, owen = User.objects.get(), User.objects.create_user("owen")
    gpu = incident_of(make_attempt())
    code = incident_of(make_attempt(other_story(), ended_at=stories.later(1)))
    set_severity(gpu.pk, ada, 2, seen=None)
    assign(gpu.pk, ada, owen.pk, seen=None)
    link_ticket(code.pk, ada, url="https://tickets.example.org/HW-7")
    for query, wanted in (
        ("?q=nvlink", [gpu.pk]),
        ("?q=NVLINK+fault", [gpu.pk]),
        (f"?q=inc-{code.pk}", [code.pk]),
        (f"?q={code.pk}", [code.pk]),
        ("?q=gx-02", [gpu.pk]),
        ("?q=xid.149", [gpu.pk]),
        ("?q=hw-7", [code.pk]),
        ("?q=100%25", []),
        (f"?assignee={owen.pk}", [gpu.pk]),
        ("?assignee=none", [code.pk]),
        ("?severity=2", [gpu.pk]),
        ("?severity=9", [code.pk]),
        ("?severity=7&assignee=x&sort=y&domain=z&view=w&q=%00", [code.pk, gpu.pk]),
        ("?view=mine&assignee=none", []),
    ):
        assert listed(signed_in, query) == wanted, query
    none = signed_in.get("/incidents/?q=nothing-like-it&severity=2").content.decode()
    assert "No incident matches" in none and "The same among the resolved" in none


@pytest.mark.parametrize("sort", ["last", "lost", "attempts", "severity"])
def test_every_order_goes_on_in_pages_without_loss(
    sort: str, signed_in: Client, make_attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triage.selectors.incident_lists.PAGE_SIZE", 2)
    ada = User.objects.get()
    for index in range(5):
        incident = incident_of(make_attempt(other_story(index), ended_at=stories.later(index // 2)))
        if index % 2:
            set_severity(incident.pk, ada, 1 + index // 2, seen=None)
    make_attempt(other_story(3))
    seen, address = [], f"?sort={sort}"
    while address:
        page = signed_in.get(f"/incidents/{address}").content.decode()
        seen += [int(pk) for pk in re.findall(r'<tr id="i-(\d+)"', page)]
        older = re.search(r'href="(\?[^"]*)" rel="next"', page)
        address = older[1].replace("&amp;", "&") if older else ""
    assert len(seen) == len(set(seen)) == 5
    rows = [Incident.objects.get(pk=pk) for pk in seen]
    keys = {
        "last": lambda row: -row.last_at.timestamp(),
        "lost": lambda row: -row.gpu_hours,
        "attempts": lambda row: -row.attempts_count,
        "severity": lambda row: row.severity or 9,
    }
    assert rows == sorted(rows, key=lambda row: (keys[sort](row), -row.pk))


def test_the_list_comes_as_csv_as_it_is_narrowed(signed_in: Client, make_attempt: MakeAttempt) -> None:
    gpu = incident_of(make_attempt())
    incident_of(make_attempt(other_story()))
    rename(gpu.pk, User.objects.get(), "=1+1")
    answer = signed_in.get("/incidents.csv?domain=hardware")
    (row,) = csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode()))  # type: ignore[arg-type]
    assert (row["incident"], row["title"], row["attempts"]) == (gpu.name, "'=1+1", "1")
    assert (row["nodes_blamed_most"], row["gpu_hours_lost"]) == ("gx-02", "76.009")


def test_what_fails_again_is_announced_and_moves_no_row(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    incident_of(make_attempt(other_story(), ended_at=stories.later(1)))
    page = signed_in.get("/incidents/").content.decode()
    url = re.search(r'id="poll" data-poll hx-get="([^"]+)"', page)
    assert url
    address = url[1].replace("&amp;", "&")
    quiet = signed_in.get(address, headers={"HX-Request": "true"})
    assert b"failed again" not in quiet.content
    same = signed_in.get(address, headers={"HX-Request": "true", "If-None-Match": quiet["ETag"]})
    assert same.status_code == 304
    make_attempt(ended_at=stories.later(2))
    news = signed_in.get(address, headers={"HX-Request": "true", "If-None-Match": quiet["ETag"]}).content.decode()
    assert "<span>1 failed again</span>" in news and "<tr" not in news
    assert signed_in.get(address)["Location"] == "/incidents/?"
    assert 'id="poll"' not in signed_in.get("/incidents/?sort=lost").content.decode(), "another order has no newest"


def test_somebody_takes_it_with_one_press(signed_in: Client, make_attempt: MakeAttempt) -> None:
    incident = incident_of(make_attempt())
    form = {"was_status": "new", "was_assignee": "", "was_severity": "", "was_title": incident.title}
    sent = {**form, "status": "new", "assignee": "", "severity": "", "title": incident.title, "take": "1"}
    shown = signed_in.post(reverse("incident-state", args=[incident.pk]), sent, follow=True).content.decode()
    assert "Saved: assignee." in shown and Incident.objects.get().assignee == User.objects.get()
    assert "Take it" not in shown


def test_figures_of_an_incident_lead_to_their_lists(signed_in: Client, make_attempt: MakeAttempt) -> None:
    incident = incident_of(make_attempt())
    make_attempt(name="vit-h", nodes=("gx-02", "gx-07"))
    page = page_of(signed_in, incident)
    links = dict(re.findall(r'<a class="plain" href="(/\?q=incident[^"]*)"[^>]*>([^<]+)</a>', page))
    counts = {url.replace("&amp;", "&"): int(text) for url, text in links.items() if text.isdecimal()}
    assert counts == {f"/?q=incident:{incident.name}": 2, f"/?q=incident:{incident.name}+node:gx-02+cluster:c1": 2}
    for url, count in counts.items():
        assert f'<p class="soft">{count} attempts match' in signed_in.get(url).content.decode(), url
    assert "What this is, and what to check next" in page and 'href="/rules/xid.149/"' in page
    assert "It does not prove:" in page


def test_the_page_says_why_they_are_the_same_and_what_it_hit(signed_in: Client, make_attempt: MakeAttempt) -> None:
    first = make_attempt()
    make_attempt(name="vit-h", user="priya")
    page = page_of(signed_in, incident_of(first))
    for words in (
        '<dt>Rule</dt><dd><a href="/rules/xid.149/">',
        "2</a><small>of 2 workloads</small>",
        "gx-02 2 times",
        "152.0",
        "vit-h",
        "Unconfirmed",
        f'href="/attempts/{first.pk}/"',
        "Opened by",
        "failed the same way on",
    ):
        assert words in page, words


def test_an_incident_of_very_many_shows_the_newest_of_them_and_says_so(
    signed_in: Client, make_attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = [
        make_attempt(name=f"job-{number}", ended_at=stories.END + timedelta(minutes=number)) for number in range(4)
    ]
    incident = Incident.objects.get()
    monkeypatch.setattr("triage.selectors.incidents.MAX_ATTEMPTS", 2)
    whole = incident_detail(incident.pk)
    assert (whole.among, whole.workload_count, whole.nodes[0].times) == (None, 4, 4)
    part = incident_detail(incident.pk, attempts=2, among=3)
    assert (part.among, part.workload_count, part.nodes[0].times) == (3, 3, 3)
    assert [row.pk for row in part.attempts] == [one.pk for one in attempts[:-3:-1]], "the newest, newest first"
    assert part.first_node == whole.first_node == "gx-02", "of the first of all"
    monkeypatch.setattr("triage.selectors.incidents.AMONG", 3)
    page = signed_in.get(f"/incidents/{incident.pk}/").content.decode()
    assert "4</a><small>of 3 workloads or more</small>" in page
    assert "the most frequent in the newest 3 attempts" in page


def test_the_timeline_shows_kinds_and_hides_system_events_at_first(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    attempt, ada = make_attempt(), User.objects.get()
    incident = incident_of(attempt)
    add_comment(attempt, ada, "seen on the **attempt**")
    add_comment(incident, ada, "seen on the incident")
    confirm(attempt.pk, ada, diagnosis_id=attempt.diagnosis_id)
    page = page_of(signed_in, incident)
    assert "seen on the <strong>attempt</strong>" in page and "seen on the incident" in page
    assert "Ada Moreau confirmed the diagnosis of" in page and "Opened by" in page
    assert "Triage requested" not in page and "System (" in page
    decisions = page_of(signed_in, incident, "?kind=decisions")
    assert "confirmed the diagnosis" in decisions and "seen on the" not in decisions and "Opened by" not in decisions
    assert "Triage requested" in page_of(signed_in, incident, "?kind=system")
    event = TimelineEvent.objects.get(kind="verdict.confirmed")
    assert f'id="t{event.pk}"' in page and f'href="#t{event.pk}"' in page, "each entry has an address"


def test_state_is_saved_and_what_somebody_else_changed_is_not_swept_aside(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    incident, owen = incident_of(make_attempt()), User.objects.create_user("owen")
    address = reverse("incident-state", args=[incident.pk])
    form = {"was_status": "new", "was_assignee": "", "was_severity": "", "was_title": incident.title}
    sent = {**form, "status": "investigating", "assignee": owen.pk, "severity": "2", "title": "Link 10"}
    assert "Saved: status, assignee, severity, title." in signed_in.post(address, sent, follow=True).content.decode()
    page = page_of(signed_in, incident)
    assert "Investigating" in page and "Severity 2" in page and "gave it to owen" in page and "Link 10" in page
    late = signed_in.post(address, {**form, "status": "resolved", "was_title": "Link 10"}, follow=True).content.decode()
    assert "Meanwhile the status became investigating. Yours was not saved." in late
    incident.refresh_from_db()
    assert incident.status == "investigating" and incident.assignee == owen


def test_merge_by_address_undo_and_split(signed_in: Client, make_attempt: MakeAttempt) -> None:
    one, two = make_attempt(), make_attempt(other_story())
    target, source = incident_of(one), incident_of(two)
    merging = reverse("incident-merge", args=[target.pk])
    for nonsense in ("", "INC-", f"INC-{target.pk}", "999999"):
        assert signed_in.post(merging, {"other": nonsense}).status_code == 302
    assert incident_of(two) == source
    signed_in.post(merging, {"other": f"http://testserver/incidents/{source.pk}/"})
    page = page_of(signed_in, target)
    assert f"merged INC-{source.pk} into this incident" in page and f"Undo the merge of INC-{source.pk}" in page
    moved = signed_in.get(reverse("incident", args=[source.pk]), follow=True)
    assert moved.redirect_chain[-1][0] == reverse("incident", args=[target.pk])
    signed_in.post(reverse("incident-unmerge", args=[source.pk]))
    assert incident_of(two) == source
    three = make_attempt()
    answer = signed_in.post(
        reverse("incident-split", args=[target.pk]), {"attempt": [three.pk], "title": "Other cable"}, follow=True
    )
    assert "Other cable" in answer.content.decode() and incident_of(three) != target
    refused = signed_in.post(reverse("incident-split", args=[target.pk]), {}, follow=True).content.decode()
    assert "Choose the attempts to split off." in refused


def test_what_was_done_to_an_incident_can_be_undone_from_the_next_page(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    one, two, three = make_attempt(), make_attempt(other_story()), make_attempt()
    target, source = incident_of(one), incident_of(two)
    set_status(target.pk, User.objects.get(username="ada"), "resolved", seen="new")
    Incident.objects.filter(pk=target.pk).update(status="regressed")  # as the failure's return does
    target.refresh_from_db()

    def post(name: str, **sent: object) -> str:
        answer = signed_in.post(reverse(f"incident-{name}", args=[target.pk]), sent, follow=True)
        return str(answer.content.decode())

    form = {"was_status": "regressed", "was_assignee": "", "was_severity": "", "was_title": target.title}
    shown = post("state", **form, status="mitigated", assignee=User.objects.get().pk, severity="1", title="Cable")
    assert "As before: status, assignee, severity, title." in undo(signed_in, shown)
    now = Incident.objects.get(pk=target.pk)
    assert (now.status, now.assignee, now.severity, now.title) == ("regressed", None, None, target.title)
    shown = post("state", **form, severity="3")
    set_severity(target.pk, User.objects.get(), 4, seen=3)
    assert "Not undone. Meanwhile somebody else set the severity." in undo(signed_in, shown)

    assert f"INC-{source.pk} stands on its own again." in undo(signed_in, post("merge", other=source.pk))
    assert incident_of(two) == source
    assert f"is part of INC-{target.pk} again" in undo(signed_in, post("split", attempt=[three.pk]))
    assert incident_of(three) == target
    shown = post("not-the-same", other=source.pk)
    assert (
        "can be proposed here again" in undo(signed_in, shown) and not NotTheSame.objects.filter(high=source).exists()
    )
    post("ticket", url="https://tickets.example.org/HW-1", note="cable")
    ticket = target.tickets.get()
    shown = signed_in.post(reverse("ticket-remove", args=[ticket.pk]), follow=True).content.decode()
    assert "HW-1 is linked again." in undo(signed_in, shown)
    assert target.tickets.get().note == "cable"


def test_what_looks_related_is_proposed_until_somebody_says_no(signed_in: Client, make_attempt: MakeAttempt) -> None:
    one = incident_of(make_attempt())
    alike = stories._changed(
        stories.nvlink(), fingerprint=stories.engine.Fingerprint(key="a" * 32, parts={}, version="1")
    )
    two = incident_of(make_attempt(alike))
    assert "Looks related" in page_of(signed_in, one) and f"Merge INC-{two.pk} into this" in page_of(signed_in, one)
    signed_in.post(reverse("incident-not-the-same", args=[one.pk]), {"other": two.pk})
    assert "Looks related" not in page_of(signed_in, one) and "Looks related" not in page_of(signed_in, two)


def test_tickets_are_linked_and_taken_away(signed_in: Client, make_attempt: MakeAttempt) -> None:
    incident = incident_of(make_attempt())
    address = reverse("incident-ticket", args=[incident.pk])
    signed_in.post(address, {"url": "https://tickets.example.org/browse/HW-2291", "note": "new cable"})
    page = page_of(signed_in, incident)
    assert '<a href="https://tickets.example.org/browse/HW-2291" rel="noreferrer">HW-2291</a> new cable' in page
    refused = signed_in.post(address, {"url": "javascript:alert(1)"}, follow=True).content.decode()
    assert "begins with https://" in refused and "javascript:" not in refused
    signed_in.post(reverse("ticket-remove", args=[incident.tickets.get().pk]))
    assert not incident.tickets.exists()


def test_the_report_is_drafted_from_the_timeline(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt, ada = make_attempt(), User.objects.get()
    incident = incident_of(attempt)
    add_comment(incident, ada, "Drained it.\n\n<script>alert(1)</script>")
    answer = signed_in.get(reverse("incident-report-markdown", args=[incident.pk]))
    text = answer.content.decode()
    assert (
        answer["Content-Type"].startswith("text/markdown") and f"INC-{incident.pk}.md" in answer["Content-Disposition"]
    )
    for words in ("## What happened", "opened by", "Ada Moreau wrote", "Drained it", "NETIR_LINK_EVT", "76.0"):
        assert words in text, words
    page = signed_in.get(reverse("incident-report", args=[incident.pk])).content.decode()
    assert "<h2>What happened</h2>" in page and "&lt;script&gt;alert(1)" in page and "<script>alert" not in page


def test_the_timeline_renews_itself_and_answers_304_when_nothing_happened(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    incident = incident_of(make_attempt())
    address = reverse("incident-timeline", args=[incident.pk])
    htmx = {"HX-Request": "true"}
    first = signed_in.get(address, headers=htmx)
    assert signed_in.get(address, headers={**htmx, "If-None-Match": first["ETag"]}).status_code == 304
    add_comment(incident, User.objects.get(), "news")
    second = signed_in.get(address, headers={**htmx, "If-None-Match": first["ETag"]})
    assert second.status_code == 200 and "news" in second.content.decode()
    assert signed_in.get(address).status_code == 302, "a fragment that is opened by hand leads to its page"


def test_what_was_done_to_its_nodes_stands_in_the_timeline(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt, ada = make_attempt(), User.objects.get()
    drain(attempt.cluster, "gx-02", ada, "link 10 again")
    drain(attempt.cluster, "gx-01", ada, "for another reason")
    page = page_of(signed_in, incident_of(attempt))
    assert "Ada Moreau drained" in page and "link 10 again" in page and "<td>drained</td>" in page
    assert "for another reason" not in page, "gx-01 is not blamed"


def test_signed_out_nothing_of_an_incident_is_seen(client: Client, make_attempt: MakeAttempt) -> None:
    incident = incident_of(make_attempt())
    for name in ("incident", "incident-timeline", "incident-report", "incident-report-markdown", "incident-share"):
        assert "/sign-in/" in client.get(reverse(name, args=[incident.pk]))["Location"]
    for name in ("state", "merge", "unmerge", "split", "not-the-same", "ticket", "comment"):
        assert "/sign-in/" in client.post(reverse(f"incident-{name}", args=[incident.pk]))["Location"]
    assert TimelineEvent.objects.filter(incident=incident).count() == 1


def test_an_attempt_that_comes_later_stands_in_both_records(signed_in: Client, make_attempt: MakeAttempt) -> None:
    incident, later = incident_of(make_attempt()), make_attempt(ended_at=stories.END + timedelta(days=1))
    page = signed_in.get(reverse("attempt", args=[later.pk])).content.decode()
    assert "Joined" in page and incident.name in page and "2 alike" in page
