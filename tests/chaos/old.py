"""The version before: the newest whose database looked otherwise, out of the repository's history."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.chaos.installation import PROJECT, CannotBeDone

NAME = ".version"


def old_code(folder: Path) -> tuple[Path, str]:
    """Its files in `folder`, and its name: the commit before the newest migration; where that one needs other packages
    than ours, the oldest that doesn't. Raises CannotBeDone where there is no such history: in a shallow clone, or
    an archive.
    """
    if (folder / NAME).exists():
        return folder, (folder / NAME).read_text()
    migrated = _git("log", "-1", "--diff-filter=A", "--format=%H^", "--", "triage/migrations/0*.py")
    packed = _git("log", "-1", "--format=%H", "--", "requirements/base.txt")
    for ref in filter(None, (migrated, packed)):
        name = _git("rev-parse", "--short", "--verify", "--quiet", f"{ref}^{{commit}}")
        if not name or name == _git("rev-parse", "--short", "HEAD"):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        archive = subprocess.run(["git", "archive", name], cwd=PROJECT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
        asked = [sys.executable, "-c", "import django; django.setup(); import triage.tasks, triage.urls"]
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "triage.settings"}
        if subprocess.run(asked, cwd=folder, env=environment, capture_output=True, check=False).returncode == 0:
            (folder / NAME).write_text(name)
            return folder, name
    raise CannotBeDone("needs the version before out of the repository's history: git fetch --unshallow")


def migrations(code: Path) -> set[str]:
    """Names of the migrations that a version has."""
    return {path.stem for path in (code / "triage" / "migrations").glob("0*.py")}


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
