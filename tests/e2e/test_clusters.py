"""Setting clusters up and checking them in a browser, with and without script; axe and narrow screens."""

from __future__ import annotations

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from triage.models import CheckState, SourceCheck
from triage.services.checking import run_check
from triage.services.clusters import save_cluster, save_source

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("boss")]

PROMQL = 'url = "http://127.0.0.1:9"\n'


def set_up(page: Page, site: str) -> None:
    """A cluster with a source that fails, by the forms."""
    page.goto(f"{site}/")
    page.get_by_label("preferences and account").click()
    page.get_by_role("link", name="Clusters: set up and check").click()
    page.get_by_role("link", name="Add a cluster").first.click()
    page.get_by_label("Name", exact=True).fill("gpu-west")
    page.get_by_label("Time zone").fill("Mars/Olympus")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("is no time zone, like Europe/Zurich")).to_be_visible()
    page.get_by_label("Time zone").fill("America/Los_Angeles")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Add a source").click()
    page.get_by_role("link", name="Prometheus and the like").click()
    page.get_by_label("Its keys").fill(PROMQL)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved promql")).to_be_visible()


def test_a_check_is_started_and_followed_without_reloading(signed_page: Page, live_server: Any) -> None:
    page = signed_page
    set_up(page, live_server.url)
    page.get_by_role("button", name="Check every source").click()
    expect(page.get_by_text("0 of 1 answered")).to_be_visible()
    page.evaluate("window.untouched = true")
    row = SourceCheck.objects.get()
    SourceCheck.objects.update(state=CheckState.ASKING, began_at=row.check_of.asked_at)
    expect(page.get_by_text("Being asked")).to_be_visible()
    SourceCheck.objects.update(state=CheckState.WAITING, began_at=None)
    run_check(row.pk, seconds=5)
    expect(page.get_by_text("refuses connections: it is down, or url names a wrong port")).to_be_visible()
    expect(page.get_by_role("button", name="Check again")).to_be_visible()
    assert page.evaluate("window.untouched")


def test_it_works_without_script(plain_page: Page, live_server: Any) -> None:
    page = plain_page
    set_up(page, live_server.url)
    page.get_by_role("button", name="Check every source").click()
    expect(page.get_by_text("Waiting for a worker")).to_be_visible()
    run_check(SourceCheck.objects.get().pk, seconds=5)
    expect(page.get_by_text("refuses connections")).to_be_visible(timeout=15_000)  # the page reloads itself
    page.get_by_role("link", name="promql").click()
    page.get_by_role("button", name="Remove this source").click()
    expect(page.get_by_text("No source yet")).to_be_visible()
    assert re.search(r"/clusters/gpu-west/$", page.url)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_scrolls_sideways(
    signed_page: Page, live_server: Any, boss: User, theme: str
) -> None:
    save_cluster("gpu-west", {"live": "1h"}, boss, new=True)
    save_source("gpu-west", "promql", "promql", PROMQL, boss)
    save_source("gpu-west", "slurm", "slurm", "", boss)
    page = signed_page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.goto(f"{live_server.url}/clusters/gpu-west/")
    page.get_by_role("button", name="Check every source").click()
    run_check(SourceCheck.objects.get(source="promql").pk, seconds=5)
    trouble = []
    for address in (
        "/clusters/", "/clusters/-/add/", "/clusters/gpu-west/", "/clusters/gpu-west/edit/",
        "/clusters/gpu-west/sources/", "/clusters/gpu-west/sources/?kind=loki", "/clusters/gpu-west/sources/promql/",
    ):  # fmt: skip
        for width in (1440, 390, 320):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(live_server.url + address)
            page.evaluate("document.querySelectorAll('main details').forEach(part => part.open = true)")
            if page.evaluate("document.documentElement.scrollWidth") > width:
                trouble.append((address, width, "scrolls sideways"))
        rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
        answer = Axe().run(page, options={"runOnly": rules}).response
        trouble += [(address, found["id"], found["nodes"][0]["html"][:160]) for found in answer["violations"]]
    assert trouble == []
