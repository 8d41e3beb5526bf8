"""manage.py prune [--dry-run]: what the policies of faultline.toml no longer keep goes."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.template.defaultfilters import filesizeformat

from triage.retention import KINDS
from triage.services.retention import due, prune
from triage.services.sources import configuration


class Command(BaseCommand):
    help = (
        "Removes what [retention] in faultline.toml says is no longer kept, by cluster and kind, as beat has it done "
        "every hour. --dry-run says what would go, and changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        found = configuration()
        wrong = [error for error in found.errors if "[retention" in error]
        for error in wrong:
            self.stderr.write(error)
        if wrong:
            self.stderr.write("nothing is removed until this is right")
            sys.exit(1)
        shares = due() if dry_run else prune()
        if not shares:
            self.stdout.write("no policy: everything is kept (docs/operators.md, Retention)")
            return
        width = max(len(share.cluster or "(no cluster)") for share in shares)
        for share in shares:
            size = f", {filesizeformat(share.bytes)} ({share.bytes} bytes)" if share.kind != "personal" else ""
            name = share.cluster or "(no cluster)"
            self.stdout.write(
                f"{name:{width}}  {share.kind:9}  after {share.keep_days:g} days: {share.rows} rows{size}"
                f"  ({KINDS[share.kind]})"
            )
        total = sum(share.bytes for share in shares)
        verb = "would go" if dry_run else "went"
        self.stdout.write(f"{sum(share.rows for share in shares)} rows, {filesizeformat(total)} {verb}")
