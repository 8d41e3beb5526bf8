"""What renews itself: progress, the list, an expired session."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from playwright.sync_api import Page, expect

from tests.e2e.conftest import SAMPLES, Triaged, work
from triage.models import Attempt

pytestmark = pytest.mark.browser


def poll_now(page: Page) -> None:
    """Let the list's poll happen now instead of in ten seconds."""
    page.evaluate(
        "htmx.ajax('GET', document.getElementById('poll').getAttribute('hx-get'), {source: '#poll', swap: 'outerHTML'})"
    )


def test_progress_turns_into_the_verdict_by_itself(signed_page: Page, live_server: Any, imported: Triaged) -> None:
    attempt = imported()
    page = signed_page
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/")
    expect(page.get_by_role("heading", name="Waiting for a worker")).to_be_visible()
    work(attempt)
    expect(page.locator(".verdict h1")).to_contain_text("node-02")


def test_new_failures_are_announced_and_nothing_moves_under_the_cursor(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    first = triaged("net-slurm-time-limit")
    page = signed_page
    page.goto(f"{live_server.url}/")
    row = page.locator(f"#a-{first.pk}")
    row.locator(".why > a").focus()
    before = page.evaluate("document.querySelector('.failures tbody').innerHTML")
    newer = triaged()
    Attempt.objects.filter(pk=newer.pk).update(ended_at="2027-01-01T00:00:00Z")
    poll_now(page)
    expect(page.locator("#news")).to_contain_text("1 new")
    assert page.evaluate("document.querySelector('.failures tbody').innerHTML") == before
    expect(row.locator(".why > a")).to_be_focused()
    page.get_by_role("link", name="Show it").click()
    expect(page.locator(".failures tbody tr").first).to_have_id(f"a-{newer.pk}")


def test_a_waiting_row_becomes_a_verdict_in_its_place(signed_page: Page, live_server: Any, imported: Triaged) -> None:
    attempt = imported()
    page = signed_page
    page.goto(f"{live_server.url}/")
    row = page.locator(f"#a-{attempt.pk}")
    expect(row).to_contain_text("Not diagnosed yet")
    work(attempt)
    poll_now(page)
    expect(row).to_contain_text("node-02")
    expect(row).not_to_contain_text("Not diagnosed yet")
    expect(page.locator(".failures tbody tr")).to_have_count(1)


def test_an_expired_session_leads_to_sign_in_and_back(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    triaged()
    page = signed_page
    page.goto(f"{live_server.url}/?domain=hardware")
    Session.objects.all().delete()
    poll_now(page)
    page.wait_for_url(re.compile("/sign-in/"))
    page.get_by_label("Name").fill("demo")
    page.get_by_label("Password").fill("demo")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{live_server.url}/?domain=hardware")


def test_an_upload_lands_on_its_attempt(signed_page: Page, live_server: Any, transactional_db: None) -> None:
    page = signed_page
    page.goto(f"{live_server.url}/upload/")
    page.get_by_label("Archive or files").set_input_files(SAMPLES / "hw-nvlink-xid149-node02.tar.zst")
    expect(page.locator("#chosen")).to_contain_text("hw-nvlink-xid149-node02.tar.zst")
    page.get_by_role("button", name="Diagnose").click()
    page.wait_for_url(re.compile(r"/attempts/\d+/$"))
    expect(page.get_by_role("heading", name="Waiting for a worker")).to_be_visible()
    work(Attempt.objects.get())
    expect(page.locator(".verdict h1")).to_contain_text("node-02")


def test_a_refused_upload_names_the_file_and_keeps_the_form(
    signed_page: Page, live_server: Any, transactional_db: None, tmp_path: Any
) -> None:
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(b"not an archive")
    page = signed_page
    page.goto(f"{live_server.url}/upload/")
    page.get_by_label("Archive or files").set_input_files(broken)
    page.get_by_label("Workload", exact=True).fill("my job")
    page.get_by_role("button", name="Diagnose").click()
    expect(page.get_by_role("alert")).to_contain_text("broken.tar.gz")
    expect(page.get_by_label("Workload", exact=True)).to_have_value("my job")
    assert not Attempt.objects.exists()
