"""Collecting: the logs of all containers of an attempt's pods, and a report."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Iterator
from functools import partial

from connectors.base import CollectionReport, CollectRequest, ConnectorError
from connectors.kube.errors import KubeError
from connectors.kube.owners import WorkloadRef
from connectors.kube.pods import AttemptPods, name_of, pods_of, uid_of
from connectors.kube.session import KubeSession
from connectors.kube.sightings import SightingStore
from connectors.pods.config import PodsConfig
from connectors.pods.logs import LogPlace, LogReader, LogResult, places_of
from connectors.pods.parser import order, seconds
from connectors.refusals import Kind
from connectors.spool import Spool
from engine.model import Source, Stream, rfc3339

SINCE_SLACK = 60.0
LEAST_FOLLOW = 0.5
_HOPELESS = (Kind.DOWN, Kind.TLS, Kind.GARBAGE, Kind.STOPPED, Kind.OVER, Kind.DENIED)
_NOTES = 10
_UNSAFE = re.compile(r"[^\w.+-]+")


class PodsCollection:
    """One stream a container and run."""

    def __init__(
        self,
        config: PodsConfig,
        session: KubeSession,
        spool: Spool,
        request: CollectRequest,
        sightings: SightingStore | None,
    ) -> None:
        self._config, self._session, self._spool, self._request = config, session, spool, request
        self._sightings = sightings
        self._ref = WorkloadRef.decode(request.ref or request.attempt.workload.id)
        self._began = time.monotonic()
        self._results: list[LogResult] = []
        self._notes: list[str] = []
        self._errors: list[KubeError] = []
        self._status = "missing"
        self._partial = False
        self._left_out = 0

    def streams(self) -> Iterator[Stream]:
        """Logs in the order of the pods' ranks. Raises ConnectorError when the API can't be asked, and may be later."""
        attempt = self._request.attempt
        pods = pods_of(self._session, self._ref, attempt.started_at, attempt.ended_at, self._sightings)
        if pods.error is not None:
            if pods.error.temporary:
                raise ConnectorError(str(pods.error), temporary=True)
            self._failed(pods.error)
            return
        self._tell_of(pods)
        places = [
            place
            for pod in pods.pods
            if uid_of(pod) in pods.there
            for place in places_of(pod, init=self._config.init_containers, previous=self._config.previous)
            if self._config.wants(place.container)
        ]
        since = attempt.started_at - SINCE_SLACK if attempt.started_at is not None else None
        reader = LogReader(self._session, self._spool, since)
        for index, place in enumerate(places):
            if self._is_hopeless or self._is_over(len(places) - index):
                break
            yield from self._read(reader, place, places, index)

    def reports(self) -> list[CollectionReport]:
        """One, for the logs of the application."""
        kept = [result for result in self._results if result.size]
        status = "ok" if kept else self._status
        if kept and (self._partial or self._errors or any(r.partial or r.error for r in self._results)):
            status = "partial"
        elif not kept and self._errors:
            status = "error"
        elif not kept and self._results and all(not r.missing for r in self._results):
            status = "empty"
        notes = [*self._notes, *dict.fromkeys(r.note for r in self._results if r.note)]
        if len(notes) > _NOTES:
            notes = [*notes[:_NOTES], f"and {len(notes) - _NOTES} more of the kind"]
        stamps = [stamp for r in kept for stamp in (r.first, r.last) if stamp]
        return [
            CollectionReport(
                source=Source.APPLOG.value,
                status=status,
                note="; ".join(notes),
                streams=len(kept),
                lines=sum(r.lines for r in kept),
                bytes=self._spool.size,
                first_at=rfc3339(seconds(min(stamps, key=order))) if stamps else None,
                last_at=rfc3339(seconds(max(stamps, key=order))) if stamps else None,
                connector=self._config.name,
                duration_s=round(time.monotonic() - self._began, 3),
                failed=bool(self._errors),
                query="\n".join(self._session.asked[:20]),
            )
        ]

    def _read(self, reader: LogReader, place: LogPlace, places: list[LogPlace], index: int) -> Iterator[Stream]:
        left = len(places) - index
        room = int((self._request.limits.bytes - self._spool.size) / left)
        limit = min(self._config.container_bytes, room)
        allowed = min(self._config.log_seconds, self._session.deadline.left() * max(1 / left, 0.05))
        try:
            result = reader.read(place, limit, allowed, self._follow_for(places))
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "is full: make room or set spool_dir" if full else f"can not be written: {error.strerror}"
            raise ConnectorError(f"the folder for temporary files {hint}", temporary=full) from None
        self._results.append(result)
        if result.error is not None:
            self._errors.append(result.error)
        spooled = self._spool.streams().get(place)
        if spooled is not None:
            yield Stream(
                name=_name(place),
                source=Source.APPLOG,
                open=partial(self._spool.open, spooled),
                size=spooled.size,
                node=place.node,
            )

    def _follow_for(self, places: list[LogPlace]) -> float:
        """Seconds for each running container of a live attempt."""
        if self._request.attempt.ended_at is not None or not self._config.follow_seconds:
            return 0.0
        share = self._config.follow_seconds / max(sum(place.running for place in places), 1)
        return share if share >= LEAST_FOLLOW else 0.0

    def _tell_of(self, pods: AttemptPods) -> None:
        if not pods.pods:
            self._notes.append(
                f"no pod of {self._ref.namespace}/{self._ref.name} is there any more: logs of deleted pods can only "
                "come from a log store such as Loki"
            )
            return
        gone = pods.gone
        if gone:
            self._partial = True
            names = ", ".join(name_of(pod) for pod in gone[:5]) + (", ..." if len(gone) > 5 else "")
            self._notes.append(
                f"{len(gone)} of {len(pods.pods)} pods are gone ({names}): their logs can only come from a log store "
                "such as Loki"
            )

    @property
    def _is_hopeless(self) -> bool:
        return any(error.kind in _HOPELESS for error in self._errors)

    def _is_over(self, left: int) -> bool:
        limits = self._request.limits
        why = ""
        if len(self._spool.streams()) >= limits.streams:
            why = f"the limit of {limits.streams} streams"
        elif self._spool.size >= limits.bytes:
            why = f"the limit of {limits.bytes} bytes"
        elif self._session.deadline.stopped():
            why = "being stopped"
        elif self._session.deadline.left() <= 0:
            why = f"the time limit of {self._session.deadline.whole:.0f} s"
        if why:
            self._partial = True
            self._notes.append(f"{left} logs are left out for {why}")
        return bool(why)

    def _failed(self, error: KubeError) -> None:
        self._errors.append(error)
        self._notes.append(str(error))


def _name(place: LogPlace) -> str:
    parts = [place.pod, place.container, *(["previous"] if place.previous else [])]
    return f"applog/{'.'.join(_UNSAFE.sub('_', part) for part in parts)}.log"
