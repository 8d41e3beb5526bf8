"""What somebody sees, and with whose eyes the program looks right now.

Every read goes through `objects` of a model (managers.py) or `seen_rows` (sql.py), and both ask `current()`. So a new
selector can't forget it. Tasks and commands see everything. A request sees nothing until it is known who sent it, and
then what they see (middleware.py, which stands before all others).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Sight:
    """What somebody sees of the clusters and their queues."""

    everything: bool = False
    clusters: frozenset[int] = frozenset()
    """Seen whole."""
    queues: frozenset[tuple[int, str]] = frozenset()
    """Cluster and queue; a queue that ends with * stands for all that begin so."""
    teams: frozenset[int] = frozenset()
    """Whose people are seen."""

    def sees_cluster(self, cluster_id: int | None) -> bool:
        """Whether a cluster is seen whole; None for one that nobody knows yet."""
        return self.everything or cluster_id in self.clusters

    def sees(self, cluster_id: int, queue: str) -> bool:
        """Whether what ran in this queue is seen."""
        if self.sees_cluster(cluster_id):
            return True
        names = [name for cluster, name in self.queues if cluster == cluster_id]
        return any(queue.startswith(name[:-1]) if name.endswith("*") else queue == name for name in names)

    @property
    def some_clusters(self) -> set[int]:
        """Clusters of which anything is seen."""
        return set(self.clusters) | {cluster for cluster, _ in self.queues}


EVERYTHING = Sight(everything=True)
NOTHING = Sight()


_looking: ContextVar[Callable[[], Sight] | None] = ContextVar("looking", default=None)


def current() -> Sight:
    """What is seen right now: outside of requests, everything."""
    looking = _looking.get()
    return EVERYTHING if looking is None else looking()


@contextmanager
def seeing(sight: Sight | Callable[[], Sight]) -> Iterator[None]:
    """Looks with these eyes for a while. A function is asked when something is read."""
    token = _looking.set((lambda: sight) if isinstance(sight, Sight) else sight)
    try:
        yield
    finally:
        _looking.reset(token)


def look_as(sight: Sight) -> None:
    """From here on, until the end of the request."""
    _looking.set(lambda: sight)


def all_seeing(function: Callable[P, R]) -> Callable[P, R]:
    """For what the system itself does in somebody's request: it sees everything. What it returns must be theirs."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> R:
        with seeing(EVERYTHING):
            return function(*args, **kwargs)

    return wrapper
