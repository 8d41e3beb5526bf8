"""Discussion on the pages."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from tests.triage import cast
from tests.web.conftest import MakeAttempt
from triage.models import Attempt, Comment, Incident, Notification
from triage.services.bundles import import_bundle
from triage.services.comments import add_comment
from triage.services.sources import registry
from triage.services.triage import begin_triage
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import diagnose


@pytest.fixture
def collected(settings: Any, db: None, tmp_path: Path) -> Iterator[Attempt]:
    """With real streams, to quote from."""
    settings.FAULTLINE_DATA_DIR = tmp_path / "data"
    registry.cache_clear()
    attempt = import_bundle(cast.archive(tmp_path / "b.tar.zst", cast.members())).attempt
    begin_triage(attempt.pk)
    for collection in attempt.collections.all():
        collect(collection.pk)
    diagnose(attempt.pk)
    yield Attempt.objects.get(pk=attempt.pk)
    registry.cache_clear()


def discussion(client: Client, attempt: Attempt, query: str = "") -> str:
    page = client.get(reverse("attempt", args=[attempt.pk]) + query).content.decode()
    return page[page.index('id="discussion"') : page.index("</form>", page.index('id="compose"'))]


def say(client: Client, attempt: Attempt, **values: Any) -> Any:
    return client.post(reverse("attempt-comment", args=[attempt.pk]), {"form_key": str(uuid.uuid4()), **values})


def test_a_comment_is_shown_as_markdown_and_kept_once(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt, key = make_attempt(), str(uuid.uuid4())
    for _ in range(2):
        answer = say(signed_in, attempt, text="Drained **gx-02**, see https://t.example.org/HW-1.", form_key=key)
    comment = Comment.objects.get()
    assert answer["Location"] == f"/attempts/{attempt.pk}/#c{comment.pk}"
    shown = discussion(signed_in, attempt)
    assert f'id="c{comment.pk}"' in shown and "Drained <strong>gx-02</strong>" in shown
    assert '<a href="https://t.example.org/HW-1" rel="noopener noreferrer nofollow">' in shown


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "![x](https://spy.example.org/p.png)",
        "<a href='javascript:alert(1)'>x</a>",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "\u202egpj.exe\u202c \x1b[31mred\x1b[0m",
        '[x](https://e.example.org "\\"onmouseover=alert(1) ")',
        "`" * 5000,
        "> " * 3000 + "deep",
        "[" * 5000,
        "| a |\n|-|\n" + "| <b onclick=x> |\n" * 10,
    ],
)
def test_hostile_markdown_shows_harmlessly(hostile: str, signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    assert say(signed_in, attempt, text=hostile).status_code == 302
    shown = discussion(signed_in, attempt)
    said = shown[shown.index('<div class="said">') :]
    said = said[: said.index("</div>")]
    assert not re.search(r"<(script|img|b on)|<[^>]+\son\w+=|href=\"(?!https?://|mailto:)", said)
    assert "\u202e" not in said and "\x1b" not in said


def test_names_with_quotes_and_tags_show_harmlessly(client: Client, make_attempt: MakeAttempt) -> None:
    user = User.objects.create_user("o'neil", first_name="<b>O'Neil</b>", last_name="\u202e")
    client.force_login(user)
    attempt = make_attempt()
    say(client, attempt, text="@o'neil hello")
    shown = discussion(client, attempt)
    assert "&lt;b&gt;O&#x27;Neil&lt;/b&gt;" in shown and "<b>O'Neil" not in shown and "\u202e" not in shown


def test_lines_are_quoted_by_address_and_by_form_without_script(signed_in: Client, collected: Attempt) -> None:
    shown = discussion(signed_in, collected, "?quote=syslog/gx-02.log:1&text=look")
    assert "GPU has fallen off the bus" in shown and ">look</textarea>" in shown and "syslog/gx-02.log, line 1" in shown
    quote = re.search(r'name="quote" value="([^"]+)"', shown)
    assert quote is not None
    form = {"quote": quote[1], "do": "quote", "stream": "applog/train.log", "first": "5", "last": "6", "text": "why"}
    added = say(signed_in, collected, **form)
    assert added.status_code == 302 and added["Location"].endswith("#discussion")
    shown = discussion(signed_in, collected, "?" + added["Location"].partition("?")[2].partition("#")[0])
    forms = re.findall(r'name="quote" value="([^"]+)"', shown)
    assert len(forms) == 2 and "KeyError" in shown and ">why</textarea>" in shown and "hf_abc" not in shown
    assert shown.count("Leave it out") == 2
    say(signed_in, collected, quote=forms, text="The GPU went first.", do="comment")
    kept = discussion(signed_in, collected)
    assert kept.count('<blockquote class="quote">') == 2
    assert f"/attempts/{collected.pk}/streams/syslog/gx-02.log?line=1#L1" in kept
    assert "applog/train.log?line=5#L5-L6" in kept


def test_lines_that_do_not_exist_are_named_and_the_text_is_kept(signed_in: Client, collected: Attempt) -> None:
    shown = discussion(signed_in, collected, "?quote=nowhere.log:1")
    assert "There is no stream “nowhere.log” here." in shown
    answer = say(signed_in, collected, quote="syslog/gx-02.log:99", text="a long thought")
    page = answer.content.decode()
    assert answer.status_code == 422 and "has 2 lines" in page and ">a long thought</textarea>" in page
    assert not Comment.objects.exists()


def test_only_the_author_edits_and_deletes_and_the_trace_is_shown(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt, owen = make_attempt(), User.objects.create_user("owen")
    mine, theirs = add_comment(attempt, User.objects.get(username="ada"), "first"), add_comment(attempt, owen, "his")
    shown = discussion(signed_in, attempt)
    assert f"/comments/{mine.pk}/edit/" in shown and f"/comments/{theirs.pk}/edit/" not in shown
    for address in (reverse("comment-edit", args=[theirs.pk]), reverse("comment-delete", args=[theirs.pk])):
        assert signed_in.post(address, {"text": "x", "seen": "his"}).status_code == 403
    assert "first" in signed_in.get(reverse("comment-edit", args=[mine.pk])).content.decode()
    signed_in.post(reverse("comment-edit", args=[mine.pk]), {"text": "second", "seen": "first"})
    shown = discussion(signed_in, attempt)
    assert "<p>second</p>" in shown and "edited" in shown and '<p class="was">first</p>' in shown
    late = signed_in.post(reverse("comment-edit", args=[mine.pk]), {"text": "third", "seen": "first"})
    assert late.status_code == 422 and "another window" in late.content.decode() and "third" in late.content.decode()
    signed_in.post(reverse("comment-delete", args=[mine.pk]))
    shown = discussion(signed_in, attempt)
    assert "second" not in shown and "deleted" in shown and "<p>his</p>" in shown
    assert signed_in.get(reverse("comment-edit", args=[mine.pk])).status_code == 404


def test_who_is_mentioned_is_told_and_led_there(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt, owen = make_attempt(), User.objects.create_user("owen")
    comment = add_comment(attempt, owen, "@ada restart without it, please. @nobody")
    page = signed_in.get("/").content.decode()
    assert '<a class="badge unread" href="/notifications/">1 for you</a>' in page
    listed = signed_in.get("/notifications/").content.decode()
    assert "owen mentioned you" in listed and "restart without it" in listed
    answer = signed_in.get(reverse("notification", args=[Notification.objects.get().pk]))
    assert answer["Location"] == f"/attempts/{attempt.pk}/#c{comment.pk}"
    assert "for you</a>" not in signed_in.get("/").content.decode()
    shown = discussion(signed_in, attempt)
    assert '<b class="mention">@ada</b>' in shown and 'mention">@nobody' not in shown
    other = Client()
    other.force_login(owen)
    assert other.get(reverse("notification", args=[Notification.objects.get().pk])).status_code == 404


def test_the_discussion_renews_itself(signed_in: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    page = signed_in.get(reverse("attempt", args=[attempt.pk])).content.decode()
    etag = re.search(r'id="thread-poll"[^>]*If-None-Match": "\\u0022([0-9a-f]+)', page)
    assert etag is not None
    address = reverse("attempt-discussion", args=[attempt.pk])
    headers = {"HX-Request": "true", "If-None-Match": f'"{etag[1]}"'}
    assert signed_in.get(address, headers=headers).status_code == 304
    add_comment(attempt, User.objects.get(), "news")
    answer = signed_in.get(address, headers=headers)
    assert answer.status_code == 200 and "<p>news</p>" in answer.content.decode()


def test_an_incident_has_a_discussion_of_its_own(signed_in: Client, make_attempt: MakeAttempt) -> None:
    make_attempt()
    incident = Incident.objects.get()
    answer = signed_in.post(reverse("incident-comment", args=[incident.pk]), {"text": "one cable, two names"})
    assert answer["Location"].startswith(f"/incidents/{incident.pk}/#c")
    assert "one cable, two names" in signed_in.get(f"/incidents/{incident.pk}/").content.decode()


def test_signed_out_nobody_comments_and_one_returns_to_the_form(client: Client, make_attempt: MakeAttempt) -> None:
    attempt = make_attempt()
    referer = {"Referer": f"http://testserver/attempts/{attempt.pk}/?quote=a:1"}
    answer = client.post(reverse("attempt-comment", args=[attempt.pk]), {"text": "x"}, headers=referer)
    assert answer["Location"] == f"/sign-in/?next=/attempts/{attempt.pk}/%3Fquote%3Da%3A1"
    elsewhere = {"Referer": "https://evil.example.org/x"}
    assert client.post(reverse("attempt-comment", args=[attempt.pk]), {}, headers=elsewhere)["Location"].endswith(
        "next=/"
    )
    assert not Comment.objects.exists()
