"""Pictures of the pages with the ten samples, into docs/screenshots: `make screenshots`.

Not a test and not collected as one; it uses the tests' servers, samples and browser.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from playwright.sync_api import Browser

from tests.e2e.conftest import CANONICAL, SAMPLES, Triaged, sign_in
from triage.models import Attempt
from triage.selectors.nodes import fleet
from triage.services.comments import add_comment
from triage.services.incidents import assign, link_ticket, set_severity, set_status
from triage.services.quotes import read_quote
from triage.services.sharing import make_share, share_token
from triage.services.verdicts import Answer, correct
from triage.templatetags.fleet import node_url

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "screenshots"
SIZES = ((1440, 900), (390, 844))


def people_pages(ids: dict[str, int], demo: User) -> dict[str, str]:
    """Pages on which people have done something."""
    maren = User.objects.create_user("maren", first_name="Maren", last_name="Vogt")
    attempt, other = Attempt.objects.get(pk=ids[CANONICAL]), Attempt.objects.get(pk=ids["net-lustre-client-evicted"])
    correct(
        other.pk,
        maren,
        diagnosis_id=other.diagnosis_id or 0,
        seen=None,
        kind="wrong_cause",
        reason="The link of cn0109 flapped 38 s before the eviction; the switch's log shows it.",
        answer=Answer("network", "ethernet", "Link of cn0109 to the storage network flapped", ["cn0109"]),
    )
    incident = attempt.membership.incident
    set_status(incident.pk, maren, "investigating", seen="new")
    assign(incident.pk, maren, maren.pk, seen=None)
    set_severity(incident.pk, maren, 2, seen=None)
    quote = read_quote("syslog/node-02.log:125", attempt.pk)
    said = "Always link 10 of the same GPU. I drained node-02 and asked for a new cable. @demo restart, please."
    add_comment(attempt, maren, said, quotes=[quote])
    link_ticket(incident.pk, maren, url="https://tickets.example.org/browse/HW-2291", note="new cable, link 10")
    share = make_share(attempt, demo)
    return {
        "attempt-corrected": f"/attempts/{other.pk}/",
        "correct": f"/attempts/{attempt.pk}/correct/",
        "incidents": "/incidents/",
        "incident": f"/incidents/{incident.pk}/",
        "report": f"/incidents/{incident.pk}/report/",
        "share": f"/attempts/{attempt.pk}/share/",
        "shared": f"/s/{share_token(share)}/",
        "notifications": "/notifications/",
    }


def test_take_pictures(browser: Browser, live_server: Any, demo: User, triaged: Triaged, imported: Triaged) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    ids = {
        path.name.partition(".")[0]: triaged(path.name.partition(".")[0]).pk
        for path in sorted(SAMPLES.glob("*.tar.zst"))
    }
    canonical = ids[CANONICAL]
    pages = {
        "failures": "/",
        "attempt": f"/attempts/{canonical}/",
        "attempt-unattributed": f"/attempts/{ids['net-nccl-status12-no-cause']}/",
        "attempt-hung": f"/attempts/{ids['sw-fr-rank-stuck-in-save']}/",
        "evidence": f"/attempts/{canonical}/evidence/",
        "upload": "/upload/",
        **people_pages(ids, demo),
    }
    _take(browser, live_server.url, pages, whole=("attempt",), back_to=f"/attempts/{canonical}/")


def test_take_pictures_of_a_fleet(browser: Browser, live_server: Any, demo: object, transactional_db: None) -> None:
    call_command("seed_fleet", attempts=6000, nodes=160, days=84, verbosity=0)
    worst = fleet().nodes[0]
    address = node_url(worst.name, worst.cluster)
    pages = {
        "inbox": "/?q=ended:7d",
        "node": address,
        "nodes": "/nodes/",
        "insights": "/insights/",
        "rules": "/rules/",
        "rule": "/rules/xid.149/",
    }
    _take(browser, live_server.url, pages, whole=("node", "insights"))


def _take(browser: Browser, site: str, pages: dict[str, str], *, whole: tuple[str, ...], back_to: str = "") -> None:
    """Every page in both sizes and themes; those in `whole` also from top to bottom; the sign-in that leads back."""
    for width, height in SIZES:
        for theme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)  # type: ignore[arg-type]
            page = context.new_page()
            if back_to:
                page.goto(f"{site}/sign-in/?next={back_to}")
                page.screenshot(path=FOLDER / f"sign-in-{theme}-{width}.png")
            sign_in(context, site)
            for name, address in pages.items():
                page.goto(site + address)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=FOLDER / f"{name}-{theme}-{width}.png")
                if name in whole and width == SIZES[0][0]:
                    page.screenshot(path=FOLDER / f"{name}-{theme}-{width}-whole.png", full_page=True)
            context.close()
