"""manage.py backfill CLUSTER --since 2026-11-01: attempts that ended before Faultline was there."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from connectors.base import ConnectorError, FindProblem, FoundAttempt
from triage.configuration import ClusterConfig, SourceConfig, duration
from triage.services.attempts import AttemptRefused
from triage.services.discovery import record_found
from triage.services.sources import configuration, make_connector

EVERY = 5.0


class Command(BaseCommand):
    help = (
        "Finds what ended on a cluster since a time (2026-11-01, 2026-11-01T08:00:00+01:00, or 7d), as far as its "
        "scheduler still knows, and asks for its triage. Can be run again, and beside the workers: what is known stays "
        "as it is. The searches of the workers are not moved by it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")
        parser.add_argument("--since", required=True, metavar="TIME")
        parser.add_argument("--source", metavar="NAME", help="only this source")
        parser.add_argument("--limit", type=int, metavar="N", help="stop after so many attempts")

    def handle(self, *args: Any, cluster: str, since: str, **options: Any) -> None:
        start = parse_since(since)
        found = configuration().clusters.get(cluster)
        if found is None:
            known = ", ".join(sorted(configuration().clusters)) or "none"
            raise CommandError(f"no cluster is called {cluster!r}; configured are: {known}")
        sources = [s for s in found.sources if s.finds and options["source"] in (None, s.name)]
        if not sources:
            raise CommandError(
                f"{cluster} has no source that finds attempts" + (" of that name" * bool(options["source"]))
            )
        failed = False
        for source in sources:
            failed = not self._fill(found, source, start, options["limit"]) or failed
        if failed:
            sys.exit(1)

    def _fill(self, cluster: ClusterConfig, source: SourceConfig, since: datetime, limit: int | None) -> bool:
        connector = make_connector(source)
        begin = getattr(connector, "cursor_since", None)
        cursor = begin(since.timestamp()) if begin is not None else {}
        count, problems, told_at = 0, 0, time.monotonic()
        try:
            for step in connector.find(cursor):
                match step.found:
                    case FoundAttempt() as found if _is_wanted(found, since):
                        count += self._record(found, cluster, source)
                    case FindProblem() as problem:
                        problems += 1
                        self.stderr.write(f"{source.key}: {problem.ref}: {problem.message}")
                if time.monotonic() - told_at > EVERY:
                    self.stdout.write(f"{source.key}: {count} attempts so far")
                    told_at = time.monotonic()
                if limit is not None and count >= limit:
                    break
        except ConnectorError as error:
            self.stderr.write(f"{source.key}: {error}")
            self.stdout.write(f"{source.key}: {count} attempts, then it failed; run it again to go on")
            return False
        self.stdout.write(
            f"{source.key}: {count} attempts since {since:%Y-%m-%d %H:%M} UTC"
            + f", {problems} problems" * bool(problems)
        )
        return True

    def _record(self, found: FoundAttempt, cluster: ClusterConfig, source: SourceConfig) -> int:
        try:
            return record_found(found, cluster, source) is not None
        except AttemptRefused as refusal:
            self.stderr.write(f"{source.key}: {found.ref}: {refusal}")
            return 0


def _is_wanted(found: FoundAttempt, since: datetime) -> bool:
    ended = found.attempt.ended_at
    return ended is not None and ended >= since.timestamp()


def parse_since(text: str) -> datetime:
    """A date, a time (UTC when it names no zone), or so long ago. Raises CommandError."""
    ago = duration(text) if text[-1:] in "smhd" else None
    if ago is not None:
        return timezone.now() - timedelta(seconds=ago)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--since: {text!r} is no time: like 2026-11-01, 2026-11-01T08:00:00Z or 7d") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
