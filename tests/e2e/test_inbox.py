"""The list as a place to work: search with suggestions, selection, saved views; nodes, insights and rules from it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Triaged, back
from triage.models import Attempt, VerdictStatus

pytestmark = pytest.mark.browser


def test_the_search_completes_what_is_written_and_back_undoes_it(
    signed_page: Page, live_server: Any, fleet: None
) -> None:
    page = signed_page
    page.goto(f"{live_server.url}/?q=")
    page.keyboard.press("/")
    box = page.get_by_role("combobox", name="Search failures")
    expect(box).to_be_focused()
    page.keyboard.type("dom")
    options = page.get_by_role("listbox", name="Suggestions").get_by_role("option")
    expect(options.first).to_contain_text("domain:")
    page.keyboard.press("Tab")
    expect(box).to_have_value("domain:")
    page.keyboard.type("hard")
    expect(options).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(box).to_have_attribute("aria-activedescendant", "suggest-1")
    page.keyboard.press("Enter")
    expect(box).to_have_value("domain:hardware ")
    expect(page.locator("#suggest")).to_be_hidden()
    expect(box).to_have_value("domain:hardware ")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"q=domain(:|%3A)hardware"))
    expect(page.get_by_label(re.compile("^Hardware"))).to_be_checked()
    expect(page.locator(".failures .chip").first).to_contain_text("Hardware")
    page.get_by_label(re.compile("^Unconfirmed")).check()
    page.wait_for_url(re.compile(r"is=unconfirmed"))
    expect(page.get_by_label("Search failures")).to_have_value("domain:hardware is:unconfirmed")
    back(page)
    expect(page.get_by_label("Search failures")).to_have_value("domain:hardware")
    expect(page.get_by_label(re.compile("^Unconfirmed"))).not_to_be_checked()
    expect(page.get_by_label(re.compile("^Hardware"))).to_be_checked()
    back(page)
    expect(page.get_by_label("Search failures")).to_have_value("")


def test_a_wrong_word_is_named_and_one_click_mends_it(signed_page: Page, live_server: Any, fleet: None) -> None:
    page = signed_page
    page.goto(f"{live_server.url}/?q=domain:hardwear+is:unconfirmed")
    expect(page.get_by_role("alert")).to_contain_text("domain:hardwear: there is no such value. Did you mean hardware?")
    page.get_by_role("link", name="Search only for").click()
    expect(page.locator(".failures tbody tr").first).to_be_visible()
    expect(page.get_by_label("Search failures")).to_have_value("is:unconfirmed")


def test_rows_are_picked_and_confirmed_by_keys_and_it_can_be_undone(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    first, second = triaged("net-slurm-time-limit"), triaged()
    page = signed_page
    page.goto(f"{live_server.url}/")
    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    expect(page.locator("#picked")).to_have_text("2")
    expect(page.locator("tr.picked")).to_have_count(2)
    page.keyboard.press("c")
    expect(page.get_by_role("button", name="Confirm")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("2 attempts confirmed")).to_be_visible()
    assert Attempt.objects.filter(verdict_status=VerdictStatus.CONFIRMED).count() == 2
    expect(page.locator("tr.seen")).to_have_count(2)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Took back 2 confirmations")).to_be_visible()
    assert {Attempt.objects.get(pk=one.pk).verdict_status for one in (first, second)} == {VerdictStatus.UNCONFIRMED}


def test_all_that_match_is_asked_about(signed_page: Page, live_server: Any, fleet: None) -> None:
    page = signed_page
    page.goto(f"{live_server.url}/?q=domain:storage")
    page.get_by_label(re.compile(r"all \d+ that match")).check()
    page.get_by_role("button", name="Diagnose again").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(re.compile(r"Diagnose again: \d+ attempts?"))
    page.get_by_role("link", name="Cancel").click()
    page.wait_for_url(re.compile("q=domain:storage"))


def test_a_view_is_kept_shared_and_opens_the_list(
    signed_page: Page, live_server: Any, fleet: None, browser: Browser
) -> None:
    page = signed_page
    page.goto(f"{live_server.url}/?q=domain:network+is:unconfirmed&sort=lost")
    page.get_by_text("Save this view").click()
    page.get_by_label("Name", exact=True).fill("Network, open")
    page.get_by_label("Who sees it").select_option("all")
    page.get_by_label("Open my list with it").check()
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.get_by_role("link", name="Network, open")).to_have_attribute("aria-current", "true")
    page.goto(f"{live_server.url}/")
    page.wait_for_url(re.compile("domain:network"))
    expect(page.get_by_label("Order by")).to_have_value("lost")
    page.get_by_role("link", name=re.compile("^All failures")).click()
    expect(page.get_by_label("Search failures")).to_have_value("")
    page.get_by_role("link", name="All views").click()
    page.get_by_role("button", name="Delete Network, open").click()
    expect(page.get_by_text("Deleted Network, open")).to_be_visible()
    page.keyboard.press("z")
    expect(page.get_by_text("The view is as it was.")).to_be_visible()
    expect(page.get_by_role("link", name="Network, open")).to_be_visible()


def test_from_a_repeat_to_the_node_to_a_note(signed_page: Page, live_server: Any, fleet: None) -> None:
    page = signed_page
    page.goto(f"{live_server.url}/?q=domain:hardware")
    page.locator("a.badge.repeat").first.click()
    page.wait_for_url(re.compile("/nodes/"))
    expect(page.get_by_role("heading", name="Worse than the fleet?")).to_be_visible()
    page.get_by_label("What was seen or done").fill("Reseated the cable")
    page.get_by_role("button", name="Drained").click()
    expect(page.locator("main > header .status")).to_contain_text("Drained")
    expect(page.locator(".thread")).to_contain_text("Reseated the cable")
    page.get_by_role("button", name="Return to service").click()
    expect(page.locator("main > header .status")).to_contain_text("In service")
    page.keyboard.press("g")
    page.keyboard.press("n")
    page.wait_for_url(re.compile("/nodes/$"))
    expect(page.get_by_role("table")).to_contain_text("to")


def test_figures_of_insights_and_rules_lead_to_lists(signed_page: Page, live_server: Any, fleet: None) -> None:
    page = signed_page
    page.goto(f"{live_server.url}/insights/")
    figure = page.locator("table.days a.plain").first
    count = figure.inner_text()
    figure.click()
    expect(page.locator(".page-head p")).to_contain_text(re.compile(rf"^{count} attempts?"))
    page.goto(f"{live_server.url}/rules/")
    page.locator("table.days th a").first.click()
    expect(page.get_by_role("heading", name="Examples")).to_be_visible()
    page.get_by_role("link", name=re.compile(r"times? the root")).click()
    expect(page.get_by_label("Search failures")).to_have_value(re.compile("^rule:"))


def test_searching_and_acting_on_many_need_no_script(plain_page: Page, live_server: Any, fleet: None) -> None:
    page = plain_page
    page.goto(f"{live_server.url}/?q=")
    page.get_by_label("Search failures").fill("domain:hardware is:unconfirmed")
    page.get_by_role("button", name="Search").click()
    page.locator("input[name='pick']").first.check()
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_text("1 attempt confirmed")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Took back 1 confirmation")).to_be_visible()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Ran for").check()
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("columnheader", name="Ran for")).to_be_visible()
