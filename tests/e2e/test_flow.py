"""Failures -> attempt -> evidence -> back, as a person on call does it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Triaged, back

pytestmark = pytest.mark.browser


def test_from_the_list_to_the_decisive_line_and_back(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    attempt = triaged()
    triaged("net-slurm-time-limit")
    page = signed_page
    page.goto(f"{live_server.url}/")
    page.get_by_label(re.compile("^Hardware")).check()
    page.wait_for_url(re.compile(r"domain=hardware"))
    expect(page.locator(".failures tbody tr")).to_have_count(1)

    page.locator(".failures .why > a").click()
    expect(page.locator("h1")).to_contain_text("node-02")
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text("Failed")
    expect(verdict).to_contain_text("NVLink")
    expect(verdict).to_contain_text("0000:61:00")
    expect(verdict).to_contain_text("--exclude=node-02")
    symptoms = page.get_by_role("region", name="Symptoms")
    for node in ("node-01", "node-03", "node-04"):
        expect(symptoms).to_contain_text(node)

    page.get_by_role("link", name="Open in the log").click()
    page.wait_for_url(re.compile(rf"/attempts/{attempt.pk}/evidence/e\d+/#L125$"))
    decisive = page.locator("#log .cause")
    expect(decisive).to_have_attribute("id", "L125")
    expect(decisive).to_contain_text("149, NETIR_LINK_EVT")
    expect(decisive).to_be_in_viewport()
    expect(page.locator("h1")).to_contain_text("syslog/node-02.log")
    lanes = page.get_by_role("complementary", name="Other streams at the same moment")
    expect(lanes.get_by_text("syslog/node-04.log")).to_be_visible()

    back(page)
    expect(page.locator(".verdict h1")).to_be_visible()
    back(page)
    expect(page.locator(".failures tbody tr")).to_have_count(1)
    expect(page.get_by_label(re.compile("^Hardware"))).to_be_checked()
    expect(page.locator("html")).to_have_count(1)


def test_a_mark_of_the_timeline_opens_its_line(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    attempt = triaged()
    signed_page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    signed_page.locator("svg.fig a:has(path.root)").first.click()
    expect(signed_page.locator("#log .cause")).to_contain_text("NETIR_LINK_EVT")


def test_more_lines_come_both_ways_without_moving_the_line_one_reads(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    attempt = triaged()
    page = signed_page
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/streams/applog/node-04.log?line=1000#L1000")
    expect(page.locator("#log > li[id]")).to_have_count(51)
    page.get_by_role("link", name="Lines 925 to 974").click()
    expect(page.locator("#L925")).to_have_count(1)
    page.get_by_role("link", name="Lines 1,026 to 1,075").click()
    expect(page.locator("#L1075")).to_have_count(1)
    numbers = page.locator("#log > li[id]").evaluate_all("lines => lines.map(line => Number(line.id.slice(1)))")
    assert numbers == list(range(925, 1076))
    expect(page.get_by_role("link", name="Lines 875 to 924")).to_be_attached()
    assert "/streams/" in page.url and "lines/" not in page.url


def test_a_permalink_opens_at_its_line_and_wrapping_lasts(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    attempt = triaged()
    page = signed_page
    address = f"{live_server.url}/attempts/{attempt.pk}/streams/applog/node-04.log"
    page.goto(f"{address}?line=1768#L1768")
    expect(page.locator("#L1768")).to_be_in_viewport()
    page.get_by_role("button", name="Wrap").click()
    expect(page.locator("#log")).to_have_class(re.compile("wrap-on"))
    page.get_by_label("Go to a line, lines or a time").fill("3")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.locator("#L3")).to_have_class(re.compile("cause"))
    expect(page.locator("#log")).to_have_class(re.compile("wrap-on"))
    page.locator("#L5 .ln").click()
    assert page.url.endswith("#L5")


def test_the_theme_is_kept_from_the_first_byte_on(signed_page: Page, live_server: Any) -> None:
    page = signed_page
    page.goto(f"{live_server.url}/")
    page.get_by_label("preferences and account").click()
    with page.expect_response(re.compile("/preferences/")):
        page.get_by_label("Theme").select_option("dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert 'data-theme="dark"' in page.request.get(f"{live_server.url}/").text()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 22)"


def test_signing_in_returns_to_where_one_wanted_to_go_and_out_again(page: Page, live_server: Any, demo: object) -> None:
    page.goto(f"{live_server.url}/upload/")
    expect(page.get_by_text("You will return to /upload/")).to_be_visible()
    page.get_by_label("Name").fill("demo")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("That did not work")
    page.get_by_label("Password").fill("demo")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{live_server.url}/upload/")
    page.get_by_label("preferences and account").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(re.compile("/sign-in/"))
    page.goto(f"{live_server.url}/")
    page.wait_for_url(re.compile("/sign-in/"))
