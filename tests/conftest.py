"""Servers and browser for the whole test session.

Settings hold the addresses of the servers, so these are fixed when this file is loaded, and only then Django is set up:
DJANGO_SETTINGS_MODULE stays out of pytest's configuration, where pytest-django would read it earlier. The servers start
with the first test that needs them. With DATABASE_URL or REDIS_URL set, that server is used instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest
from playwright._impl._driver import compute_driver_executable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triage.supervisor.errors import DemoError
from triage.supervisor.folder import Folder
from triage.supervisor.postgres import Postgres
from triage.supervisor.process import stop_all
from triage.supervisor.servers import start
from triage.supervisor.valkey import Valkey

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BROWSER_FIXTURES = {"page", "context", "browser", "new_context"}

folder = Folder(Path(tempfile.mkdtemp(prefix="faultline-tests-")))
folder.create()
(folder.root / "static").mkdir()  # else WhiteNoise warns in each test
postgres = None if os.environ.get("DATABASE_URL") else Postgres(folder, throwaway=True)
valkey = None if os.environ.get("REDIS_URL") else Valkey(folder, throwaway=True)
if postgres:
    os.environ["DATABASE_URL"] = postgres.url
if valkey:
    os.environ["REDIS_URL"] = valkey.url
os.environ["FAULTLINE_STATE_DIR"] = str(folder.root)
os.environ["FAULTLINE_FIGURES_SECONDS"] = "0"  # a test looks at once at what it did
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # Playwright's synchronous API runs an event loop in the test's thread
os.environ["DJANGO_SETTINGS_MODULE"] = "triage.settings"
django.setup()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a browser its tests are skipped; in CI that is an error."""
    with_browser = [item for item in items if _needs_browser(item)]
    if not with_browser:
        return
    reason = _why_no_browser()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        raise pytest.UsageError(f"{len(with_browser)} browser tests can't run: {reason}")
    for item in with_browser:
        item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_browser() -> str | None:
    if CHROMIUM is None:
        return "no Chromium on this machine (Debian: apt-get install chromium)"
    node, _ = compute_driver_executable()
    driver = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    if driver.returncode != 0:
        return f"Playwright's driver does not run (Debian: apt-get install libatomic1): {driver.stderr.strip()}"
    return None


def _needs_browser(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    return bool(fixtures & BROWSER_FIXTURES) or item.get_closest_marker("browser") is not None


def pytest_unconfigure() -> None:
    """The temporary folder goes last, when no server uses it any more."""
    shutil.rmtree(folder.root, ignore_errors=True)
    shutil.rmtree(folder.outside, ignore_errors=True)


def _served(server: Postgres | Valkey | None) -> Iterator[None]:
    if server is None:
        yield
        return
    url = server.url
    try:
        server.prepare()
        child = start(server)
    except DemoError as error:
        pytest.exit(f"{error}\n{error.tail}", returncode=3)
    if server.url == url:
        yield
    stop_all([child], grace=5)
    if server.url != url:
        pytest.exit(f"another program took the port that was chosen for {child.name}: run again", returncode=3)


@pytest.fixture(scope="session")
def broker() -> Iterator[None]:
    """A broker at REDIS_URL."""
    yield from _served(valkey)


@pytest.fixture(scope="session")
def database_server() -> Iterator[None]:
    """A PostgreSQL server at DATABASE_URL."""
    yield from _served(postgres)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, database_server: None, broker: None
) -> None:
    """pytest-django asks for this before it makes the test database."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """Tests of several processes empty the database after them, which the audit refuses."""
    from django.db import connection

    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE triage_auditentry DISABLE TRIGGER audit_is_never_emptied")


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """pytest-playwright drives the system's Chromium."""
    return {**browser_type_launch_args, "executable_path": CHROMIUM, "args": CHROMIUM_FLAGS}
