"""manage.py cluster check NAME: runs every source once. manage.py cluster list: what is configured."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from connectors.base import ConfigError
from triage.models import Discovery
from triage.services.checking import SECONDS, SourceAnswer, check_cluster, configuration_errors
from triage.services.sources import configuration

_WORDS = {"ok": "works", "empty": "works", "partial": "works in part", "missing": "fails", "error": "fails"}


class Command(BaseCommand):
    help = (
        "check NAME: asks every source of a cluster once and says what works, how long it took, and for what does not, "
        "what to change (exit code 1). list: the configured clusters, their sources, and how their searches go."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        check = actions.add_parser("check", help="asks every source of a cluster once")
        check.add_argument("name", metavar="NAME")
        check.add_argument("--seconds", type=float, default=SECONDS, help=f"for each source; default {SECONDS:.0f}")
        actions.add_parser("list", help="what is configured")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        if action == "list":
            self._list()
        else:
            self._check(options["name"], options["seconds"])

    def _check(self, name: str, seconds: float) -> None:
        errors = configuration_errors(name)
        for error in errors:
            self.stderr.write(error)
        try:
            checks = check_cluster(name, seconds)
        except ConfigError as error:
            raise CommandError(str(error)) from None
        width = max((len(check.source) for check in checks), default=0)
        for check in checks:
            self.stdout.write(_line(check, width))
            for query in filter(None, check.report.query.split("\n")[:3]):
                self.stdout.write(f"{'':{width}}    asked: {query[:200]}")
        failed = [check for check in checks if not check.works]
        self.stdout.write(f"{len(checks) - len(failed)} of {len(checks)} sources of {name} work")
        if failed or errors:
            sys.exit(1)

    def _list(self) -> None:
        found = configuration()
        self.stdout.write(f"read from {found.path or 'nothing: there is no faultline.toml'}")
        for error in found.errors:
            self.stderr.write(error)
        searches = {row.connector: row for row in Discovery.objects.all()}
        for cluster in found.clusters.values():
            self.stdout.write(f"{cluster.name} ({cluster.time_zone})")
            for source in cluster.sources:
                self.stdout.write(f"  {source.name} ({source.kind}){_search(searches.get(source.key), source.finds)}")
        if found.errors:
            sys.exit(1)


def _line(check: SourceAnswer, width: int) -> str:
    report = check.report
    note = f": {report.note}" if report.note else ""
    return f"{check.source:{width}}  {_WORDS.get(report.status, report.status)} ({report.duration_s:.2f} s){note}"


def _search(row: Discovery | None, finds: bool) -> str:
    if not finds:
        return ""
    if row is None or row.last_run_at is None:
        return ", not searched yet"
    said = f", searched at {row.last_run_at:%Y-%m-%d %H:%M:%S} UTC, {row.last_found} found"
    return said + (f", last error: {row.last_error}" if row.last_error else "")
