"""Every page works with JavaScript off."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.e2e.conftest import SAMPLES, Triaged, work
from tests.e2e.whole import lived_in, pages
from triage.models import Attempt

pytestmark = pytest.mark.browser


def test_the_list_filters_and_the_way_to_the_line_need_no_script(
    plain_page: Page, live_server: Any, triaged: Triaged
) -> None:
    attempt = triaged()
    triaged("net-slurm-time-limit")
    page = plain_page
    page.goto(f"{live_server.url}/")
    page.get_by_label(re.compile("^Hardware")).check()
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".failures tbody tr")).to_have_count(1)
    page.locator(".failures .why > a").click()
    expect(page.locator(".verdict h1")).to_contain_text("node-02")
    page.get_by_text("Timeline as a table").click()
    page.get_by_role("link", name="Open in the log").click()
    expect(page.locator("#L125")).to_be_in_viewport()
    page.get_by_role("link", name="What the other streams said").click()
    expect(page.get_by_role("link", name="syslog/node-04.log")).to_be_visible()
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/streams/applog/node-04.log?line=1000#L1000")
    page.get_by_role("link", name="Lines 925 to 974").click()
    expect(page.locator("#log > li[id]")).to_have_count(101)


def test_progress_reloads_itself(plain_page: Page, live_server: Any, imported: Triaged) -> None:
    attempt = imported()
    page = plain_page
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    expect(page.get_by_role("heading", name="Waiting for a worker")).to_be_visible()
    work(attempt)
    expect(page.locator(".verdict h1")).to_contain_text("node-02", timeout=15_000)


def test_upload_and_theme_need_no_script(plain_page: Page, live_server: Any, transactional_db: None) -> None:
    page = plain_page
    page.goto(f"{live_server.url}/upload/")
    page.get_by_label("Archive or files").set_input_files(SAMPLES / "net-slurm-time-limit.tar.zst")
    page.get_by_role("button", name="Diagnose").click()
    page.wait_for_url(re.compile(r"/attempts/\d+/$"))
    assert Attempt.objects.count() == 1
    page.get_by_label("preferences and account").click()
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_every_page_is_read_and_its_forms_are_sent_without_script(
    plain_page: Page, live_server: Any, boss: User, triaged: Triaged
) -> None:
    """Each page there is says what it is, shows nothing that only script could do, and has a button for each form."""
    values = lived_in(triaged(), boss, User.objects.create_user("maren", first_name="Maren", last_name="Vogt"))
    wrong = []
    for name, address in pages(boss, values).items():
        plain_page.goto(live_server.url + address)
        if not plain_page.locator("h1").first.inner_text().strip():
            wrong.append(f"{name}: no heading")
        if plain_page.locator("[data-script]:visible").count():
            wrong.append(f"{name}: {plain_page.locator('[data-script]:visible').first.inner_text()}")
        for form in plain_page.locator("form").all():
            own = form.get_attribute("id")
            button = "button:not([type=button]), input[type=submit]"
            outside = plain_page.locator(f"button[form='{own}']") if own else None
            if not form.locator(button).count() and not (outside and outside.count()):
                wrong.append(f"{name}: a form without a button, {form.get_attribute('action')}")
    assert not wrong, "\n".join(wrong)
