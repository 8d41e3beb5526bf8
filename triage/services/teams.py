"""Teams, and what their people see."""

from __future__ import annotations

from triage.access.viewer import sight_of
from triage.models import Attempt, TeamReach


def teams_that_see(attempt: Attempt) -> list[int]:
    """The teams that see this attempt and not everything, by number."""
    reaches: dict[int, list[dict[str, object]]] = {}
    for row in TeamReach.objects.values("team", "cluster", "queue"):
        reaches.setdefault(row["team"], []).append(row)
    found = []
    for team, rows in reaches.items():
        sight = sight_of(rows)
        if not sight.everything and sight.sees(attempt.cluster_id, attempt.queue):
            found.append(team)
    return sorted(found)
