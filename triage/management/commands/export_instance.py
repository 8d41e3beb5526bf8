"""manage.py export_instance FILE.tar: everything, to be taken into another installation."""

from __future__ import annotations

from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from triage.management.moving import moved
from triage.services.instance import export_instance


class Command(BaseCommand):
    help = (
        "Writes every row and every raw stream to one new .tar, of one moment, while everything runs. It holds all "
        "that the database holds (hashes of passwords and tokens too): keep it like a backup."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, metavar="FILE")
        parser.add_argument("--without-streams", action="store_true", help="only the rows; evidence is in them")

    def handle(self, *args: Any, path: Path, **options: Any) -> None:
        said = moved(path, partial(export_instance, path, streams=not options["without_streams"]))
        self.stdout.write(f"{said} exported")
