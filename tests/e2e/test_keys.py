"""The main way with the keyboard alone, and the switch that turns single keys off."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Triaged

pytestmark = pytest.mark.browser


def test_the_list_and_the_decisive_line_are_reached_by_single_keys(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    triaged("net-slurm-time-limit")
    attempt = triaged()
    page = signed_page
    page.goto(f"{live_server.url}/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(f"#a-{attempt.pk}")).to_have_class("cursor")
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("o")
    page.wait_for_url(re.compile(rf"/attempts/{attempt.pk}/$"))
    page.keyboard.press("e")
    page.wait_for_url(re.compile(r"#L125$"))
    page.keyboard.press("n")
    page.wait_for_url(re.compile(r"/evidence/e2/"))
    page.keyboard.press("u")
    page.wait_for_url(re.compile(rf"/attempts/{attempt.pk}/$"))
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_url(f"{live_server.url}/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Shortcuts")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type("jjj?")
    expect(page.get_by_label("Search failures")).to_have_value("jjj?")


def test_from_a_narrowed_list_the_keys_go_on_within_it(signed_page: Page, live_server: Any, fleet: None) -> None:
    page = signed_page
    address = f"{live_server.url}/?q=domain:hardware&sort=lost"
    page.goto(address)
    ids = page.locator(".failures tbody tr").evaluate_all("rows => rows.map(row => row.id.slice(2))")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("o")
    page.wait_for_url(re.compile(rf"/attempts/{ids[1]}/$"))
    page.keyboard.press("j")
    page.wait_for_url(re.compile(rf"/attempts/{ids[2]}/$"))
    page.keyboard.press("k")
    page.wait_for_url(re.compile(rf"/attempts/{ids[1]}/$"))
    page.keyboard.press("k")
    page.wait_for_url(re.compile(rf"/attempts/{ids[0]}/$"))
    expect(page.get_by_role("link", name="Previous in the list")).to_be_hidden()
    page.keyboard.press("u")
    page.wait_for_url(address)
    expect(page.locator(".failures tr.cursor")).to_have_id(f"a-{ids[0]}")
    page.keyboard.press("j")
    expect(page.locator(".failures tr.cursor")).to_have_id(f"a-{ids[1]}")
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url(re.compile("/incidents/$"))
    page.keyboard.press("j")
    page.keyboard.press("o")
    page.wait_for_url(re.compile(r"/incidents/\d+/$"))
    first = page.url
    page.keyboard.press("j")
    page.wait_for_url(lambda url: url != first)
    page.keyboard.press("u")
    page.wait_for_url(re.compile("/incidents/$"))


def test_single_keys_can_be_switched_off(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    triaged()
    page = signed_page
    page.goto(f"{live_server.url}/")
    page.get_by_label("preferences and account").click()
    with page.expect_response(re.compile("/preferences/")):
        page.get_by_label("Single-key shortcuts").uncheck()
    page.reload()
    page.keyboard.press("j")
    page.keyboard.press("?")
    expect(page.locator(".failures .cursor")).to_have_count(0)
    expect(page.locator("#shortcuts")).to_be_hidden()


def test_the_first_tab_stop_skips_to_the_content_and_focus_is_seen(signed_page: Page, live_server: Any) -> None:
    page = signed_page
    page.goto(f"{live_server.url}/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Tab")
    width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert width == "2px"


def test_what_has_the_focus_is_never_beneath_the_header_that_stays(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    """WCAG 2.4.11, walking backwards through a long page."""
    page = signed_page
    page.goto(f"{live_server.url}/attempts/{triaged().pk}/")
    page.locator("main a, main button").last.focus()
    hidden = page.evaluate(
        """() => {
            const header = document.querySelector(".top"), wrong = []
            const inside = [...document.querySelectorAll("main a, main button, main input, main select, main summary")]
            for (const element of inside.reverse()) {
                if (!element.getClientRects().length) continue
                element.focus()
                const place = element.getBoundingClientRect()
                if (document.activeElement === element && place.bottom <= header.getBoundingClientRect().bottom)
                    wrong.push(element.textContent.trim().slice(0, 40))
            }
            return wrong
        }"""
    )
    assert hidden == []
    assert page.evaluate("getComputedStyle(document.querySelector('.top')).position") == "sticky"
