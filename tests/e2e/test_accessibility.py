"""axe finds nothing serious in either theme on any page there is, and no page scrolls sideways on a phone."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from django.core.management import call_command
from playwright.sync_api import Page

from tests.e2e.conftest import Triaged
from tests.e2e.whole import TOO_WIDE, Values, lived_in, pages
from triage.models import Attempt, Incident
from triage.templatetags.fleet import node_url

pytestmark = pytest.mark.browser

SAMPLES_SHOWN = ("net-nccl-status12-no-cause", "hw-thermal-throttle-degraded")
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture
def values(boss: User, triaged: Triaged) -> Values:
    """What people did with one attempt, as the addresses of routes take it."""
    return lived_in(triaged(), boss, User.objects.create_user("maren", first_name="Maren", last_name="Vogt"))


@pytest.fixture
def addresses(boss: User, values: Values, triaged: Triaged, imported: Triaged) -> list[str]:
    """Every page there is, and states that only some addresses show: empty, filtered, wrong, still collecting."""
    found = list(pages(boss, values).values())
    found += [f"/attempts/{triaged(name).pk}/" for name in SAMPLES_SHOWN]
    found.append(f"/attempts/{imported('net-ib-link-down').pk}/")
    call_command("seed_fleet", attempts=400, nodes=40, days=60, verbosity=0)
    named = Attempt.objects.exclude(blamed_nodes=[]).exclude(workload__name="").latest("sort_at")
    several = Incident.objects.filter(attempts_count__gt=1).latest("last_at")
    found += ["/?domain=storage", "/?q=", "/?q=domain:hardwear", "/?q=&cols=ran,outcome,queue,nodes,rule"]
    found += ["/?q=domain:storage+user:nobody", node_url(named.blamed_nodes[0], named.cluster.name), "/nodes/unknown/"]
    found += ["/nodes/?q=none-like-it", "/insights/?queue=nobody", "/insights/", "/rules/xid.event/", "/nowhere/"]
    found += ["/incidents/?view=mine", "/incidents/?status=resolved", f"/incidents/{several.pk}/?kind=system"]
    found += [f"/s/{values['shared incident']}/", "/s/no-such-link/", "/rules/?q=no+such+rule"]
    return found


def test_axe_finds_nothing_serious_in_either_theme(signed_page: Page, live_server: Any, addresses: list[str]) -> None:
    page = signed_page
    findings = []
    for address in addresses:
        page.goto(live_server.url + address)
        page.evaluate("document.querySelectorAll('main details').forEach(part => part.open = true)")
        page.evaluate("window.scrollTo(0, 0)")  # what the sticky header covers would count as too small to hit
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
            answer = Axe().run(page, options={"runOnly": LEVELS}).response
            for violation in answer["violations"]:
                if violation["impact"] in ("serious", "critical"):
                    named = [(node["html"][:160], node["failureSummary"][:300]) for node in violation["nodes"][:3]]
                    findings.append((address, theme, violation["id"], named))
    assert not findings, "\n".join(map(str, findings))


def test_no_page_scrolls_sideways_on_a_phone(signed_page: Page, live_server: Any, addresses: list[str]) -> None:
    page = signed_page
    wide = []
    for address in addresses:
        for width in (320, 390):
            page.set_viewport_size({"width": width, "height": 800})
            if width == 320:
                page.goto(live_server.url + address)
            found = page.evaluate(TOO_WIDE)
            if found:
                wide.append((address, width, found))
    assert not wide, "\n".join(map(str, wide))
