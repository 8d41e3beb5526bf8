"""axe finds nothing serious in either theme, and no page scrolls sideways on a phone."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.core.management import call_command
from playwright.sync_api import Page

from tests.e2e.conftest import Triaged
from triage.models import Attempt, Incident
from triage.templatetags.fleet import node_url

pytestmark = pytest.mark.browser

SAMPLES_SHOWN = ("hw-nvlink-xid149-node02", "net-nccl-status12-no-cause", "hw-thermal-throttle-degraded")


def addresses(triaged: Triaged, imported: Triaged) -> list[str]:
    found = ["/", "/?domain=storage", "/upload/"]
    for name in SAMPLES_SHOWN:
        attempt = triaged(name)
        found.append(f"/attempts/{attempt.pk}/")
        found += [f"/attempts/{attempt.pk}/evidence/{ref}/" for ref in list(attempt.diagnosis.evidence)[:1]]
    found.append(f"/attempts/{imported('net-ib-link-down').pk}/")
    call_command("seed_fleet", attempts=400, nodes=40, days=60, verbosity=0)
    named = Attempt.objects.exclude(blamed_nodes=[]).select_related("cluster").latest("sort_at")
    found += ["/?q=", "/?q=domain:hardwear", "/?q=&cols=ran,outcome,queue,nodes,rule", "/?q=domain:storage+user:nobody"]
    found += [
        node_url(named.blamed_nodes[0], named.cluster.name),
        "/nodes/",
        "/nodes/?q=none-like-it",
        "/nodes/unknown/",
    ]
    found += ["/insights/", "/insights/?queue=nobody", "/rules/", "/rules/xid.149/", "/rules/xid.event/", "/views/"]
    found += ["/incidents/", "/incidents/?view=mine", f"/incidents/{named_incident()}/", "/sources/", "/notifications/"]
    return [*found, "/nowhere/", f"/attempts/{attempt.pk}/streams/{attempt.streams.first().name}"]


def named_incident() -> int:
    return Incident.objects.filter(attempts_count__gt=1).latest("last_at").pk


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    signed_page: Page, live_server: Any, triaged: Triaged, imported: Triaged, theme: str
) -> None:
    page = signed_page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    findings = []
    for address in addresses(triaged, imported):
        page.goto(live_server.url + address)
        page.evaluate("document.querySelectorAll('main details').forEach(part => part.open = true)")
        page.evaluate("window.scrollTo(0, 0)")  # what the sticky header covers would count as too small to hit
        answer = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}).response
        for violation in answer["violations"]:
            if violation["impact"] in ("serious", "critical"):
                findings += [(address, violation["id"], node["html"][:160]) for node in violation["nodes"][:3]]
    assert findings == []


@pytest.mark.parametrize("width", [320, 390])
def test_no_page_scrolls_sideways_on_a_phone(
    signed_page: Page, live_server: Any, triaged: Triaged, imported: Triaged, width: int
) -> None:
    page = signed_page
    page.set_viewport_size({"width": width, "height": 800})
    wide = []
    for address in addresses(triaged, imported):
        page.goto(live_server.url + address)
        found = page.evaluate("document.documentElement.scrollWidth")
        if found > width:
            wide.append((address, found))
    assert wide == []
