"""Confirm, correct, discuss, group and share, as people on call do it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Triaged, back
from triage.models import Comment, Incident, Notification, ShareLink, Verdict
from triage.services.comments import add_comment
from triage.services.sharing import make_share, share_token
from triage.services.verdicts import confirm

pytestmark = pytest.mark.browser
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture
def stranger(browser: Browser) -> Iterator[Page]:
    """Somebody without an account."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(10_000)
    yield page
    context.close()


def test_the_main_way_with_the_keyboard_alone(
    signed_page: Page, stranger: Page, live_server: Any, triaged: Triaged
) -> None:
    """Inbox -> attempt -> decisive line -> confirm -> comment with the line quoted -> share link opened signed out."""
    attempt, page = triaged(), signed_page
    User.objects.create_user("maren", first_name="Maren")
    press = page.keyboard.press
    page.goto(f"{live_server.url}/")
    press("j")
    press("o")
    page.wait_for_url(re.compile(rf"/attempts/{attempt.pk}/$"))
    press("e")
    page.wait_for_url(re.compile(r"#L125$"))
    press("u")
    page.wait_for_url(re.compile(rf"/attempts/{attempt.pk}/$"))
    press("c")
    expect(page.get_by_role("button", name="Confirm")).to_be_focused()
    assert not Verdict.objects.exists(), "one key alone confirms nothing"
    press("Enter")
    expect(page.locator(".verdict .kicker")).to_contain_text("Confirmed by demo")

    press("e")
    page.wait_for_url(re.compile(r"#L125$"))
    press("j")
    press("Shift+J")
    expect(page.locator("#picked-lines")).to_have_text("Lines 125 to 126 picked")
    press("m")
    page.wait_for_url(re.compile(r"quote=.*#compose"))
    expect(page.locator(".quote.pending")).to_contain_text("149, NETIR_LINK_EVT")
    press("m")
    expect(page.get_by_label("Add a comment")).to_be_focused()
    page.keyboard.type("Third time this week, always **link 10**. @maren please drain it.")
    press("Tab")
    expect(page.get_by_role("button", name="Comment", exact=True)).to_be_focused()
    press("Enter")
    comment = page.locator("#thread article").filter(has_text="Third time")
    expect(comment.locator("blockquote")).to_contain_text("149, NETIR_LINK_EVT")
    expect(comment.locator("strong")).to_have_text("link 10")
    expect(comment.locator(".mention")).to_have_text("@maren")
    assert Notification.objects.get().user.get_username() == "maren"

    press("s")
    page.wait_for_url(re.compile(r"/share/$"))
    make = page.get_by_role("button", name="Make a link")
    for _ in range(40):
        if make.evaluate("node => node === document.activeElement"):
            break
        press("Tab")
    press("Enter")
    link = page.locator(".shares code")
    expect(link).to_contain_text("/s/")
    stranger.goto(link.inner_text())
    expect(stranger.locator("h1")).to_contain_text("node-02")
    expect(stranger.locator(".banner")).to_contain_text("Read only, shared by demo")
    expect(stranger.locator("#ev .cause")).to_contain_text("149, NETIR_LINK_EVT")
    expect(stranger.get_by_text("Third time")).to_have_count(0)
    assert stranger.locator("a[href^='/attempts'], a[href^='/incidents']").count() == 0

    seen = set()
    for _ in range(14):  # Back at each step: a whole page each time, down to the list
        back(page)
        expect(page.get_by_role("banner")).to_be_visible()
        expect(page.get_by_role("contentinfo")).to_be_visible()
        seen.add(re.sub(r"\d+", "N", page.url.removeprefix(live_server.url).partition("?")[0].partition("#")[0]))
        if page.url == f"{live_server.url}/":
            break
    assert {"/attempts/N/", "/attempts/N/evidence/eN/", "/"} <= seen
    expect(page.locator(".failures tbody tr")).to_have_count(1)


def test_a_correction_keeps_the_machines_answer_beside_it(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    attempt, page = triaged(), signed_page
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    page.keyboard.press("x")
    page.wait_for_url(re.compile("/correct/$"))
    page.get_by_label("Wrong cause").check()
    page.get_by_label("The right cause").select_option("hardware/nvswitch")
    page.get_by_label("e2", exact=False).first.check()
    page.get_by_role("button", name="Save the correction").click()
    expect(page.get_by_text("Say why in a sentence")).to_be_visible()
    expect(page.get_by_label("Wrong cause")).to_be_checked()
    page.get_by_role("textbox", name="Reason").fill("The tray took its ports down.")
    page.get_by_role("button", name="Save the correction").click()
    expect(page.locator("h1")).to_have_text("NVSwitch on node-02")
    expect(page.locator(".verdict .second")).to_contain_text("The engine had said")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".verdict .kicker")).to_contain_text("Unconfirmed")


def test_what_others_say_appears_by_itself_and_leaves_my_draft_alone(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    attempt, page = triaged(), signed_page
    maren = User.objects.create_user("maren", first_name="Maren", last_name="Vogt")
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    page.get_by_label("Add a comment").fill("half a thou")
    add_comment(attempt, maren, "I drained node-02.")
    poll(page)
    expect(page.locator("#thread")).to_contain_text("I drained node-02.")
    expect(page.get_by_label("Add a comment")).to_have_value("half a thou")
    expect(page.get_by_label("Add a comment")).to_be_focused()
    confirm(attempt.pk, maren, diagnosis_id=attempt.diagnosis_id)
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("status").first).to_contain_text("It was confirmed already")
    assert Verdict.objects.count() == 1


def poll(page: Page) -> None:
    page.evaluate(
        "htmx.ajax('GET', document.getElementById('thread-poll').getAttribute('hx-get'),"
        " {source: '#thread-poll', swap: 'outerHTML'})"
    )


def test_a_session_that_expires_half_way_loses_no_word(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    attempt, page = triaged(), signed_page
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    page.get_by_label("Add a comment").fill("a long thought")
    Session.objects.all().delete()
    page.get_by_role("button", name="Comment", exact=True).click()
    page.wait_for_url(re.compile("/sign-in/"))
    page.get_by_label("Name").fill("demo")
    page.get_by_label("Password").fill("demo")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(re.compile(rf"/attempts/{attempt.pk}/"))
    expect(page.get_by_label("Add a comment")).to_have_value("a long thought")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator("#thread")).to_contain_text("a long thought")
    expect(page.get_by_label("Add a comment")).to_have_value("")
    assert Comment.objects.count() == 1


def test_an_incident_is_owned_split_and_reported(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    page = signed_page
    triaged()
    triaged("net-slurm-time-limit")
    page.goto(f"{live_server.url}/")
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url(re.compile("/incidents/$"))
    expect(page.locator(".incidents tbody tr")).to_have_count(2)
    page.get_by_role("link", name="NVLink link down").click()
    page.get_by_label("Status", exact=True).select_option("investigating")
    page.get_by_label("Assignee").select_option(label="demo (you)")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#thread")).to_contain_text("demo set it to investigating")
    expect(page.locator("#thread")).to_contain_text("demo took it on")
    page.get_by_label(re.compile(r"System \(")).check()
    page.wait_for_url(re.compile("kind=system"))
    expect(page.locator("#thread")).to_contain_text("Source collected")
    back(page)
    expect(page.locator("#thread")).not_to_contain_text("Source collected")
    other = Incident.objects.get(domain="scheduler")
    page.get_by_text("Merge: another incident").click()
    page.get_by_label("Number or address").fill(other.name)
    page.get_by_role("button", name="Merge", exact=True).click()
    expect(page.locator(".members tbody tr")).to_have_count(2)
    page.get_by_role("button", name=f"Undo the merge of {other.name}").first.click()
    expect(page.locator("h1")).to_contain_text("time limit")
    page.get_by_role("link", name="Report").click()
    expect(page.locator(".report h1")).to_contain_text(other.name)
    with page.expect_download() as download:
        page.get_by_role("link", name="Markdown").click()
    assert download.value.suggested_filename == f"{other.name}.md"


def test_all_of_it_works_without_script(plain_page: Page, live_server: Any, triaged: Triaged) -> None:
    attempt, page = triaged(), plain_page
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator(".verdict .kicker")).to_contain_text("Confirmed by demo")
    page.get_by_label("Add a comment").fill("my words stay")
    page.get_by_text("Quote log lines").click()
    page.get_by_label("Stream").select_option("syslog/node-02.log")
    page.get_by_label("From line").fill("125")
    page.get_by_label("to line").fill("126")
    page.get_by_role("button", name="Quote", exact=True).click()
    expect(page.locator(".quote.pending")).to_contain_text("149, NETIR_LINK_EVT")
    expect(page.get_by_label("Add a comment")).to_have_value("my words stay")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator("#thread blockquote")).to_contain_text("149, NETIR_LINK_EVT")
    page.get_by_role("link", name="Edit this comment").click()
    page.get_by_label("Comment").fill("other words")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#thread")).to_contain_text("other words")
    page.get_by_role("link", name="Share").click()
    page.get_by_role("button", name="Make a link").click()
    page.get_by_role("button", name="Revoke").click()
    expect(page.locator(".shares")).to_contain_text("revoked by demo")
    page.goto(f"{live_server.url}/incidents/")
    page.get_by_role("link", name="NVLink link down").click()
    page.get_by_label("Severity").select_option("2")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#thread")).to_contain_text("set severity 2")
    page.get_by_label("Comments").uncheck()
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#thread")).not_to_contain_text("other words")


@pytest.fixture
def busy(triaged: Triaged, demo: User) -> dict[str, str]:
    """Addresses of every new page, with something on each."""
    attempt, other = triaged(), triaged("net-ib-link-down")
    incident = Incident.objects.get(memberships__attempt=attempt)
    maren = User.objects.create_user("maren", first_name="Maren", last_name="Vogt")
    confirm(other.pk, maren, diagnosis_id=other.diagnosis_id)
    comment = add_comment(attempt, demo, "## Seen\n\nIt is **link 10**.\n\n- one\n- two\n\n| a | b |\n|-|-|\n| 1 | 2 |")
    add_comment(incident, maren, "@demo can you look? `NETIR_LINK_EVT` and a_very_long_word_" + "x" * 300)
    share = make_share(attempt, demo)
    shared = make_share(incident, demo)
    return {
        "attempt": f"/attempts/{attempt.pk}/?quote=syslog/node-02.log:125-127",
        "confirmed": f"/attempts/{other.pk}/",
        "correct": f"/attempts/{attempt.pk}/correct/",
        "comment": f"/comments/{comment.pk}/edit/",
        "notifications": "/notifications/",
        "incidents": "/incidents/",
        "no incidents": "/incidents/?view=resolved",
        "incident": f"/incidents/{incident.pk}/?kind=system&kind=comments&kind=attempts&kind=decisions",
        "report": f"/incidents/{incident.pk}/report/",
        "share attempt": f"/attempts/{attempt.pk}/share/",
        "share incident": f"/incidents/{incident.pk}/share/",
        "shared attempt": f"/s/{share_token(share)}/",
        "shared incident": f"/s/{share_token(shared)}/",
        "no share": "/s/1.aaaa/",
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_them(
    signed_page: Page, live_server: Any, busy: dict[str, str], theme: str
) -> None:
    page = signed_page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    findings = []
    for name, address in busy.items():
        page.goto(live_server.url + address)
        page.evaluate("document.querySelectorAll('main details').forEach(part => part.open = true)")
        page.evaluate("window.scrollTo(0, 0)")
        answer = Axe().run(page, options={"runOnly": WCAG}).response
        for violation in answer["violations"]:
            if violation["impact"] in ("serious", "critical"):
                findings += [(name, violation["id"], node["html"][:200]) for node in violation["nodes"][:3]]
    assert findings == []


@pytest.mark.parametrize("width", [320, 390])
def test_none_of_them_scrolls_sideways_on_a_phone(
    signed_page: Page, live_server: Any, busy: dict[str, str], width: int
) -> None:
    page = signed_page
    page.set_viewport_size({"width": width, "height": 800})
    wide = {}
    for name, address in busy.items():
        page.goto(live_server.url + address)
        page.evaluate("document.querySelectorAll('main details').forEach(part => part.open = true)")
        found = page.evaluate("document.documentElement.scrollWidth")
        if found > width:
            wide[name] = found
    assert wide == {}


def test_links_made_elsewhere_end_when_they_are_revoked(
    stranger: Page, live_server: Any, triaged: Triaged, demo: User
) -> None:
    share = make_share(triaged(), demo)
    stranger.goto(f"{live_server.url}/s/{share_token(share)}/")
    expect(stranger.locator(".verdict")).to_be_visible()
    ShareLink.objects.update(revoked_at="2026-01-01T00:00:00Z", revoked_by=demo)
    stranger.reload()
    expect(stranger.get_by_role("heading", name="This link was revoked")).to_be_visible()
    expect(stranger.locator(".verdict")).to_have_count(0)
