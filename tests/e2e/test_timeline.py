"""The timeline in a browser: dragged, zoomed by key, filtered; Back undoes each step; the plots follow."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Triaged, back

pytestmark = pytest.mark.browser
THERMAL = "hw-thermal-throttle-degraded"


def picture(page: Page) -> Any:
    return page.locator("svg.timeline")


def drag(page: Page, first: float, last: float, over: str = "svg.timeline") -> None:
    """Over these parts of the axis, from 0 to 1."""
    page.locator(over).first.scroll_into_view_if_needed()
    page.evaluate("window.scrollBy(0, -120)")
    box = page.locator(over).first.bounding_box()
    assert box
    left, width = box["x"], box["width"]
    if over == "svg.timeline":
        left, width = box["x"] + width * 96 / 904, width * 792 / 904
    y = box["y"] + box["height"] * 0.75
    page.mouse.move(left + width * first, y)
    page.mouse.down()
    page.mouse.move(left + width * (first + last) / 2, y, steps=3)
    page.mouse.move(left + width * last, y, steps=3)
    page.mouse.up()


def test_a_drag_zooms_to_that_part_and_back_undoes_it(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    page, attempt = signed_page, triaged()
    address = f"{live_server.url}/attempts/{attempt.pk}/"
    page.goto(address)
    expect(picture(page)).to_contain_text("times wider")
    drag(page, 0.9, 1.0)
    page.wait_for_url(re.compile(r"from=2026-11-03T04%3A2"))
    expect(picture(page)).not_to_contain_text("times wider")
    expect(page.locator("#tl-from")).to_have_value(re.compile(r"2026-11-03 04:2\d:"))
    expect(page.locator("#live")).to_contain_text("symptom")
    first = page.url
    page.locator("#tl-in").click()
    page.wait_for_url(lambda url: url != first)
    back(page)
    page.wait_for_url(first)
    expect(page.locator("#tl-from")).to_have_value(re.compile(r"2026-11-03 04:2\d:"))
    back(page)
    page.wait_for_url(address)
    expect(picture(page)).to_contain_text("times wider")
    expect(page.get_by_role("banner")).to_be_visible()


def test_the_keyboard_zooms_moves_and_returns_while_the_picture_has_the_focus(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = signed_page, triaged()
    address = f"{live_server.url}/attempts/{attempt.pk}/"
    page.goto(address)
    region = page.locator("#tl-picture")
    region.focus()
    steps = (("+", "tl-out"), ("Shift+ArrowLeft", "tl-later"), ("-", "tl-whole"))
    for key, shown in steps:
        before = page.url
        page.keyboard.press(key)
        page.wait_for_url(lambda url, before=before: url != before)
        expect(page.locator(f"#{shown}")).to_be_attached()
        expect(region).to_be_focused()
    page.keyboard.press("0")
    page.wait_for_url(address)
    expect(page.locator("#tl-whole")).to_have_attribute("aria-current", "true")


def test_a_key_pressed_the_moment_the_answer_stands_there_acts_within_the_page(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = signed_page, triaged()
    address = f"{live_server.url}/attempts/{attempt.pk}/"
    page.goto(address)
    page.evaluate("""() => new MutationObserver((_, seen) => {
        if (!document.getElementById("tl-out")) return;
        seen.disconnect();
        document.body.dataset.pressed = location.href;
        document.getElementById("tl-picture").dispatchEvent(new KeyboardEvent("keydown", {key: "0", bubbles: true}));
    }).observe(document.getElementById("timeline").parentNode, {childList: true})""")
    page.locator("#tl-picture").focus()
    page.keyboard.press("+")
    expect(page.locator("body")).to_have_attribute("data-pressed", re.compile("from="))  # gone if the page was left
    expect(page.locator("#tl-out")).to_have_count(0)
    page.wait_for_url(address)
    expect(page.locator("body")).to_have_attribute("data-pressed", re.compile("from="))


def test_a_button_that_goes_away_leaves_the_focus_beside_it(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = signed_page, triaged()
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/?from=04:00&to=04:22:31")
    out = page.locator("#tl-out")
    for _ in range(6):
        if not out.count():
            break
        before = page.url
        out.focus()
        page.keyboard.press("Enter")
        page.wait_for_url(lambda url, before=before: url != before)
    expect(page.locator("#tl-whole")).to_be_focused()


def test_kinds_and_lanes_are_chosen_at_once_and_the_table_says_the_same(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = signed_page, triaged()
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    page.get_by_text("Timeline as a table").click()
    page.get_by_label(re.compile("other line")).uncheck()
    expect(picture(page).locator("circle.ctx")).to_have_count(0)
    table = page.locator("#tl-table")
    expect(table).to_have_attribute("open", "")
    expect(table).not_to_contain_text("Lustre")
    page.get_by_label("Lanes", exact=True).select_option("rank")
    expect(picture(page)).to_contain_text("rank 24")
    page.get_by_label("Only these lanes").fill("11, 24-25")
    page.keyboard.press("Enter")
    expect(picture(page).locator("text.m")).to_have_text(
        [re.compile("rank 11"), re.compile("rank 24"), re.compile("rank 25")]
    )
    page.reload()
    expect(picture(page).locator("text.m")).to_have_count(3)


def test_a_click_on_a_mark_still_opens_its_line(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    page, attempt = signed_page, triaged()
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/?from=04:11&to=04:13")
    picture(page).locator("a:has(path.root)").click()
    expect(page.locator("#log .cause")).to_contain_text("NETIR_LINK_EVT")
    back(page)
    expect(page.locator("#tl-from")).to_have_value("2026-11-03 04:11:00")


def test_the_plots_have_the_part_of_the_timeline_and_a_drag_over_them_zooms_both(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = signed_page, triaged(THERMAL)
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    ready = page.locator("[data-metrics][data-ready]")
    ready.wait_for()
    drag(page, 0.35, 0.6, ".plot .u-over")
    page.wait_for_url(re.compile("from="))
    expect(page.locator("#tl-out")).to_be_attached()
    ready.wait_for()
    svg, over = picture(page).bounding_box(), page.locator(".plot .u-over").first.bounding_box()
    assert svg and over
    assert abs((over["x"] - svg["x"]) - svg["width"] * 96 / 904) < 2
    assert abs(over["width"] - svg["width"] * 792 / 904) < 2
    assert any(re.fullmatch(r"10:\d\d", text) for text in picture(page).locator("text").all_text_contents())
    page.locator(".plot .u-over").first.dblclick(position={"x": 5, "y": 5})
    expect(page.locator("#tl-whole")).to_have_attribute("aria-current", "true")


def test_without_script_the_timeline_is_zoomed_and_filtered_by_links_and_a_form(
    plain_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = plain_page, triaged()
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    page.get_by_role("link", name="The failure").click()
    expect(page.locator("#tl-failure")).to_have_attribute("aria-current", "true")
    expect(page.locator("#timeline")).to_be_in_viewport()
    page.get_by_label(re.compile("^ ?clean-up")).uncheck()
    page.get_by_label("Lanes", exact=True).select_option("rank")
    page.get_by_role("button", name="Show", exact=True).first.click()
    expect(picture(page)).to_contain_text("rank 24")
    expect(picture(page).locator("path.tear")).to_have_count(0)
    expect(page.locator("#tl-from")).to_have_value(re.compile("2026-11-03 04:1"))
