"""A correction with lines picked in the logs: by key, by mouse, without script; nothing typed is lost on the way."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Triaged
from triage.models import Attempt, Verdict
from triage.services.verdicts import Answer, correct

pytestmark = pytest.mark.browser
SYSLOG = "syslog/node-02.log"


def ranges(verdict: Verdict) -> list[tuple[str, int, int]]:
    return [(quote["stream"], quote["first"], quote["last"]) for quote in verdict.lines]


def log_of(live_server: Any, attempt: Attempt, query: str) -> str:
    return f"{live_server.url}/attempts/{attempt.pk}/streams/{SYSLOG}{query}"


def tab_to(page: Page, target: Any, most: int = 80) -> None:
    for _ in range(most):
        if target.evaluate("node => node === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError("the keyboard does not get there")


def test_by_keyboard_alone_from_the_verdict_through_the_log_to_the_saved_correction(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = signed_page, triaged()
    press = page.keyboard.press
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    press("x")
    page.wait_for_url(re.compile("/correct/$"))
    tab_to(page, page.get_by_label("Wrong cause"))
    press("Space")
    tab_to(page, page.get_by_label("The right cause"))
    page.keyboard.type("Hardware: NVSwitch")
    tab_to(page, page.get_by_role("textbox", name="Reason"))
    page.keyboard.type("The tray took its ports down.")
    pick = page.get_by_role("button", name="Pick lines in a log")
    for _ in range(12):
        if pick.evaluate("node => node === document.activeElement"):
            break
        press("Shift+Tab")
    press("Enter")
    page.wait_for_url(re.compile(r"for=correction#L125$"))
    expect(page.get_by_text("Pick the lines that show the right cause.")).to_be_visible()

    press("j")  # takes up the decisive line
    expect(page.locator("#L125 .ln")).to_be_focused()
    press("k")
    expect(page.locator("#L124 .ln")).to_be_focused()
    press("j")
    press("j")
    press("Shift+J")
    press("Shift+ArrowDown")
    expect(page.locator("#picked-lines")).to_have_text("Lines 126 to 128 picked")
    expect(page.locator("#L128 .ln")).to_be_focused()
    press("x")
    page.wait_for_url(re.compile(r"/correct/\?quote=.*#picked$"))
    expect(page.get_by_label("Wrong cause")).to_be_checked()
    expect(page.get_by_label("The right cause")).to_have_value("hardware/nvswitch")
    expect(page.get_by_role("textbox", name="Reason")).to_have_value("The tray took its ports down.")
    expect(page.locator("#picked .picks")).to_contain_text("154, GPU recovery action changed")
    save = page.get_by_role("button", name="Save the correction")
    tab_to(page, save)
    press("Enter")
    page.wait_for_url(re.compile(rf"/attempts/{attempt.pk}/$"))
    expect(page.locator("h1")).to_have_text("NVSwitch on node-02")
    expect(page.get_by_role("link", name=f"{SYSLOG}, line 126 to 128")).to_be_visible()
    assert ranges(Verdict.objects.get()) == [(SYSLOG, 126, 128)]
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/correct/")
    expect(page.get_by_text("as you left them")).to_have_count(0)


def test_lines_are_picked_by_dragging_over_numbers_and_by_selecting_text(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = signed_page, triaged()
    page.goto(log_of(live_server, attempt, "?line=125&for=correction#L125"))
    said = page.locator("#picked-lines")
    first, last = page.locator("#L126 .ln").bounding_box(), page.locator("#L131 .ln").bounding_box()
    assert first and last
    page.mouse.move(first["x"] + 20, first["y"] + 8)
    page.mouse.down()
    page.mouse.move(first["x"] + 20, (first["y"] + last["y"]) / 2, steps=4)
    page.mouse.move(last["x"] + 20, last["y"] + 8, steps=4)
    page.mouse.up()
    expect(said).to_have_text("Lines 126 to 131 picked")
    assert page.url.endswith("#L126-L131")

    begin, end = page.locator("#L133 code").bounding_box(), page.locator("#L135 code").bounding_box()
    assert begin and end
    page.mouse.move(end["x"] + 200, end["y"] + 10)
    page.mouse.down()
    page.mouse.move(begin["x"] + 60, begin["y"] + 10, steps=6)
    page.mouse.up()
    expect(said).to_have_text("Lines 133 to 135 picked")
    page.locator("#L129 code").dblclick(position={"x": 120, "y": 10})
    expect(said).to_have_text("Lines 133 to 135 picked")  # a word of one line picks nothing

    page.get_by_role("link", name="Add to the correction").click()
    expect(page.locator("#picked .picks label")).to_have_count(1)
    page.locator("#picked .picks input").uncheck()
    page.get_by_role("button", name="Pick more lines in a log").click()
    page.get_by_text("Logs", exact=True).click()
    page.locator(".log-menu").get_by_role("link", name="applog/node-04.log").click()
    page.wait_for_url(re.compile(r"node-04\.log\?for=correction$"))
    page.get_by_label("Go to a line, lines or a time").fill("1768-1770")
    page.keyboard.press("Enter")
    expect(said).to_have_text("Lines 1,768 to 1,770 picked")
    page.get_by_role("link", name="Add to the correction").click()
    expect(page.locator("#picked .picks label")).to_have_count(1)
    expect(page.locator("#picked .picks")).to_contain_text("applog/node-04.log")


def test_escape_lets_the_picked_lines_go(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    page, attempt = signed_page, triaged()
    page.goto(log_of(live_server, attempt, "?lines=125-131#L125-L131"))
    expect(page.locator("#picked-lines")).to_have_text("Lines 125 to 131 picked")
    page.locator("#L126 .ln").focus()
    page.keyboard.press("Escape")
    expect(page.locator("#picked-do")).to_be_hidden()
    expect(page.locator("#log .picked")).to_have_count(0)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#picked-lines")).to_have_text("Line 127 picked")


def test_without_script_a_range_is_written_and_the_answers_are_kept(
    plain_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = plain_page, triaged()
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/correct/")
    page.get_by_role("radio", name="Incomplete").check()
    page.get_by_role("textbox", name="Reason").fill("The cable too.")
    page.get_by_role("button", name="Pick lines in a log").click()
    page.get_by_label("Go to a line, lines or a time").fill("129 to 131")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.locator("#log .range")).to_have_count(3)
    page.get_by_role("link", name="Add to the correction").click()
    expect(page.get_by_role("radio", name="Incomplete")).to_be_checked()
    expect(page.get_by_role("textbox", name="Reason")).to_have_value("The cable too.")
    page.get_by_role("button", name="Save the correction").click()
    expect(page.locator(".verdict .kicker")).to_contain_text("Corrected by demo")
    assert ranges(Verdict.objects.get()) == [(SYSLOG, 129, 131)]


def test_a_session_that_ends_over_a_correction_loses_no_answer(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = signed_page, triaged()
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/correct/")
    page.get_by_label("Wrong node").check()
    page.get_by_role("checkbox", name="node-03", exact=True).check()
    page.get_by_role("checkbox", name="node-02", exact=True).uncheck()
    page.get_by_role("textbox", name="Reason").fill("It was the other end.")
    Session.objects.all().delete()
    page.get_by_role("button", name="Save the correction").click()
    page.wait_for_url(re.compile("/sign-in/"))
    page.get_by_label("Name").fill("demo")
    page.get_by_label("Password").fill("demo")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(re.compile("/correct/$"))
    expect(page.get_by_role("textbox", name="Reason")).to_have_value("It was the other end.")
    expect(page.get_by_label("Wrong node")).to_be_checked()
    expect(page.get_by_role("checkbox", name="node-03", exact=True)).to_be_checked()
    expect(page.get_by_role("checkbox", name="node-02", exact=True)).not_to_be_checked()
    page.get_by_role("button", name="Save the correction").click()
    expect(page.locator(".verdict .kicker")).to_contain_text("Corrected by demo")
    assert Verdict.objects.get().nodes == ["node-03"]
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/correct/")
    expect(page.get_by_role("textbox", name="Reason")).to_have_value("")


def test_of_two_who_correct_at_once_the_second_is_told_and_loses_nothing(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = signed_page, triaged()
    maren = User.objects.create_user("maren", first_name="Maren", last_name="Vogt")
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/correct/")
    page.get_by_label("Wrong cause").check()
    page.get_by_label("The right cause").select_option("hardware/pcie")
    page.get_by_role("textbox", name="Reason").fill("The riser.")
    page.get_by_role("button", name="Pick lines in a log").click()
    correct(
        attempt.pk, maren, diagnosis_id=attempt.diagnosis_id or 0, seen=None, kind="wrong_cause", reason="The tray.",
        answer=Answer("hardware", "nvswitch", "Tray 4 on node-02", ["node-02"]),
    )  # fmt: skip
    page.get_by_role("link", name="Add to the correction").click()
    page.get_by_role("button", name="Save the correction").click()
    expect(page.get_by_role("alert")).to_contain_text("Maren Vogt said it first")
    assert Verdict.objects.get(ended_at=None).by == maren, "nothing was overwritten in silence"
    expect(page.get_by_role("textbox", name="Reason")).to_have_value("The riser.")
    expect(page.locator("#picked .picks label")).to_have_count(1)
    page.get_by_role("button", name="Save the correction").click()
    expect(page.locator(".verdict .kicker")).to_contain_text("Corrected by demo")
    assert Verdict.objects.count() == 2
