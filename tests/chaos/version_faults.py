"""Two versions at once: what a deployment is while it goes on, and what is left of one that is taken back."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import psycopg

from tests.chaos.installation import PROJECT, WORKERS, Installation
from tests.chaos.old import old_code

ALL = ("web", *WORKERS, "beat")
WAITS = """
SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ILIKE ANY (ARRAY['ALTER %', 'CREATE %'])
"""


def side_by_side(installation: Installation, chance: random.Random) -> str:
    """Some processes are of the version before, on the schema of today and beside the new ones; then they are new."""
    folder, version = old_code(installation.root / "old")
    names = chance.sample(ALL, chance.randint(1, 3))
    for name in names:
        installation.replace(name, folder)
        time.sleep(chance.uniform(0, 1))
    seconds = chance.uniform(5, 9)
    time.sleep(seconds)
    for name in chance.sample(names, len(names)):
        installation.replace(name, installation.first_code)
        time.sleep(chance.uniform(0, 1))
    return f"{', '.join(names)} of the version before ({version}) beside the new ones for {seconds:.0f} s, then new"


def deployment(installation: Installation, chance: random.Random) -> str:
    """Of an installation that is of the version before in everything: the schema is migrated, which is interrupted
    twice, while the old processes work; they work on the new schema; then one after the other is replaced.
    """
    killed = sum(_interrupted(installation, chance) for _ in range(2))
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--no-input"], cwd=PROJECT, env=installation.environment, text=True,
        capture_output=True, check=False, timeout=180,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"migrate: {done.stdout}{done.stderr}")
    seconds = chance.uniform(1, 4)
    time.sleep(seconds)
    for name in chance.sample(ALL, len(ALL)):
        installation.replace(name, PROJECT)
        time.sleep(chance.uniform(0, 2))
    installation.first_code = PROJECT
    return (
        f"migrated with the old version at work, killed {killed} times in the middle; old version on the new schema "
        f"for {seconds:.0f} s, then web, workers and beat replaced one by one"
    )


def _interrupted(installation: Installation, chance: random.Random) -> bool:
    """Kills `migrate` while it waits for a table that is in use, or works; False when it was faster."""
    with psycopg.connect(installation.direct["DATABASE_URL"]) as user, psycopg.connect(
        installation.direct["DATABASE_URL"], autocommit=True
    ) as looks:  # fmt: skip
        user.execute("LOCK TABLE triage_attempt, triage_diagnosis, triage_collection IN ROW EXCLUSIVE MODE")
        argv = [sys.executable, "manage.py", "migrate", "--no-input"]
        with subprocess.Popen(
            argv, cwd=PROJECT, env=installation.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as one:
            while one.poll() is None and looks.execute(WAITS).fetchone() is None:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 1))
            killed = one.poll() is None
            one.kill()
        user.rollback()
    return killed
