"""A real Chromium against the real site, with attempts that went through collecting and the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from triage.models import Attempt, TriageState
from triage.services.bundles import import_bundle
from triage.services.sources import forget_configuration, registry
from triage.services.triage import begin_triage
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import diagnose

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
CANONICAL = "hw-nvlink-xid149-node02"
Triaged = Callable[..., Attempt]


@pytest.fixture(autouse=True)
def data_dir(settings: Any, tmp_path: Path) -> Iterator[Path]:
    """The blob store and the spool of one test."""
    settings.FAULTLINE_DATA_DIR = tmp_path / "data"
    settings.ALLOWED_HOSTS = ["*"]
    settings.FAULTLINE_PAGE_HOSTS = ["*", "127.0.0.1"]
    registry.cache_clear()
    yield settings.FAULTLINE_DATA_DIR
    registry.cache_clear()


@pytest.fixture
def imported(transactional_db: None) -> Triaged:
    """A sample that has been received and waits: no worker runs in these tests unless `work` does its part."""
    return lambda name=CANONICAL: import_bundle(SAMPLES / f"{name}.tar.zst").attempt


def work(attempt: Attempt) -> Attempt:
    """What a worker does with an attempt, here and now."""
    begin_triage(attempt.pk)
    for collection in attempt.collections.all():
        collect(collection.pk)
    diagnose(attempt.pk)
    attempt.refresh_from_db()
    assert attempt.triage_state == TriageState.DONE, attempt.triage_reason
    return attempt


@pytest.fixture
def triaged(imported: Triaged) -> Triaged:
    """A sample with its diagnosis."""
    return lambda name=CANONICAL: work(imported(name))


@pytest.fixture
def fleet(transactional_db: None) -> None:
    """Many attempts, made up."""
    call_command("seed_fleet", attempts=400, nodes=40, days=30, verbosity=0)


@pytest.fixture
def demo(transactional_db: None) -> User:
    return User.objects.create_user("demo", password="demo")


@pytest.fixture
def boss(demo: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    """The demo user as an administrator, and no faultline.toml of anybody's."""
    demo.is_staff = True
    demo.save()
    (tmp_path / "faultline.toml").touch()
    monkeypatch.setenv("FAULTLINE_CONFIG", str(tmp_path / "faultline.toml"))
    forget_configuration()
    yield demo
    monkeypatch.undo()
    forget_configuration()


def sign_in(context: BrowserContext, site: str) -> None:
    page = context.new_page()
    page.goto(f"{site}/sign-in/")
    page.get_by_label("Name").fill("demo")
    page.get_by_label("Password").fill("demo")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{site}/")
    page.close()


def back(page: Page) -> None:
    """Back, until the page stands: where htmx had changed it, the address changes first, then all is loaded."""
    page.evaluate("""() => addEventListener("popstate", event => {
        if (event.state?.htmx) document.documentElement.dataset.leaving = "";
    }, {once: true, capture: true})""")
    page.go_back()
    expect(page.locator("html[data-leaving]")).to_have_count(0)
    page.wait_for_load_state()


@pytest.fixture
def signed_page(context: BrowserContext, live_server: Any, demo: User) -> Iterator[Page]:
    """A page of a person who has signed in. A script error or a breach of the policy in the console fails the test."""
    sign_in(context, live_server.url)
    page = context.new_page()
    trouble: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            trouble.append(message.text)

    page.on("console", listen)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.set_default_timeout(10_000)
    yield page
    expected = ("401 (Unauthorized)", "Failed to load resource", "422 (")
    assert [text for text in trouble if not any(word in text for word in expected)] == []


@pytest.fixture
def plain_page(browser: Browser, live_server: Any, demo: User) -> Iterator[Page]:
    """A page of a signed-in person whose browser runs no script."""
    context = browser.new_context(java_script_enabled=False)
    sign_in(context, live_server.url)
    page = context.new_page()
    page.set_default_timeout(10_000)
    yield page
    context.close()
