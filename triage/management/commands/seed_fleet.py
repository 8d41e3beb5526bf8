"""manage.py seed_fleet: a made-up fleet with many attempts, for measuring and for trying things out."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine.ruleset import RulesetError, load_ruleset
from triage.seeding.load import seed
from triage.seeding.world import World


class Command(BaseCommand):
    help = (
        "Adds attempts of a made-up fleet, with diagnoses, incidents and verdicts. Same seed and end, same fleet. "
        "Not for a database with real failures: what it adds can't be told from them later."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--attempts", type=int, default=10_000, metavar="N")
        parser.add_argument("--seed", type=int, default=7)
        parser.add_argument("--nodes", type=int, default=600, help="of all clusters together; default 600")
        parser.add_argument("--days", type=int, default=180, help="from the first attempt to the last; default 180")
        parser.add_argument("--end", metavar="TIME", help="of the last attempt, ISO 8601; default now")

    def handle(
        self, *args: Any, attempts: int, seed: int, nodes: int, days: int, end: str | None, **options: Any
    ) -> None:
        if attempts < 1 or nodes < 8 or days < 1:
            raise CommandError("--attempts and --days are at least 1, --nodes at least 8")
        try:
            until = datetime.fromisoformat(end) if end else datetime.now(UTC)
        except ValueError:
            raise CommandError(f"--end: {end} is no time such as 2026-11-03T06:42") from None
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        try:
            ruleset = load_ruleset(settings.FAULTLINE_RULES)
        except RulesetError as error:
            raise CommandError(str(error)) from None
        began = time.monotonic()
        world = World.build(seed, nodes, days, until)
        self._load(world, ruleset, attempts)
        self.stdout.write(f"{attempts:,} attempts in {time.monotonic() - began:.0f} s")

    def _load(self, world: World, ruleset: Any, attempts: int) -> None:
        seed(world, ruleset, attempts, say=lambda text: self.stdout.write(text, ending="\r"))
