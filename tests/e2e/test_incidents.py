"""Incidents in a browser: found, narrowed, taken, changed and taken back, discussed with lines picked in a log."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Triaged, back
from triage.models import Comment, Incident
from triage.services.comments import add_comment

pytestmark = pytest.mark.browser


def test_the_list_is_narrowed_and_back_widens_it_again(signed_page: Page, live_server: Any, fleet: None) -> None:
    page = signed_page
    page.goto(f"{live_server.url}/incidents/")
    page.keyboard.press("/")
    page.keyboard.type("Xid")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"\?q=Xid&sort=last$"))
    expect(page.locator(".incidents .why > a").first).to_contain_text("Xid")
    page.get_by_label("Order by").select_option("lost")
    page.wait_for_url(re.compile("sort=lost"))
    expect(page.get_by_label("Search incidents")).to_have_value("Xid")
    page.get_by_label("Severity", exact=True).select_option("1")
    expect(page.get_by_role("heading", name="No incident matches")).to_be_visible()
    back(page)
    expect(page.get_by_label("Severity", exact=True)).to_have_value("")
    back(page)
    expect(page.get_by_label("Order by")).to_have_value("last")


def test_it_is_taken_changed_and_a_slip_is_undone(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    incident = triaged().membership.incident
    page = signed_page
    page.goto(f"{live_server.url}/incidents/{incident.pk}/")
    page.get_by_role("button", name="Take it").click()
    expect(page.get_by_text("Saved: assignee.")).to_be_visible()
    page.get_by_label("Status", exact=True).select_option("resolved")
    page.get_by_label("Why, when the status changes").fill("cable reseated")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#thread")).to_contain_text("set it to resolved: cable reseated")
    page.keyboard.press("z")
    expect(page.get_by_text("As before: status.")).to_be_visible()
    incident.refresh_from_db()
    assert incident.status == "new" and incident.assignee == User.objects.get(username="demo")


def test_lines_picked_in_a_log_are_quoted_on_the_incident(
    signed_page: Page, live_server: Any, triaged: Triaged
) -> None:
    attempt = triaged()
    incident = attempt.membership.incident
    page = signed_page
    page.goto(f"{live_server.url}/attempts/{attempt.pk}/evidence/e1/")
    page.locator("#L125 .ln").click()
    page.locator("#L126 .ln").click(modifiers=["Shift"])
    page.get_by_role("link", name=f"Quote on {incident.name}").click()
    page.wait_for_url(re.compile(rf"/incidents/{incident.pk}/\?quote="))
    expect(page.locator(".quote.pending")).to_contain_text("lines 125 to 126")
    page.get_by_label("Add a comment").fill("The same link as last week.")
    page.get_by_role("button", name="Comment", exact=True).click()
    said = page.locator("#thread article").filter(has_text="The same link")
    expect(said.locator("blockquote")).to_contain_text("149, NETIR_LINK_EVT")
    said.locator("cite a").click()
    page.wait_for_url(re.compile(r"#L125-L126$"))
    assert Comment.objects.get().incident == incident


def test_two_people_at_once_see_each_others_words(signed_page: Page, live_server: Any, triaged: Triaged) -> None:
    incident = triaged().membership.incident
    page = signed_page
    page.clock.install()
    page.goto(f"{live_server.url}/incidents/{incident.pk}/")
    owen = User.objects.create_user("owen", first_name="Owen")
    Incident.objects.filter(pk=incident.pk).update(status="mitigated")
    add_comment(incident, owen, "Cable ordered.")
    page.clock.run_for(16_000)
    expect(page.locator("#thread")).to_contain_text("Cable ordered.")
    page.get_by_label("Status", exact=True).select_option("investigating")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Meanwhile the status became mitigated. Yours was not saved.")).to_be_visible()
