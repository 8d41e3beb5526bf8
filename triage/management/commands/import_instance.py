"""manage.py import_instance FILE.tar: what another installation exported."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from triage.services.instance import InstanceRefused, import_instance


class Command(BaseCommand):
    help = (
        "Takes what `export_instance` wrote into an installation of the same version that has nothing yet, right after "
        "`migrate`. Run `verify` afterwards, then start web server, workers and beat."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, metavar="FILE")

    def handle(self, *args: Any, path: Path, **options: Any) -> None:
        try:
            counts = import_instance(path)
        except InstanceRefused as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}") from None
        rows = sum(count for name, count in counts.items() if name != "blobs")
        self.stdout.write(f"{path}: {rows} rows, {counts.get('blobs', 0)} streams imported; now run: manage.py verify")
