"""`python -m tests.chaos --rounds N`: prints a line a round, writes JSON, ends with 1 when anything was lost."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.chaos.faults import FAULTS, OF_THE_VERSION_BEFORE
from tests.chaos.installation import PROJECT, CannotBeDone, Installation, wait_for
from tests.chaos.load import KINDS, Sent, send_by_api, send_by_file, streams
from tests.chaos.machine_faults import right_clocks
from tests.chaos.old import migrations, old_code

QUIET = 150.0
"""Seconds after the mending within which everything must be done."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=len(FAULTS), help="default: one of each fault")
    parser.add_argument("--attempts", type=int, default=10, help="in each round")
    parser.add_argument("--lines", type=int, default=3000, help="of each log")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", choices=FAULTS, action="append", help="only this fault; may be repeated")
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--keep", action="store_true", help="keep the folder when something is wrong")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    began = time.monotonic()
    installation = Installation(small_disk=True)
    rounds: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    try:
        installation.start()
        token = _set_up(installation)
        wanted = _without_trouble(options.lines)
        names = options.only or list(FAULTS)
        for number in range(options.rounds):
            name = names[number % len(names)]
            if name in skipped:
                continue
            try:
                if name in OF_THE_VERSION_BEFORE:
                    done = _round_of_old(installation, number, name, wanted, options, chance)
                else:
                    done = _round(installation, token, number, name, wanted, options, chance)
            except CannotBeDone as error:
                skipped[name] = str(error)
                print(f"      skipped: {name}: {error}", flush=True)
                continue
            rounds.append(done)
            verdict = "nothing lost" if not done["wrong"] else f"{len(done['wrong'])} WRONG"
            counts = ", ".join(f"{count} {what}" for what, count in done["counted"].items())
            print(
                f"{number + 1:4}  {done['did']}: {counts}; quiet after {done['seconds']:.0f} s; {verdict}", flush=True
            )
            for line in done["wrong"]:
                print(f"        {line}", flush=True)
    finally:
        wrong = sum(len(done["wrong"]) for done in rounds)
        installation.stop(keep=options.keep and (wrong > 0 or sys.exc_info()[0] is not None))
        if options.json:
            report = {"machine": _machine(), "options": {**vars(options), "json": None}, "rounds": rounds,
                      "skipped": skipped, "seconds": round(time.monotonic() - began)}  # fmt: skip
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{len(rounds)} rounds, {wrong} wrong, {len(skipped)} kinds skipped, {time.monotonic() - began:.0f} s")
    return 1 if wrong or not rounds else 0


def _set_up(installation: Installation) -> str:
    """Django for the ledger, and a token for the clients."""
    os.environ.update(installation.direct)
    os.environ["FAULTLINE_RULES"] = ""
    import django

    django.setup()
    return _token(installation)


def _token(installation: Installation) -> str:
    code = (
        "from django.contrib.auth.models import User; from triage.services.tokens import create_token; "
        "print(create_token(User.objects.create_user('chaos'), 'chaos', ['ingest', 'read'])[1])"
    )
    return installation.manage("shell", "--no-imports", "-c", code).strip().splitlines()[-1]


def _without_trouble(lines: int) -> dict[str, tuple[str, str]]:
    """Domain and rule of each kind of attempt, by the engine alone."""
    from io import BytesIO

    from engine.diagnose import diagnose
    from engine.model import Attempt, Source, Stream, Workload
    from engine.ruleset import load_ruleset

    rules, found = load_ruleset(), {}
    at = datetime.datetime(2026, 11, 3, 2, tzinfo=datetime.UTC).timestamp()
    facts = Attempt(
        workload=Workload(id="1", name="llama-7b", scheduler="slurm", cluster="c", user="ada"),
        state="FAILED", exit_code="1:0", started_at=at, ended_at=at + 8551, nodes=("gx-01", "gx-02"), gpus_per_node=8,
    )  # fmt: skip
    for kind in KINDS:
        logs = [
            Stream(
                name=name, source=Source(name.split("/")[0]), open=lambda content=content: BytesIO(content),  # type: ignore[misc]
                size=len(content), node="gx-02" if name.startswith("syslog") else None,
            )
            for name, content in streams(kind, "1", lines).items()
        ]  # fmt: skip
        diagnosis = diagnose(facts, logs, rules)
        root = diagnosis.root_cause
        found[kind] = (diagnosis.domain, root.rule if root else "")
    return found


def _round_of_old(
    shared: Installation, number: int, name: str, wanted: dict[str, tuple[str, str]], options: argparse.Namespace,
    chance: random.Random,
) -> dict[str, Any]:  # fmt: skip
    """A round with an installation of its own, which is of the version before at first. Raises CannotBeDone."""
    code, version = old_code(shared.root / "old")
    if not migrations(PROJECT) - migrations(code):
        raise CannotBeDone(f"the version before ({version}) has the same schema")
    own = Installation(small_disk=False, code=code)
    try:
        own.start()
        token = _token(own)
        _look_at(own)
        return _round(own, token, number, name, wanted, options, chance, spread=30)
    finally:
        _look_at(shared)
        own.stop()


def _look_at(installation: Installation) -> None:
    """The ledger counts in this installation from now on."""
    from django.conf import settings
    from django.db import connections

    from triage import env

    connections["default"].close()
    connections["default"].settings_dict.update(env.database(installation.direct["DATABASE_URL"]) | {"OPTIONS": {}})
    settings.FAULTLINE_DATA_DIR = installation.data


def _round(
    installation: Installation, token: str, number: int, name: str, wanted: dict[str, tuple[str, str]],
    options: argparse.Namespace, chance: random.Random, *, spread: float = 4.0,
) -> dict[str, Any]:  # fmt: skip
    """Attempts arrive within `spread` seconds; meanwhile something is done, and mended; then it is counted."""
    from tests.chaos.ledger import at_work, counted

    sent, kinds = Sent(), list(KINDS)
    threads = []
    for index in range(options.attempts):
        workload, kind = f"{number:04}-{index:03}", kinds[index % len(kinds)]
        lines = options.lines * (4 if index == 0 else 1)
        if index % 2:
            work = (send_by_file, installation.watched, sent, workload, kind, lines)
        else:
            work = (send_by_api, installation.url, token, sent, workload, kind, lines)
        wait = chance.uniform(0, spread)
        threads.append(threading.Thread(target=_later, args=(wait, sent, workload, *work), name=workload))
    right_clocks(installation)
    for thread in threads:
        thread.start()
    time.sleep(chance.uniform(0.2, 3))
    try:
        did = FAULTS[name](installation, chance)
    finally:
        ended = installation.ended()
        installation.mend()
        for thread in threads:
            thread.join()
    mended = time.monotonic()
    late = ""
    try:
        wait_for(lambda: not at_work(sent), QUIET, lambda: "")
    except TimeoutError:
        late = f"{at_work(sent)} attempts are not at their end {QUIET:.0f} s after everything was mended"
    seconds = time.monotonic() - mended
    time.sleep(1.5)  # what a frozen or repeated task may still do, it does now
    ended += installation.ended()
    figures, wrong = counted(sent, wanted, installation.data)
    wrong += ended
    return {
        "round": number + 1, "fault": name, "did": did, "counted": figures, "seconds": round(seconds, 1),
        "wrong": [*([late] if late else []), *wrong],
    }  # fmt: skip


def _later(wait: float, sent: Sent, workload: str, work: Any, *args: Any) -> None:
    time.sleep(wait)
    try:
        work(*args)
    except BaseException as error:  # a client that ends so is as wrong as one that is refused
        with sent.lock:
            sent.gave_up.append(f"{workload}: {type(error).__name__}: {error}")
        raise


def _machine() -> dict[str, Any]:
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": _version(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }


def _version() -> str:
    """The commit that was tried; empty where there is no history."""
    words = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
