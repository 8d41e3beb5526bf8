"""The three packages import each other in one direction only, and the engine stands alone."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = ["django", "rest_framework", "celery", "kombu", "redis", "valkey", "psycopg", "triage"]

IMPORT_ALL = """
import importlib, sys

class NotThere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {forbidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotThere())
for name in {modules!r}:
    importlib.import_module(name)
loaded = {forbidden!r} & {{name.partition(".")[0] for name in sys.modules}}
assert not loaded, loaded
print("imported", len({modules!r}))
"""


def modules_of(package: str) -> list[str]:
    found = pkgutil.walk_packages([str(ROOT / package)], prefix=f"{package}.")
    return [package, *(module.name for module in found if not module.name.endswith(".__main__"))]


@pytest.mark.parametrize(
    ("package", "absent"),
    [
        ("engine", {*FORBIDDEN, "connectors"}),
        ("connectors", set(FORBIDDEN)),
        ("triage.supervisor", {"django", "celery"}),
    ],
)
def test_every_module_is_imported_where_the_rest_is_not_installed(package: str, absent: set[str]) -> None:
    modules = [package, *modules_of(package.replace(".", "/"))[1:]]
    modules = [name.replace("/", ".") for name in modules]
    program = IMPORT_ALL.format(forbidden=absent, modules=modules)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"imported {len(modules)}\n"
    assert len(modules) > 5


def test_the_blocker_of_that_test_blocks() -> None:
    program = IMPORT_ALL.format(forbidden={"django"}, modules=["django.conf"])
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "No module named 'django'" in done.stderr


def test_the_import_contracts_hold() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout
