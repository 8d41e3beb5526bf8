"""manage.py verify: is what is kept still what was written?"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.template.defaultfilters import filesizeformat

from triage.services.integrity import verify
from triage.services.retention import remove_unused

SHOWN = 200


class Command(BaseCommand):
    help = (
        "Reads every stream and holds it against its hash, every piece of evidence against its line, every answer "
        "against its rows. A line for what is wrong; exit code 1 when anything is. Changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--since", metavar="TIME", help="only attempts that became known since then, ISO 8601")
        parser.add_argument("--quick", action="store_true", help="don't read the streams whole, only their evidence")
        parser.add_argument("--remove-unused", action="store_true", help="remove files that no stream names")

    def handle(self, *args: Any, since: str | None, quick: bool, **options: Any) -> None:
        try:
            begin = datetime.fromisoformat(since) if since else None
        except ValueError:
            raise CommandError(f"--since: {since} is no time such as 2026-11-03T06:42") from None
        if begin is not None and begin.tzinfo is None:
            begin = begin.replace(tzinfo=UTC)
        found = verify(since=begin, files=not quick)
        for problem in found.problems[:SHOWN]:
            self.stderr.write(problem)
        if len(found.problems) > SHOWN:
            self.stderr.write(f"and {len(found.problems) - SHOWN} more")
        for key in found.unused[:SHOWN]:
            self.stdout.write(f"no stream names {key}")
        if options["remove_unused"]:
            self.stdout.write(f"removed {len(remove_unused(found.unused))} files that no stream names")
        self.stdout.write(
            f"looked at {found.streams} streams ({filesizeformat(found.bytes)}), {found.diagnoses} diagnoses and "
            f"{found.lines} lines of evidence: {len(found.problems)} problems, {len(found.unused)} files that no "
            "stream names"
        )
        if found.problems:
            sys.exit(1)
