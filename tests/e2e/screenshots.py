"""Pictures of the pages with the ten samples, into docs/screenshots: `make screenshots`.

Not a test and not collected as one; it uses the tests' servers, samples and browser.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from playwright.sync_api import Browser

from tests.e2e.conftest import CANONICAL, SAMPLES, Triaged, sign_in
from tests.e2e.whole import lived_in, pages
from triage.models import Attempt
from triage.selectors.nodes import fleet
from triage.templatetags.fleet import node_url

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "screenshots"
SIZES = ((1440, 900), (390, 844))


NAMES = {"verdict-correct": "correct", "incident-report": "report", "attempt-share": "share"}
"""What pictures are called; others have the name of their route."""
OF_A_FLEET = ("compare", "node", "nodes", "insights", "rules", "rule")
"""Pages that say something only where many attempts failed."""


def test_take_pictures(browser: Browser, live_server: Any, boss: User, triaged: Triaged) -> None:
    """Every page there is, found as the tests find them, with the ten samples and what two people did."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    ids = {
        path.name.partition(".")[0]: triaged(path.name.partition(".")[0]) for path in sorted(SAMPLES.glob("*.tar.zst"))
    }
    canonical, other = ids[CANONICAL], ids["net-lustre-client-evicted"]
    maren = User.objects.create_user("maren", first_name="Maren", last_name="Vogt")
    values = lived_in(canonical, boss, maren, line=125, corrected=other)
    found = {
        **{NAMES.get(name, name): address for name, address in pages(boss, values).items() if name not in OF_A_FLEET},
        "attempt-unattributed": f"/attempts/{ids['net-nccl-status12-no-cause'].pk}/",
        "attempt-hung": f"/attempts/{ids['sw-fr-rank-stuck-in-save'].pk}/",
        "attempt-corrected": f"/attempts/{other.pk}/",
        "attempt-metrics": f"/attempts/{ids['hw-thermal-throttle-degraded'].pk}/metrics/",
    }
    found.pop("login", None)
    _take(browser, live_server.url, found, whole=("attempt",), back_to=f"/attempts/{canonical.pk}/")


def test_take_pictures_of_a_fleet(browser: Browser, live_server: Any, demo: object, transactional_db: None) -> None:
    call_command("seed_fleet", attempts=6000, nodes=160, days=84, verbosity=0)
    worst = fleet().nodes[0]
    address = node_url(worst.name, worst.cluster)
    again = Attempt.objects.filter(number__gt=1, domain="hardware").latest("sort_at")
    found = {
        "inbox": "/?q=ended:7d",
        "compare": f"/attempts/{again.pk}/compare/",
        "node": address,
        "nodes": "/nodes/",
        "insights": "/insights/",
        "rules": "/rules/",
        "rule": "/rules/xid.149/",
    }
    assert set(OF_A_FLEET) < set(found)
    _take(browser, live_server.url, found, whole=("node", "insights"))


def _take(browser: Browser, site: str, addresses: dict[str, str], *, whole: tuple[str, ...], back_to: str = "") -> None:
    """Every page in both sizes and themes; those in `whole` also from top to bottom; the sign-in that leads back."""
    for width, height in SIZES:
        for theme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)  # type: ignore[arg-type]
            page = context.new_page()
            if back_to:
                page.goto(f"{site}/sign-in/?next={back_to}")
                page.screenshot(path=FOLDER / f"sign-in-{theme}-{width}.png")
            sign_in(context, site)
            for name, address in addresses.items():
                page.goto(site + address)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=FOLDER / f"{name}-{theme}-{width}.png")
                if name in whole and width == SIZES[0][0]:
                    page.screenshot(path=FOLDER / f"{name}-{theme}-{width}-whole.png", full_page=True)
            context.close()
