"""How long what is kept: `[retention]` of faultline.toml, for all clusters and for single ones. Pure Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

KINDS = {
    "streams": "raw logs and metrics; the evidence of a diagnosis stays with it",
    "diagnoses": "attempts with their diagnoses and all that was said of them",
    "personal": "names of those who ran the jobs, and from where share links were opened",
}
"""What a policy is about, and what goes."""


class Policy(msgspec.Struct, frozen=True):
    """Seconds after its end, and after it became known, for which something of an attempt is kept; 0: for ever."""

    streams: float = 0.0
    diagnoses: float = 0.0
    personal: float = 0.0


class Retention(msgspec.Struct, frozen=True):
    """The policy of all clusters, and those of clusters that have their own."""

    default: Policy = Policy()
    clusters: dict[str, Policy] = {}

    def of(self, cluster: str) -> Policy:
        """A cluster's; whatever its name has no policy of its own has the default's."""
        return self.clusters.get(cluster, self.default)


def read_retention(table: Any, shown: str, duration: Callable[[Any], float | None], errors: list[str]) -> Retention:
    """What stands in the table. Errors are added, a line each; a table with one is not used: nothing is removed."""
    before = len(errors)
    where = f"{shown}: [retention]"
    if not isinstance(table, dict):
        errors.append(f"{where}: must be a table")
        return Retention()
    default = _policy({key: value for key, value in table.items() if key != "clusters"}, where, duration, errors)
    own = table.get("clusters", {})
    if not isinstance(own, dict):
        errors.append(f"{where}: clusters: must be tables, [retention.clusters.NAME]")
        return Retention()
    clusters = {}
    for name, changes in own.items():
        place = f"{shown}: [retention.clusters.{name}]"
        if not isinstance(changes, dict):
            errors.append(f"{place}: must be a table")
            continue
        merged = {key: value for key, value in table.items() if key != "clusters"} | changes
        clusters[name] = _policy(merged, place, duration, errors)
    return Retention(default, clusters) if len(errors) == before else Retention()


def _policy(table: dict[str, Any], where: str, duration: Callable[[Any], float | None], errors: list[str]) -> Policy:
    values: dict[str, float] = {}
    for key, value in table.items():
        if key not in KINDS:
            errors.append(f"{where}: unknown key {key!r}: {', '.join(KINDS)}")
        elif (seconds := duration(value)) is None:
            errors.append(f'{where}: {key}: must be a duration like "90d", or 0 for ever')
        else:
            values[key] = seconds
    policy = Policy(**values)
    if policy.personal and not (0 < policy.streams <= policy.personal):
        errors.append(f"{where}: streams: must be set and not longer than personal, for raw logs hold names")
    return policy
