"""Logs and metrics in a browser: search, ranges, folds, what a mark means, lanes, plots, comparison, time zones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Triaged, back, work
from triage.models import Attempt
from triage.services.bundles import import_bundle

pytestmark = pytest.mark.browser

THERMAL = "hw-thermal-throttle-degraded"
SYSLOG = "syslog/node-02.log"
HOSTILE = (
    b"2026-10-05T02:00:00Z <script>alert(1)</script> needle \x1b[31mred\x1b[0m \xe2\x80\xaeabc\n"
    + b"2026-10-05T02:00:01Z "
    + b"w" * 1_000_000
    + b" needle \n"
    + b"".join(b"2026-10-05T02:00:%02dZ tick %d\n" % (2 + n % 50, n) for n in range(3000))
)


def hostile(tmp_path: Path) -> Attempt:
    bundle = tmp_path / "probe"
    (bundle / "applog").mkdir(parents=True)
    (bundle / "attempt.yaml").write_text(
        "schema: 1\n"
        'workload: {id: "7001", name: "<b>probe</b>", scheduler: static, cluster: lab, user: ada}\n'
        "attempt: {number: 1, state: FAILED, started_at: 2026-10-05T02:00:00Z, ended_at: 2026-10-05T03:00:00Z,"
        " nodes: [gx-01]}\n"
    )
    (bundle / "applog" / "out.log").write_bytes(HOSTILE)
    return work(import_bundle(bundle).attempt)


def stream_page(live_server: Any, attempt: Attempt, name: str = SYSLOG, query: str = "") -> str:
    return f"{live_server.url}/attempts/{attempt.pk}/streams/{name}{query}"


def test_a_search_is_walked_by_keyboard_and_survives_back(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page = signed_page
    page.goto(stream_page(live_server, triaged()))
    page.keyboard.press("/")
    page.keyboard.type("Link 10")
    page.keyboard.press("Enter")
    status = page.locator("#search-said [role=status]")
    expect(status).to_contain_text(re.compile(r"1 of \d+ matching lines, whole log searched"))
    first = page.url
    assert page.locator("#log mark").first.inner_text() == "Link 10"
    page.keyboard.press(".")
    expect(status).to_contain_text(re.compile(r"2 of \d+ matching lines"))
    page.keyboard.press(",")
    expect(status).to_contain_text(re.compile(r"1 of \d+ matching lines"))
    back(page)
    back(page)
    assert page.url == first
    page.goto(stream_page(live_server, triaged(), query="?q=(a%2B)%2B%5C1&regex=1"))
    expect(page.get_by_role("alert")).to_contain_text("back-reference")


def test_a_range_is_picked_copied_quoted_and_opened_again(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page, attempt = signed_page, triaged()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(stream_page(live_server, attempt, query="?line=125#L125"))
    page.locator("#L125 .ln").click()
    page.locator("#L131 .ln").click(modifiers=["Shift"])
    assert page.url.endswith("#L125-L131") and page.locator("#log .picked").count() == 7
    page.keyboard.press("y")
    expect(page.locator("#live")).to_contain_text("Copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.endswith(f"/attempts/{attempt.pk}/streams/{SYSLOG}?lines=125-131#L125-L131")
    page.goto(link)
    assert page.locator("#log .picked").count() == 7 and page.locator("#log .range").count() == 7
    page.get_by_role("link", name="Quote in a comment").click()
    expect(page.locator("#compose .quote.pending")).to_contain_text("lines 125 to 131")


def test_an_address_that_names_lines_elsewhere_in_the_log_shows_them(
    signed_page: Page, live_server: Any, demo: object, transactional_db: None, tmp_path: Path
) -> None:
    page, attempt = signed_page, hostile(tmp_path)
    page.goto(stream_page(live_server, attempt, "applog/out.log", "#L2000-L2003"))
    expect(page.locator("#log .picked")).to_have_count(4)
    assert page.locator("#L2000").is_visible()


def test_a_fold_opens_for_the_line_it_hides_and_a_mark_says_what_it_means(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    page = signed_page
    page.goto(stream_page(live_server, triaged(), query="?line=125"))
    folded = page.locator("#log details").first
    hidden = folded.locator("li[id]").nth(3)
    number = hidden.get_attribute("id")
    assert not hidden.is_visible()
    page.evaluate(f"location.hash = '{number}'")
    expect(hidden).to_be_visible()
    mark = page.locator("#L125 .mk button")
    mark.focus()
    page.keyboard.press("Enter")
    note = page.locator(".rule-note:popover-open")
    expect(note).to_contain_text("What it does not prove")
    page.keyboard.press("Escape")
    expect(note).to_have_count(0)


def test_reading_and_searching_need_no_script(
    new_context: Any, live_server: Any, demo: object, triaged: Triaged
) -> None:
    attempt = triaged()
    context = new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{live_server.url}/sign-in/?next=/attempts/{attempt.pk}/streams/{SYSLOG}")
    page.get_by_label("Name").fill("demo")
    page.get_by_label("Password").fill("demo")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Search in this log").fill(r"Xid.*149")
    page.get_by_label("Regex").check()
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("#search-said")).to_contain_text("whole log searched")
    page.get_by_label("Next matching line").click()
    expect(page.locator("#search-said")).to_contain_text("2 of")
    page.get_by_label("Go to a line, lines or a time").fill("04:11:57")
    page.get_by_role("button", name="Go", exact=True).click()
    assert page.url.endswith("#L125") and "line=125" in page.url
    page.locator("#log .fold summary").first.click()
    assert page.locator("#log details[open] li[id]").first.is_visible()
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/lanes/")
    assert page.locator("#log > li[id]").count() > 20
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/metrics/")
    expect(page.get_by_role("heading", name="No metrics")).to_be_visible()


def test_metrics_are_drawn_on_the_axis_of_the_timeline(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    page, attempt = signed_page, triaged(THERMAL)
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    plots = page.locator(".plot canvas")
    expect(plots.first).to_be_visible()
    assert plots.count() >= 3
    svg = page.locator(".scroll > svg.fig").bounding_box()
    over = page.locator(".plot .u-over").first.bounding_box()
    assert svg and over
    assert abs((over["x"] - svg["x"]) - svg["width"] * 96 / 904) < 2, "both begin at one place"
    assert abs(over["width"] - svg["width"] * 792 / 904) < 2, "and are as wide"
    head = page.locator(".plot .u-legend [role=button]").first
    head.focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-pressed", "false")
    page.get_by_role("link", name="all series as a table").click()
    expect(page.locator("table.figures tbody tr").first).to_contain_text("evidence")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_the_pages_of_logs(
    signed_page: Page, live_server: Any, triaged: Triaged, theme: str, tmp_path: Path
) -> None:
    page = signed_page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    attempt, thermal, odd = triaged(), triaged(THERMAL), hostile(tmp_path)
    addresses = [
        f"/attempts/{attempt.pk}/streams/{SYSLOG}?q=Link+10",
        f"/attempts/{attempt.pk}/streams/{SYSLOG}?lines=125-131",
        f"/attempts/{attempt.pk}/streams/{SYSLOG}?jump=nonsense",
        f"/attempts/{attempt.pk}/streams/{SYSLOG}?q=%5B&regex=1",
        f"/attempts/{attempt.pk}/lanes/",
        f"/attempts/{attempt.pk}/compare/?base={thermal.pk}",
        f"/attempts/{attempt.pk}/compare/",
        f"/attempts/{thermal.pk}/",
        f"/attempts/{thermal.pk}/metrics/",
        f"/attempts/{odd.pk}/streams/applog/out.log?q=needle",
        f"/attempts/{odd.pk}/lanes/",
    ]
    findings = []
    for address in addresses:
        page.goto(live_server.url + address)
        if page.locator("[data-metrics]").count():
            page.locator("[data-metrics][data-ready]").wait_for()
        page.evaluate("document.querySelectorAll('main details').forEach(part => part.open = true)")
        page.evaluate("window.scrollTo(0, 0)")
        answer = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}).response
        for violation in answer["violations"]:
            if violation["impact"] in ("serious", "critical"):
                findings += [(address, violation["id"], node["html"][:160]) for node in violation["nodes"][:3]]
        assert page.locator("script:not([src])").count() == 0
    assert findings == []


@pytest.mark.parametrize("width", [320, 390])
def test_no_page_of_logs_scrolls_sideways_on_a_phone(
    signed_page: Page, live_server: Any, triaged: Triaged, width: int, tmp_path: Path
) -> None:
    page = signed_page
    page.set_viewport_size({"width": width, "height": 800})
    attempt, thermal, odd = triaged(), triaged(THERMAL), hostile(tmp_path)
    wide = []
    for address in (
        f"/attempts/{attempt.pk}/streams/{SYSLOG}?q=Link+10",
        f"/attempts/{attempt.pk}/lanes/",
        f"/attempts/{attempt.pk}/compare/?base={thermal.pk}",
        f"/attempts/{thermal.pk}/",
        f"/attempts/{thermal.pk}/metrics/",
        f"/attempts/{odd.pk}/streams/applog/out.log?q=needle",
        f"/attempts/{odd.pk}/lanes/",
    ):
        page.goto(live_server.url + address)
        if page.locator("[data-metrics]").count():
            page.locator("[data-metrics][data-ready]").wait_for()
        found = page.evaluate("document.documentElement.scrollWidth")
        if found > width:
            wide.append((address, found))
    assert wide == []


def test_a_long_log_is_read_on_by_scrolling_and_the_page_stays_small(
    signed_page: Page, live_server: Any, demo: object, transactional_db: None, tmp_path: Path
) -> None:
    page, attempt = signed_page, hostile(tmp_path)
    page.goto(stream_page(live_server, attempt, "applog/out.log", "?first=100&last=1099"))
    assert page.locator("#log li[id]").count() == 1000
    page.locator("#L1099").scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    assert page.locator("#log li[id]").count() == 1000, "nothing comes by itself"
    box = page.locator("#L1099").bounding_box()
    assert box
    page.mouse.move(box["x"] + 300, box["y"])
    for last in range(1149, 1700, 50):
        page.mouse.wheel(0, 2000)
        expect(page.locator(f"#L{last}")).to_be_attached()
    assert page.locator("#log li[id]").count() <= 1500
    assert page.locator("#L100").count() == 0
    up = page.locator("#log a[data-more=up]")
    first = page.locator("#log li[id]").first.get_attribute("id")
    assert first
    up.click()
    expect(page.locator(f"#L{int(first[1:]) - 1}")).to_be_attached()


def test_a_long_log_is_read_back_by_scrolling_up_and_the_line_in_view_stays_there(
    signed_page: Page, live_server: Any, demo: object, transactional_db: None, tmp_path: Path
) -> None:
    page, attempt = signed_page, hostile(tmp_path)
    page.goto(stream_page(live_server, attempt, "applog/out.log", "?line=2000#L2000"))
    expect(page.locator("#L2000")).to_be_in_viewport()
    page.locator("#L1980").scroll_into_view_if_needed()
    box = page.locator("#L1980").bounding_box()
    assert box and page.locator("#L1974").count() == 0
    page.mouse.move(box["x"] + 300, box["y"])
    page.mouse.wheel(0, -40)
    expect(page.locator("#L1925")).to_be_attached()
    after = page.locator("#L1980").bounding_box()
    assert after and abs(after["y"] - box["y"]) < 90, "it moved by the wheel alone"
    for first in range(1875, 1000, -50):
        page.mouse.wheel(0, -2000)
        expect(page.locator(f"#L{first}")).to_be_attached()
    assert page.locator("#log li[id]").count() <= 1500


def test_the_strip_leads_to_any_place_of_the_log(
    signed_page: Page, live_server: Any, demo: object, transactional_db: None, tmp_path: Path
) -> None:
    page, attempt = signed_page, hostile(tmp_path)
    page.goto(stream_page(live_server, attempt, "applog/out.log"))
    strip = page.locator("svg.ruler")
    box = strip.bounding_box()
    assert box
    strip.click(position={"x": box["width"] * 0.75, "y": 12})
    page.wait_for_url(re.compile(r"line=22[45]\d#L22[45]\d$"))
    expect(page.locator("#log .cause")).to_be_in_viewport()
