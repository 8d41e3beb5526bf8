"""The list as a place to work: search, repeats, orders, views, many at once, files."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.web import stories
from tests.web.conftest import MakeAttempt
from tests.web.test_failures import titles
from tests.web.test_incidents import other_story, undo
from triage.models import Attempt, Incident, Membership, SavedView, TriageState, Verdict, VerdictStatus
from triage.selectors import suggestions
from triage.selectors.repeats import repeats
from triage.selectors.suggestions import suggest
from triage.services import bulk
from triage.services.incidents import assign
from triage.web import inbox


def page(client: Client, query: str = "?q=") -> str:
    answer = client.get(f"/{query}")
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_the_boxes_and_the_search_box_are_one_truth(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    make_attempt(stories.key_error(), user="ben")
    shown = page(signed_in, "?q=llama&domain=hardware&user=ada")
    assert 'value="llama domain:hardware user:ada"' in shown, "what the boxes say stands in the search box"
    assert re.search(r'name="domain" value="hardware" checked', shown)
    assert '<input type="hidden" name="q" value="llama">' in shown, "the form of the boxes carries the rest"
    assert titles(signed_in, "?q=domain:hardware+-user:ben") == titles(signed_in, "?domain=hardware")
    assert titles(signed_in, "?q=-domain:hardware") == ["KeyError: &#x27;input_ids&#x27; in collate_fn"]


def test_a_search_that_is_not_understood_lists_nothing_and_names_the_word(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    make_attempt()
    shown = page(signed_in, "?q=domain:hardwear+user:ada")
    assert 'role="alert"' in shown and "domain:hardwear: there is no such value. Did you mean hardware?" in shown
    assert "<tr" not in shown and 'aria-invalid="true"' in shown
    assert 'value="domain:hardwear user:ada"' in shown, "what was written stays"
    assert 'href="/?q=user:ada"' in shown


def test_the_head_says_how_many_wait_and_what_they_cost(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    make_attempt(stories.key_error(), ended_at=stories.later(1))
    assert "2 attempts, 2 waiting for a person, " in page(signed_in)
    assert "76.0 GPU-hours lost" in page(signed_in, "?q=domain:hardware")


def test_a_row_says_that_its_node_was_to_blame_before(signed_in: Client, make_attempt: MakeAttempt) -> None:
    for days in (0, 2, 4):
        make_attempt(ended_at=stories.later(days))
    make_attempt(ended_at=stories.later(20))
    shown = page(signed_in)
    assert shown.count("badge repeat") == 3, "not the first one"
    assert "3rd time on gx-02 in 7 days" in shown and "2nd time on gx-02 in 7 days" in shown
    assert "4th time on gx-02 in 30 days" in shown, "16 days after the one before"
    assert 'href="/nodes/gx-02/?cluster=c1"' in shown


def test_a_node_of_the_same_name_elsewhere_is_another_node(make_attempt: MakeAttempt) -> None:
    make_attempt()
    other = make_attempt(ended_at=stories.later(1), cluster="c2")
    with CaptureQueriesContext(connection) as seen:
        assert repeats([other]) == {}
    assert len(seen) == 1


def test_the_list_can_begin_with_the_costliest_or_the_oldest(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt(stories.key_error(), ended_at=stories.START + timedelta(minutes=5))
    make_attempt(stories.nvlink(), ended_at=stories.END)
    make_attempt(stories.no_cause(), ended_at=stories.START + timedelta(hours=1))
    first = [title[:6] for title in titles(signed_in, "?q=&sort=lost")]
    assert first == ["NVLink", "No cau", "KeyErr"]
    assert [title[:6] for title in titles(signed_in, "?q=&sort=oldest")] == ["KeyErr", "No cau", "NVLink"]


@pytest.mark.parametrize("sort", ["lost", "oldest"])
def test_pages_of_every_order_lose_nothing(signed_in: Client, make_attempt: MakeAttempt, sort: str) -> None:
    for number in range(53):
        make_attempt(None, ended_at=stories.END + timedelta(minutes=number // 4))
    seen: list[str] = []
    address = f"/?q=&sort={sort}"
    while address:
        shown = signed_in.get(address).content.decode()
        seen += re.findall(r'<tr id="a-(\d+)"', shown)
        older = re.search(r'<a href="([^"]+)" rel="next">', shown)
        address = older.group(1).replace("&amp;", "&") if older else ""
    assert len(seen) == len(set(seen)) == 53
    assert signed_in.get(f"/?q=&sort=newest&cursor={older}").status_code == 302


def test_columns_are_chosen_in_the_address(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    assert "2 h 22 m" not in page(signed_in)
    shown = page(signed_in, "?q=&cols=ran&cols=outcome&cols=nonsense")
    assert "2 h 22 m" in shown and "exit 134:0" in shown
    assert '<th scope="col">Queue</th>' in page(signed_in, "?q=&cols=queue,rule") and "xid.149" in page(
        signed_in, "?q=&cols=queue,rule"
    )


# --- saved views ------------------------------------------------------------------------------------------------------


def save(client: Client, name: str, search: str, **more: str) -> str:
    answer = client.post(reverse("view-save"), {"name": name, "search": search, "audience": "me", **more})
    assert answer.status_code == 302
    return str(answer["Location"])


def test_a_view_is_saved_opened_and_deleted_with_undo(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    where = save(signed_in, "My GPUs", "q=domain:hardware&sort=lost&cols=ran")
    assert where == "/?q=domain:hardware&sort=lost&cols=ran"
    assert re.search(r'<a href="[^"]+" aria-current="true">My GPUs <', page(signed_in, where[1:]))
    view = SavedView.objects.get()
    signed_in.post(reverse("view-delete", args=[view.pk]))
    after = signed_in.get(reverse("saved-views")).content.decode()
    assert "Deleted My GPUs" in after and "No views yet" in after
    assert "The view is as it was." in undo(signed_in, after)
    assert re.search(r'<a href="[^"]+" aria-current="true">My GPUs <', page(signed_in, where[1:]))
    save(signed_in, "My GPUs", "q=user:ada")
    undo(signed_in, page(signed_in))
    assert SavedView.objects.get().query == "domain:hardware", "what a view held before it was replaced"


def test_each_view_says_how_many_match(
    signed_in: Client, ada: User, make_attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("ada", "ben", "ben"):
        make_attempt(user=user)
    save(signed_in, "Ben's", "q=user:ben")
    save(signed_in, "Outdated", "q=user:ben&cols=ran")
    SavedView.objects.filter(name="Outdated").update(query="domain:gone")
    shown = page(signed_in)
    assert re.search(r'aria-current="true">All failures <span class="n">3</span></a>', shown)
    assert re.search(r'>Ben&#x27;s <span class="n">2</span></a>', shown)
    assert ">Outdated</a>" in shown, "a search that is not understood any more is not counted"
    monkeypatch.setattr(inbox, "MANY", 2)
    shown = page(signed_in)
    assert '>Ben&#x27;s <span class="n">2+</span></a>' in shown, "counted no further"
    assert '>All failures <span class="n">3</span></a>' in shown, "the open one is counted whole"


def test_the_list_opens_with_the_view_that_somebody_chose(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    save(signed_in, "mine", "q=domain:network", default="on")
    answer = signed_in.get("/")
    assert answer.status_code == 302 and answer["Location"] == "/?q=domain:network"
    assert "NVLink" in page(signed_in, "?q="), "everything is one click away"
    signed_in.post(reverse("view-default"), {"view": ""})
    assert signed_in.get("/").status_code == 200


def test_a_team_shares_its_views_and_which_one_opens_its_lists(signed_in: Client, ada: User) -> None:
    team = Group.objects.create(name="Pre-training")
    ben, eve = User.objects.create_user("ben"), User.objects.create_user("eve")
    for person in (ada, ben):
        person.groups.add(team)
    save(signed_in, "Ours", "q=queue:pretrain", audience=f"team:{team.pk}")
    view = SavedView.objects.get()
    mate, stranger = Client(), Client()
    mate.force_login(ben)
    stranger.force_login(eve)
    shared = {"name": "Night shift", "audience": f"team:{team.pk}"}
    assert (
        "not yours to change"
        in stranger.post(reverse("view-change", args=[view.pk]), shared, follow=True).content.decode()
    )
    stranger.post(reverse("view-for-team", args=[view.pk]), {"opens": "1"})
    stranger.post(reverse("view-delete", args=[view.pk]))
    assert SavedView.objects.get().deleted_at is None and mate.get("/").status_code == 200
    mate.post(reverse("view-change", args=[view.pk]), shared)
    assert SavedView.objects.get().name == "Night shift"
    taken = mate.post(reverse("view-change", args=[view.pk]), {"name": "Mine", "audience": "me"}, follow=True)
    assert "Only who made it says who sees it." in taken.content.decode()
    mate.post(reverse("view-for-team", args=[view.pk]), {"opens": "1"})
    assert signed_in.get("/")["Location"] == mate.get("/")["Location"] == "/?q=queue:pretrain"
    assert stranger.get("/").status_code == 200
    mate.post(reverse("view-default"), {"view": ""})
    assert mate.get("/").status_code == 200 and signed_in.get("/").status_code == 302, "who chose all sees all"
    gone = mate.post(reverse("view-delete", args=[view.pk]), follow=True).content.decode()
    assert signed_in.get("/").status_code == 200
    undo(mate, gone)
    assert signed_in.get("/").status_code == 302, "brought back, it opens the lists again"


def test_one_view_opens_the_lists_of_a_team(signed_in: Client, ada: User) -> None:
    team = Group.objects.create(name="Pre-training")
    ada.groups.add(team)
    for name in ("one", "two"):
        save(signed_in, name, f"q={name}", audience=f"team:{team.pk}")
        pk = SavedView.objects.get(name=name).pk
        signed_in.post(reverse("view-for-team", args=[pk]), {"opens": "1"})
    assert signed_in.get("/")["Location"] == "/?q=two"
    signed_in.post(reverse("view-change", args=[pk]), {"name": "two", "audience": "me"})
    assert signed_in.get("/").status_code == 200, "a view that is the team's no more opens nothing for it"


def test_views_are_seen_by_whom_they_are_meant_for(signed_in: Client, ada: User, client: Client) -> None:
    team = Group.objects.create(name="Pre-training")
    ada.groups.add(team)
    save(signed_in, "private", "q=a")
    save(signed_in, "for the team", "q=b", audience=f"team:{team.pk}")
    save(signed_in, "for all", "q=c", audience="all")
    mate = User.objects.create_user("mate")
    mate.groups.add(team)
    for person, wanted in ((mate, {"for the team", "for all"}), (User.objects.create_user("other"), {"for all"})):
        other = Client()
        other.force_login(person)
        shown = other.get("/?q=").content.decode()
        assert {name for name in ("private", "for the team", "for all") if f">{name} <" in shown} == wanted
        view = SavedView.objects.get(name="private")
        other.post(reverse("view-delete", args=[view.pk]))
        other.post(reverse("view-default"), {"view": view.pk})
        assert SavedView.objects.filter(pk=view.pk).exists() and other.get("/").status_code == 200


def test_a_view_that_cant_be_kept_says_why(signed_in: Client, db: None) -> None:
    stranger = Group.objects.create(name="not mine")
    for name, search, audience, says in (
        ("", "q=a", "me", "Give the view a name."),
        ("x", "q=domain:nonsense", "me", "there is no such value"),
        ("x", "q=a", f"team:{stranger.pk}", "Choose one of your teams."),
        ("x", "q=a", "the world", "Choose who sees it."),
    ):
        save(signed_in, name, search, audience=audience)
        assert says in page(signed_in)
    assert not SavedView.objects.exists()


# --- many at once -----------------------------------------------------------------------------------------------------


def act(client: Client, action: str, search: str = "q=", **more: object) -> str:
    answer = client.post(reverse("failures-bulk"), {"action": action, "search": search, **more}, follow=True)
    return str(answer.content.decode())


def test_picked_rows_are_confirmed_and_it_can_be_undone(signed_in: Client, make_attempt: MakeAttempt) -> None:
    ids = [make_attempt().pk, make_attempt(stories.no_cause()).pk, make_attempt(None).pk]
    untouched = make_attempt().pk
    shown = act(signed_in, "confirm", pick=ids)
    assert "1 attempt confirmed; 1 left as they were: without a cause to confirm" in shown
    assert "1 left as they were: not diagnosed yet" in shown
    assert Attempt.objects.get(pk=ids[0]).verdict_status == VerdictStatus.CONFIRMED
    assert Attempt.objects.get(pk=untouched).verdict_status == VerdictStatus.UNCONFIRMED
    assert "Took back 1 confirmation" in undo(signed_in, shown)
    assert Attempt.objects.get(pk=ids[0]).verdict_status == VerdictStatus.UNCONFIRMED
    assert "1 left as they were: judged already" not in act(signed_in, "confirm", pick=ids[:1])
    assert Verdict.objects.filter(ended_at__isnull=True).count() == 1


def test_all_that_match_is_asked_about_first_and_respects_the_search(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    network = make_attempt(stories.key_error())
    hardware = [make_attempt() for _ in range(3)]
    shown = act(signed_in, "diagnose", "q=domain:hardware", all="1")
    assert "Diagnose again: 3 attempts" in shown and "domain:hardware" in shown
    assert not Attempt.objects.filter(triage_state=TriageState.PENDING).exists(), "nothing yet"
    shown = act(signed_in, "diagnose", "q=domain:hardware", all="1", seen="2")
    assert "Diagnose again: 3 attempts" in shown, "more match by now: asked again"
    shown = act(signed_in, "diagnose", "q=domain:hardware", all="1", seen="3")
    assert "3 attempts asked to be diagnosed again" in shown
    states = dict(Attempt.objects.values_list("pk", "triage_state"))
    assert {states[one.pk] for one in hardware} == {TriageState.PENDING} and states[network.pk] == TriageState.DONE
    assert "0 attempts asked to be diagnosed again; 1 left as they were: waiting already" in act(
        signed_in, "diagnose", pick=[hardware[0].pk]
    )


def test_too_many_are_refused_with_a_way_out(
    signed_in: Client, make_attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_attempt(), make_attempt()
    monkeypatch.setattr(bulk, "LIMIT", 1)
    assert "At most 1 are done at once" in act(signed_in, "confirm", all="1", seen="2")


def test_incidents_of_picked_rows_are_given_to_somebody(
    signed_in: Client, ada: User, make_attempt: MakeAttempt
) -> None:
    ids = [make_attempt().pk, make_attempt().pk, make_attempt(stories.no_cause()).pk]
    shown = act(signed_in, "assign", pick=ids, assignee=str(ada.pk))
    assert "1 incident given to Ada Moreau; 1 left as they were: without an incident" in shown
    assert Incident.objects.get().assignee == ada
    assert "Ada Moreau" in page(signed_in, "?q=assignee:me")
    assert len(titles(signed_in, "?q=assignee:me")) == 2


def test_who_had_an_incident_before_has_it_again_after_undo(
    signed_in: Client, ada: User, make_attempt: MakeAttempt
) -> None:
    attempt = make_attempt()
    ben = User.objects.create_user("ben")
    incident = Incident.objects.get()
    assign(incident.pk, ada, ben.pk, seen=None)
    shown = act(signed_in, "assign", pick=[attempt.pk], assignee=str(ada.pk))
    assert "Gave 1 incident back" in undo(signed_in, shown)
    assert Incident.objects.get().assignee == ben
    assign(incident.pk, ada, None, seen=ben.pk)
    assert "1 left as they were: changed meanwhile" in undo(signed_in, shown)
    assert Incident.objects.get().assignee is None, "a later word counts"


def test_attempts_without_a_cause_can_be_added_to_an_incident_and_put_back(
    signed_in: Client, make_attempt: MakeAttempt
) -> None:
    known, lost, other = make_attempt(), make_attempt(stories.no_cause()), make_attempt(other_story())
    target, elsewhere = known.membership.incident, other.membership.incident
    picked = [lost.pk, other.pk, known.pk]
    shown = act(signed_in, "add", pick=picked, incident=f"http://testserver/incidents/{target.pk}/")
    assert f"2 attempts added to {target.name}; 1 left as they were: in it already" in shown
    assert len(titles(signed_in, f"?q=incident:{target.name}")) == 3
    target.refresh_from_db(), elsewhere.refresh_from_db()
    assert (target.attempts_count, elsewhere.attempts_count) == (3, 0)
    record = signed_in.get(f"/incidents/{target.pk}/").content.decode()
    assert "Ada Moreau added 2 attempts to this incident" in record
    assert "Put 2 attempts back" in undo(signed_in, shown)
    target.refresh_from_db(), elsewhere.refresh_from_db()
    assert (target.attempts_count, elsewhere.attempts_count) == (1, 1)
    assert not Membership.objects.filter(attempt=lost).exists() and not Membership.objects.filter(by_hand=True).exists()
    for number, says in (("", "Write the number"), ("x", "Write the number"), ("999999", "There is no such incident")):
        assert says in act(signed_in, "add", pick=picked, incident=number)


def test_the_return_key_adds_and_confirms_nothing(signed_in: Client, make_attempt: MakeAttempt) -> None:
    lost, known = make_attempt(stories.no_cause()), make_attempt()
    act(signed_in, "enter", pick=[lost.pk, known.pk])
    assert not Verdict.objects.exists()
    act(signed_in, "enter", pick=[lost.pk], incident=known.membership.incident.name)
    assert Membership.objects.filter(attempt=lost, by_hand=True).exists()


def test_an_offer_is_for_the_person_who_did_it_and_for_an_hour(
    signed_in: Client, make_attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = act(signed_in, "confirm", pick=[make_attempt().pk])
    assert 'name="offer"' not in page(signed_in), "it is shown once"
    other = Client()
    other.force_login(User.objects.create_user("eve"))
    assert "somebody else did that" in undo(other, shown)
    forged = signed_in.post(reverse("undo"), {"offer": "forged", "next": "https://evil.example/"})
    assert forged["Location"] == "/" and "Nothing was undone" in page(signed_in)
    monkeypatch.setattr("triage.web.undo.SECONDS", -1)
    assert "more than an hour has passed" in undo(signed_in, shown)
    assert Verdict.objects.filter(ended_at__isnull=True).count() == 1
    assert signed_in.get(reverse("undo")).status_code == 405


def test_nothing_picked_says_so_and_odd_input_is_harmless(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    assert "Nothing was selected" in act(signed_in, "confirm")
    assert "Nothing was selected" in act(signed_in, "confirm", pick=["x", "9" * 30, "-1"])
    assert signed_in.post(reverse("failures-bulk"), {"action": "drop"}).status_code == 302
    assert signed_in.get(reverse("failures-bulk")).status_code == 405


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_list_as_csv_holds_every_match_and_no_formula(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt(name='=HYPERLINK("http://evil.example")')
    make_attempt(stories.key_error(), user="ben")
    answer = signed_in.get(reverse("failures-csv") + "?q=user:ada")
    assert answer["Content-Type"].startswith("text/csv") and "attachment" in answer["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))  # type: ignore[arg-type]
    assert len(rows) == 1
    assert rows[0]["title"] == "NVLink signal-integrity fault on gx-02 (Xid 149)" and rows[0]["nodes_blamed"] == "gx-02"
    assert rows[0]["workload"].startswith("'=HYPERLINK"), "a spreadsheet must not run it"
    assert rows[0]["sources_missing"] == "metric" and float(rows[0]["gpu_hours_lost"]) == pytest.approx(76.0, abs=0.1)


def test_the_list_as_json_is_one_array_in_the_order_of_the_list(signed_in: Client, make_attempt: MakeAttempt) -> None:
    for number in range(60):
        make_attempt(None, ended_at=stories.END + timedelta(minutes=number))
    with CaptureQueriesContext(connection) as seen:
        answer = signed_in.get(reverse("failures-json") + "?q=&sort=oldest")
        rows = json.loads(b"".join(answer.streaming_content))  # type: ignore[arg-type]
    assert len(rows) == 60 and rows == sorted(rows, key=lambda row: row["ended_at"])
    assert rows[0]["status"] == "unconfirmed" and rows[0]["incident"] is None
    assert len(seen) <= 4
    empty = signed_in.get(reverse("failures-json") + "?q=user:nobody")
    assert json.loads(b"".join(empty.streaming_content)) == []  # type: ignore[arg-type]
    assert signed_in.get(reverse("failures-json") + "?q=domain:x").status_code == 302


# --- suggestions ------------------------------------------------------------------------------------------------------


def offered(text: str, user: User) -> dict[str, str]:
    return {one.text: one.note for one in suggest(text, user)}


def test_fields_and_values_are_suggested_with_counts(ada: User, make_attempt: MakeAttempt) -> None:
    make_attempt()
    make_attempt()
    make_attempt(stories.key_error(), user="ada b")
    assert offered("domain:hardware no", ada) == {
        "domain:hardware node:": "node to blame, or none",
        "domain:hardware no ": "the word, anywhere",
    }
    assert offered("domain:hardware node:", ada) == {
        "domain:hardware node:gx-02 ": "2",
        "domain:hardware node:none ": "no node to blame",
    }
    assert offered("domain:", ada)["domain:hardware "] == "2"
    assert offered("user:", ada) == {"user:ada ": "2", 'user:"ada b" ': "1", "user:none ": "no user known"}
    assert 'user:"ada b" ' in offered('user:"ada b', ada)
    assert "-node:gx-02 " in offered("-node:gx", ada)
    assert offered("assignee:a", ada) == {"assignee:ada ": "Ada Moreau"}
    assert "ended:7d " in offered("ended:", ada) and offered("foo:", ada) == {}
    assert "saw:nccl.watchdog-timeout " in offered("saw:nccl.watchdog", ada) or offered("saw:nccl.", ada)


def test_of_very_many_the_newest_are_counted_and_a_name_of_before_is_still_found(
    ada: User, make_attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("jun", "maren", "maren", "nia")):
        make_attempt(user=name, ended_at=stories.END + timedelta(minutes=number))
    assert offered("user:", ada) == {
        "user:maren ": "2", "user:jun ": "1", "user:nia ": "1", "user:none ": "no user known",
    }  # fmt: skip
    monkeypatch.setattr(suggestions, "INDEXED", 2)
    assert offered("user:", ada) == {"user:maren ": "1+", "user:nia ": "1+", "user:none ": "no user known"}
    assert offered("user:j", ada) == {"user:jun ": "1"}, "none of the newest begins so"
    assert offered("domain:", ada)["domain:hardware "] == "2+"
    monkeypatch.setattr(suggestions, "NEWEST", 1)
    assert "rule:xid.79 " in offered("rule:xid.79", ada), "what rules there are is known without a search"


def test_xids_are_suggested_with_what_they_mean(ada: User, make_attempt: MakeAttempt) -> None:
    make_attempt()
    make_attempt(user="jun")
    every = offered("xid:", ada)
    assert next(iter(every.items())) == ("xid:149 ", "NVLink link down, of several kinds (2)"), "what was seen leads"
    assert offered("user:jun xid:14", ada)["user:jun xid:149 "] == "NVLink link down, of several kinds (1)"
    assert next(iter(offered("xid:79", ada).items())) == ("xid:79 ", "GPU has fallen off the bus")
    assert "xid:79 " in offered("xid:bus", ada), "by the word for it"
    assert next(iter(offered("xid:4", ada))) == "xid:4 " and len(offered("xid:", ada)) == 8
    assert offered("saw:xid.79", ada)["saw:xid.79 "] == "Xid 79: GPU has fallen off the bus"


def test_what_has_no_name_is_suggested(ada: User, make_attempt: MakeAttempt) -> None:
    make_attempt(queue="", cluster="")
    assert offered("queue:", ada) == {"queue:none ": "no queue known"}
    assert offered("cluster:no", ada) == {"cluster:none ": "no cluster named"}
    assert offered("user:", ada) == {"user:ada ": "1", "user:none ": "no user known"}


@pytest.mark.parametrize(
    "text", ["", " ", '"', "-", "node:\x00", "x:" * 400, "workload:%", "queue:", "rule:", "on:gx", "incident:"]
)
def test_no_beginning_is_a_crash(text: str, signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    answer = signed_in.get(reverse("failures-suggest"), {"q": text}, headers={"HX-Request": "true"})
    assert answer.status_code == 200


def test_suggestions_opened_by_hand_lead_to_the_list(signed_in: Client) -> None:
    answer = signed_in.get(reverse("failures-suggest") + "?q=domain:hardware")
    assert answer.status_code == 302 and answer["Location"] == "/?q=domain:hardware"
