"""manage.py doctor: what is wrong with this installation, and how to mend it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any, ClassVar

import msgspec
from django.core.management.base import BaseCommand

from triage.doctor import BAD, DOUBTFUL, OK, look


class Command(BaseCommand):
    help = (
        "Looks at settings, database, broker, workers, beat, folders, clocks, rules and configuration, and says how to "
        "mend what is not well. Exit code 1 when something is bad. Run it with the same environment, and as the "
        "same user, as web server and workers."
    )
    requires_system_checks: ClassVar[list[str]] = []  # it is for when they fail

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--sources", action="store_true", help="ask every source of every cluster once, too")
        parser.add_argument("--json", action="store_true", help="one object a line")

    def handle(self, *args: Any, sources: bool, json: bool, **options: Any) -> None:
        count = {OK: 0, DOUBTFUL: 0, BAD: 0}
        for said in look(ask_sources=sources):
            count[said.state] += 1
            if json:
                self.stdout.write(msgspec.json.encode(said).decode())
                continue
            self.stdout.write(f"{said.state:8}  {said.part}: {said.words}")
            if said.mend:
                self.stdout.write(f"{'':8}    {said.mend}")
        if not json:
            self.stdout.write(f"{count[OK]} well, {count[DOUBTFUL]} doubtful, {count[BAD]} bad")
        if count[BAD]:
            sys.exit(1)
