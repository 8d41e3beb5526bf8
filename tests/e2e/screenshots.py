"""Pictures of the pages with the ten samples, into docs/screenshots: `make screenshots`.

Not a test and not collected as one; it uses the tests' servers, samples and browser.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.e2e.conftest import CANONICAL, SAMPLES, Triaged, sign_in

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "screenshots"
SIZES = ((1440, 900), (390, 844))


def test_take_pictures(browser: Browser, live_server: Any, demo: object, triaged: Triaged, imported: Triaged) -> None:
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
    }
    for width, height in SIZES:
        for theme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(f"{live_server.url}/sign-in/?next=/attempts/{canonical}/")
            page.screenshot(path=FOLDER / f"sign-in-{theme}-{width}.png")
            sign_in(context, live_server.url)
            for name, address in pages.items():
                page.goto(live_server.url + address)
                page.wait_for_load_state("networkidle")
                page.screenshot(path=FOLDER / f"{name}-{theme}-{width}.png")
                if name == "attempt" and width == SIZES[0][0]:
                    page.screenshot(path=FOLDER / f"{name}-{theme}-{width}-whole.png", full_page=True)
            context.close()
