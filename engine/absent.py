"""Who never came to the start: nodes that wrote nothing, and ranks that stopped before the others set up NCCL."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.collective import Missing
from engine.findings import Placed
from engine.lines import whole
from engine.model import Source
from engine.origin import Places
from engine.window import Window

BEGAN, READY = "Init START", "Init COMPLETE"
WAITED = (
    "pytorch.rendezvous-failed",
    "pytorch.store-timeout",
    "pytorch.connect-timeout",
    "pytorch.monitored-barrier",
    "jax.barrier-timeout",
    "jax.coordination-rpc",
)
"""What those say that wait for others before the job begins."""
MOST = 0.6
"""Part of the nodes that must have waited, for the silent ones to be those waited for."""


def from_the_start(placed: Sequence[Placed], spoke: Collection[str], places: Places, window: Window) -> Missing:
    """Who was waited for in a job that never began to work. `spoke`: nodes of which the job's log holds a line."""
    return _before_init(placed, places, window) or _silent(placed, spoke, places) or Missing()


def _before_init(placed: Sequence[Placed], places: Places, window: Window) -> Missing | None:
    """Ranks that never began to set up the communicator of the whole job, where nearly all others wait in that."""
    world = len(places.ranks)
    said = [p for p in placed if p.rule.id == "origin.nccl-rank" and p.aside is None]
    said = [p for p in said if whole(p.hit.captures["nranks"]) == world]
    began = [p for p in said if BEGAN in p.hit.text]
    ranks = {p.rank for p in began if p.rank is not None}
    absent = set(places.ranks) - ranks
    if not absent or len(said) > len(began) or len(absent) > max(1, world // 8) or len(ranks) < MOST * world:
        return None
    since = max((p.at for p in began if p.at is not None), default=window.start)
    return Missing(tuple(sorted(absent)), by="start of the communicators", since=since)


def _silent(placed: Sequence[Placed], spoke: Collection[str], places: Places) -> Missing | None:
    """Nodes that wrote no line at all, where nearly all others report that they waited for somebody."""
    nodes = places.attempt.nodes
    silent = [node for node in nodes if node not in spoke]
    waited = {p.node for p in placed if p.rule.id in WAITED and p.aside is None and p.hit.source is Source.APPLOG}
    known = [node for node in nodes if node in waited]
    if (
        not silent
        or not known
        or len(silent) > max(1, len(nodes) // 8)
        or len(known) < MOST * (len(nodes) - len(silent))
    ):
        return None
    return Missing((), tuple(silent), by="silence of the nodes")
