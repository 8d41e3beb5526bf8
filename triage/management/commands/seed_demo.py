"""manage.py seed_demo: the user demo / demo, and the sample attempts that ship with Faultline."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from triage.models import Attempt, TriageState
from triage.services.bundles import ImportRefused, import_bundle

NAME = "demo"


class Command(BaseCommand):
    help = "Makes the user demo / demo and imports samples/*.tar.zst. Can be run again: what is there stays as it is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--wait", action="store_true", help="until all samples are triaged, or one has failed")
        parser.add_argument("--timeout", type=float, default=180, metavar="SECONDS", help="with --wait; default 180")
        parser.add_argument("--samples", type=Path, default=settings.BASE_DIR / "samples", metavar="FOLDER")

    def handle(self, *args: Any, wait: bool, timeout: float, samples: Path, **options: Any) -> None:
        self._make_user()
        bundles = sorted(samples.glob("*.tar.zst"))
        if not bundles:
            raise CommandError(f"{samples}: holds no *.tar.zst")
        attempts = []
        for bundle in bundles:
            try:
                attempts.append(import_bundle(bundle).attempt.pk)
            except ImportRefused as error:
                raise CommandError(str(error)) from None
        self.stdout.write(f"{len(attempts)} sample attempts")
        if wait:
            self._wait(attempts, timeout)

    def _make_user(self) -> None:
        users = get_user_model().objects
        user, created = users.get_or_create(username=NAME, defaults={"is_staff": True})
        if created:
            user.set_password(NAME)
            user.save()

    def _wait(self, attempts: list[int], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            states = dict(Attempt.objects.filter(pk__in=attempts).values_list("pk", "triage_state"))
            failed = [pk for pk, state in states.items() if state == TriageState.FAILED]
            if failed:
                attempt = Attempt.objects.select_related("workload").get(pk=failed[0])
                raise CommandError(f"triage of {attempt} failed: {attempt.triage_reason}")
            open_ = [pk for pk, state in states.items() if state != TriageState.DONE]
            if not open_:
                self.stdout.write(f"all {len(attempts)} are triaged")
                return
            if time.monotonic() > deadline:
                raise CommandError(
                    f"{len(open_)} of {len(attempts)} not triaged within {timeout:.0f} s: does a worker run?"
                )
            time.sleep(0.2)
