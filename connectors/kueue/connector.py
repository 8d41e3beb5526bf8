"""Workloads of Kueue: found with what their pods did and where, collected as the scheduler's own files."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from connectors.base import CollectionReport, CollectRequest, ConnectorError, Found, check_report
from connectors.http import Deadline
from connectors.kube.errors import KubeError
from connectors.kube.owners import WorkloadRef, gpus_per_node, nodes_of
from connectors.kube.pods import pods_of
from connectors.kube.resources import EVENTS, NODES, PODS
from connectors.kube.session import KubeSession
from connectors.kube.sightings import SightingStore
from connectors.kueue.client import KueueClient
from connectors.kueue.collection import KueueCollection
from connectors.kueue.config import KueueConfig
from connectors.kueue.discovery import Cursor, Search
from connectors.kueue.placements import PlacementWatch
from connectors.reach import ANYWHERE, Reach
from connectors.refusals import Kind
from engine.model import Attempt

CHECK_SECONDS = 20.0
FIND_SECONDS = float("inf")
"""A first search may have much to tell; each of its requests has a limit of its own."""


class KueueConnector:
    """`sightings` keeps what is seen of pods; without it only what is there at the time of collecting is known."""

    def __init__(self, config: KueueConfig) -> None:
        self.name = config.name
        self.config = config
        self.sightings: SightingStore | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> KueueConnector:
        """From plain values, see docs/connectors/kueue.md. Raises ConfigError."""
        return cls(KueueConfig.parse(config, reach))

    def cursor_since(self, since: float) -> dict[str, Any]:
        """The cursor of a search that tells of everything that ended since then, as far as Kubernetes still has it."""
        return Cursor(since=since).plain()

    def find(self, cursor: dict[str, Any]) -> Iterator[Found]:
        """Attempts that began or ended since `cursor`. Also captures where pods run. Raises ConnectorError."""
        at = Cursor.read(cursor, time.time() - self.config.since)
        with self._session(FIND_SECONDS) as session:
            yield from Search(self.config, KueueClient(session), at, self.sightings).run()

    def placed(self, attempt: Attempt, ref: str) -> Attempt:
        """A running attempt with the nodes that its pods are on by now: it was found before they were placed.
        Raises ConnectorError.
        """
        with self._session(self.config.kube.request_seconds) as session:
            pods = pods_of(session, WorkloadRef.decode(ref), attempt.started_at, None, self.sightings).pods
        nodes, gpus = nodes_of(pods) or attempt.nodes, gpus_per_node(pods) or attempt.gpus_per_node
        return msgspec.structs.replace(attempt, nodes=nodes, gpus_per_node=gpus)

    @contextmanager
    def collect(self, request: CollectRequest, stop: threading.Event | None = None) -> Iterator[KueueCollection]:
        """What the API and the sightings tell of an attempt. Raises ConnectorError."""
        seconds = min(self.config.kube.time_limit, request.limits.seconds)
        with self._session(seconds, stop) as session:
            yield KueueCollection(self.config, KueueClient(session), request, self.sightings)

    def watch_placements(self, store: SightingStore, stop: threading.Event, *, turn: float = 240.0) -> None:
        """Follows the pods until `stop` is set. Raises ConnectorError when they can't be watched."""
        versions: dict[str | None, str] = {}
        scopes = self.config.kube.namespaces or (None,)
        while not stop.is_set():
            for namespace in scopes:
                seconds = turn if len(scopes) == 1 else 5.0
                with self._session(seconds + 60.0, stop) as session:
                    watch = PlacementWatch(KueueClient(session), store, namespace, self.config.pod_selector)
                    try:
                        versions[namespace] = watch.follow(versions.get(namespace, ""), seconds=seconds, idle=seconds)
                    except KubeError as error:
                        if error.kind is Kind.STOPPED:
                            return
                        raise

    def check(self, seconds: float = CHECK_SECONDS) -> CollectionReport:
        """Are Workloads, pods, events and nodes readable? Within `seconds`."""
        asked: list[str] = []

        def ask() -> tuple[str, str]:
            notes: list[str] = []
            found = 0
            try:
                with self._session(seconds) as session:
                    session.asked = asked
                    for namespace in self.config.kube.namespaces or (None,):
                        found += self._check(KueueClient(session), namespace, notes)
            except ConnectorError as error:
                notes.append(str(error))
            if notes:
                return "error", "; ".join(dict.fromkeys(notes))
            if found:
                return "ok", ""
            return "empty", "the API answers, but there is no Workload: check namespaces, and that jobs name a queue"

        return check_report(self.name, asked, ask)

    def _check(self, client: KueueClient, namespace: str | None, notes: list[str]) -> int:
        """Asks for one of each. Raises KubeError when it makes no sense to go on."""
        session = client.session
        found = sum(len(page.items) for page in _first(client.workload_pages(namespace, limit=1)))
        wanted = [(PODS, namespace), (EVENTS, namespace)] + ([(NODES, None)] if self.config.nodes else [])
        for resource, where in wanted:
            try:
                _first(session.pages(resource, where, limit=1))
            except KubeError as error:
                if error.status != 403:
                    raise
                hint = ", or set nodes = false" if resource is NODES else ""
                notes.append(f"{error}{hint}")
        return found

    def _session(self, seconds: float, stop: threading.Event | None = None) -> KubeSession:
        return KubeSession(self.config.kube, Deadline(seconds, stop))


def _first(pages: Iterator[Any]) -> list[Any]:
    """The first page."""
    page = next(pages, None)
    return [] if page is None else [page]
