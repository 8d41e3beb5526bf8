"""manage.py import_bundle PATH...: folders and archives become attempts that are triaged."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from triage.services.bundles import ImportRefused, import_bundle


class Command(BaseCommand):
    help = (
        "Imports capture bundles (a folder, or .tar, .tar.gz, .tar.zst, .tar.xz, .zip) and asks for their triage. "
        "One that can't be read gets a line on standard error, the others are still imported, and the exit code is 2."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")

    def handle(self, *args: Any, paths: list[Path], **options: Any) -> None:
        refused = 0
        for path in paths:
            try:
                imported = import_bundle(path)
            except ImportRefused as error:
                refused += 1
                self.stderr.write(str(error))
                continue
            what = "new" if imported.created else "known"
            triage = "triage requested" if imported.requested else "nothing new"
            self.stdout.write(f"{path}: attempt {imported.attempt.pk} ({imported.attempt}), {what}, {triage}")
        if refused:
            sys.exit(2)
