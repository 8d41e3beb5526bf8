"""manage.py import_instance FILE.tar: what another installation exported."""

from __future__ import annotations

from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from triage.management.moving import moved
from triage.services.instance import import_instance


class Command(BaseCommand):
    help = (
        "Takes what `export_instance` wrote into an installation of the same version that has nothing yet, right after "
        "`migrate`. Run `verify` afterwards, then start web server, workers and beat."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, metavar="FILE")

    def handle(self, *args: Any, path: Path, **options: Any) -> None:
        said = moved(path, partial(import_instance, path))
        self.stdout.write(f"{said} imported; now run: manage.py verify")
