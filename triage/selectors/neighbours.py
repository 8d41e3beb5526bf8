"""What stands before and after an attempt in the list of failures."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q

from engine.model import Outcome
from triage.models import Attempt, Diagnosis

MAX_ALIKE = 5
MAX_COUNTED = 200
"""So many attempts that failed in the same way are counted at most."""


@dataclass(frozen=True)
class Alike:
    """Other attempts whose current diagnosis has the same fingerprint."""

    newest: list[Attempt]
    count: int
    """At most MAX_COUNTED."""

    @property
    def many(self) -> bool:
        """There may be more than were counted."""
        return self.count == MAX_COUNTED

    @property
    def more(self) -> int:
        return self.count - len(self.newest)


@dataclass(frozen=True)
class Neighbours:
    newer: int | None
    older: int | None


def neighbours(attempt: Attempt) -> Neighbours:
    """Ids of the next newer and the next older failure. Two queries, each served by the list's own index."""
    failures = Attempt.objects.exclude(outcome=Outcome.SUCCEEDED.value).order_by()
    at, pk = attempt.sort_at, attempt.pk
    newer = failures.filter(Q(sort_at__gte=at) & (Q(sort_at__gt=at) | Q(id__gt=pk))).order_by("sort_at", "id")
    older = failures.filter(Q(sort_at__lte=at) & (Q(sort_at__lt=at) | Q(id__lt=pk))).order_by("-sort_at", "-id")
    return Neighbours(newer.values_list("pk", flat=True).first(), older.values_list("pk", flat=True).first())


def alike(attempt: Attempt) -> Alike:
    """Other attempts that failed in the same way, newest first. Of those that were diagnosed last, MAX_COUNTED at most:
    a failure that everybody has would cost the page the more, the more often it happened. Two queries.
    """
    if attempt.diagnosis is None:
        return Alike([], 0)
    same = Diagnosis.objects.filter(fingerprint=attempt.diagnosis.fingerprint).exclude(attempt=attempt.pk)
    last = same.order_by("-created_at").values("pk")[:MAX_COUNTED]
    found = Attempt.objects.filter(diagnosis__in=last).order_by("-sort_at", "-id").values_list("pk", flat=True)
    keys = list(found)
    newest = Attempt.objects.filter(pk__in=keys[:MAX_ALIKE]).select_related("workload", "cluster")
    return Alike(list(newest.order_by("-sort_at", "-id")), len(keys))
