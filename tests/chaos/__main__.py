"""`python -m tests.chaos --rounds N`: prints a line a round, writes JSON, ends with 1 when anything was lost."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.chaos.faults import FAULTS, CannotBeDone
from tests.chaos.installation import Installation, wait_for
from tests.chaos.load import KINDS, Sent, send_by_api, send_by_file, streams

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
    os.environ.update(installation.environment)
    os.environ["FAULTLINE_RULES"] = ""
    import django

    django.setup()
    from django.contrib.auth.models import User

    from triage.services.tokens import create_token

    return create_token(User.objects.create_user("chaos"), "chaos", ["ingest", "read"])[1]


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


def _round(
    installation: Installation, token: str, number: int, name: str, wanted: dict[str, tuple[str, str]],
    options: argparse.Namespace, chance: random.Random,
) -> dict[str, Any]:  # fmt: skip
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
        wait = chance.uniform(0, 4)
        threads.append(threading.Thread(target=_later, args=(wait, *work), name=workload))
    for thread in threads:
        thread.start()
    time.sleep(chance.uniform(0.2, 3))
    try:
        did = FAULTS[name](installation, chance)
    finally:
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
    figures, wrong = counted(sent, wanted, installation.data)
    return {
        "round": number + 1, "fault": name, "did": did, "counted": figures, "seconds": round(seconds, 1),
        "wrong": [*([late] if late else []), *wrong],
    }  # fmt: skip


def _later(wait: float, work: Any, *args: Any) -> None:
    time.sleep(wait)
    work(*args)


def _machine() -> dict[str, Any]:
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }


if __name__ == "__main__":
    sys.exit(main())
