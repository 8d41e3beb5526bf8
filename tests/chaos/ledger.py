"""What is counted when everything is quiet again. Needs Django, set up for the installation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from django.db import close_old_connections
from django.db.models import Count, Q

from tests.chaos.load import Sent
from triage.models import Attempt, Collection, CollectionState, Diagnosis, TimelineEvent, TriageState
from triage.models.attempt import UNFINISHED
from triage.services.integrity import verify

ONCE = ("attempt.recorded", "diagnosis.recorded")


def at_work(sent: Sent) -> int:
    """How many of the attempts that were taken are not at their end."""
    close_old_connections()
    known = Attempt.objects.filter(workload__workload_id__in=list(sent.taken))
    open_work = known.filter(Q(triage_state__in=UNFINISHED) | ~Q(collections__state=CollectionState.DONE))
    return len(sent.taken) - known.count() + open_work.distinct().count()


def counted(sent: Sent, wanted: dict[str, tuple[str, str]], data: Path) -> tuple[dict[str, int], list[str]]:
    """Figures, and what is wrong, a line each. `wanted`: domain and rule of each kind, as found without trouble."""
    close_old_connections()
    wrong = [f"a client was refused for good: {words}" for words in sent.gave_up]
    found = Attempt.objects.filter(workload__workload_id__in=list(sent.taken)).select_related("workload", "diagnosis")
    times = Counter(attempt.workload.workload_id for attempt in found)
    wrong += [f"{workload} was taken and is lost" for workload in sent.taken if workload not in times]
    wrong += [f"{workload} is there {count} times" for workload, count in times.items() if count > 1]
    for attempt in found:
        name = attempt.workload.workload_id
        if attempt.triage_state != TriageState.DONE:
            wrong.append(f"{name} is {attempt.triage_state}: {attempt.triage_reason}")
        elif (attempt.domain, attempt.rule) != wanted[sent.taken[name]]:
            reports = [row.reports for row in attempt.collections.all()]
            wrong.append(f"{name} is {attempt.domain}, {attempt.rule}, not {wanted[sent.taken[name]]}: {reports}")
    mine = Diagnosis.objects.filter(attempt__in=found)
    twice = mine.values("attempt").annotate(times=Count("pk")).filter(times__gt=1)
    wrong += [f"attempt {row['attempt']} was diagnosed {row['times']} times" for row in twice]
    for kind in ONCE:
        said = TimelineEvent.objects.filter(kind=kind, attempt__in=found).values("attempt")
        again = said.annotate(times=Count("pk")).filter(times__gt=1)
        wrong += [f"attempt {row['attempt']} has {row['times']} times {kind}" for row in again]
    whole = verify()
    wrong += whole.problems
    open_leases = Attempt.objects.filter(triage_lease__isnull=False).count()
    open_leases += Collection.objects.filter(lease__isnull=False).count()
    if open_leases:
        wrong.append(f"{open_leases} leases are still held")
    figures = {
        "attempts": len(sent.taken),
        "diagnoses": mine.count(),
        "calls sent again": sent.asked_again,
        "streams verified": whole.streams,
        "lines of evidence verified": whole.lines,
        "drafts left": sum(1 for path in (data / "blobs" / "drafts").glob("*")),
    }
    return figures, wrong
