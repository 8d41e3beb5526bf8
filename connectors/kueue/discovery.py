"""Finding attempts: Workloads listed once, then watched from one search to the next."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from connectors.base import FindProblem, Found, FoundAttempt
from connectors.kube.errors import KubeError
from connectors.kube.owners import WorkloadRef, gpus_per_node, nodes_of
from connectors.kube.pods import pods_of
from connectors.kube.sightings import SightingStore, sighting_of
from connectors.kueue.client import IDLE_SECONDS, KueueClient
from connectors.kueue.config import KueueConfig
from connectors.kueue.parser import (
    Cycle,
    Running,
    ended_at,
    exit_code,
    is_done,
    look,
    name_of,
    owner_reason,
    queue_of,
    ref_of,
    user_of,
    vanished,
)
from connectors.kueue.placements import PlacementWatch
from connectors.refusals import Kind
from engine.model import Attempt, Workload

EVERYWHERE = ""
_ENDING = (Kind.DOWN, Kind.TLS, Kind.GARBAGE, Kind.STOPPED, Kind.OVER)


class _Scope(msgspec.Struct, omit_defaults=True):
    """How far the search of one namespace, or of all, has come."""

    workloads: str = ""
    pods: str = ""
    running: dict[str, Running] = {}


class Cursor(msgspec.Struct, omit_defaults=True):
    """What is kept from one search to the next."""

    since: float | None = None
    """Epoch seconds; what ended before is not told of."""
    scopes: dict[str, _Scope] = {}

    @classmethod
    def read(cls, plain: dict[str, Any], since: float) -> Cursor:
        """From plain values. What can't be read is begun anew: nothing is missed, and what is known is known."""
        try:
            cursor = msgspec.convert(plain, cls)
        except msgspec.ValidationError:
            cursor = cls()
        if cursor.since is None:
            cursor.since = since
        return cursor

    def plain(self) -> dict[str, Any]:
        kept: dict[str, Any] = msgspec.to_builtins(self)
        return kept


class Search:
    """One search of a cluster."""

    def __init__(
        self, config: KueueConfig, client: KueueClient, cursor: Cursor, sightings: SightingStore | None
    ) -> None:
        self._config, self._client, self._cursor, self._sightings = config, client, cursor, sightings
        self._asks_for_pods = True

    def run(self) -> Iterator[Found]:
        """Everything new. Raises KubeError; what was yielded before stays valid."""
        for namespace in self._config.kube.namespaces or (None,):
            scope = self._cursor.scopes.setdefault(namespace or EVERYWHERE, _Scope())
            yield from self._placements(scope, namespace)
            version = scope.workloads
            if version:
                try:
                    yield from self._watch(scope, namespace)
                    continue
                except KubeError as error:
                    if not error.expired:
                        raise
            yield from self._list(scope, namespace, version)

    def _placements(self, scope: _Scope, namespace: str | None) -> Iterator[Found]:
        if self._sightings is None:
            return
        watch = PlacementWatch(self._client, self._sightings, namespace, self._config.pod_selector)
        try:
            scope.pods = watch.follow(scope.pods, seconds=self._config.watch_seconds, idle=IDLE_SECONDS)
        except KubeError as error:
            if error.kind in _ENDING:
                raise
            self._asks_for_pods = error.kind is not Kind.DENIED
            yield Found(
                cursor=self._cursor.plain(),
                found=FindProblem(ref=f"pods in {namespace or 'all namespaces'}", message=f"placement: {error}"),
            )

    def _list(self, scope: _Scope, namespace: str | None, before: str) -> Iterator[Found]:
        """Everything that is there, and what was running and is not there any more. The cursor stays where it was
        until all of it is told.
        """
        kept = self._cursor.plain()
        there: set[str] = set()
        version = ""
        for page in self._client.workload_pages(namespace):
            for workload in page.items:
                there.add(_uid(workload))
                if not self._is_old(workload, before, scope):
                    for found in self._tell(scope, workload):
                        yield Found(cursor=kept, found=found)
            version = page.version
        for uid in [uid for uid in scope.running if uid not in there]:
            for found in self._gone(scope, uid, None):
                yield Found(cursor=kept, found=found)
        scope.workloads = version
        yield Found(cursor=self._cursor.plain())

    def _is_old(self, workload: Mapping[str, Any], before: str, scope: _Scope) -> bool:
        """Has it been told of already, or did it end before the search was to begin?"""
        if _uid(workload) in scope.running or not is_done(workload):
            return False
        end = ended_at(workload)
        if end is not None and self._cursor.since is not None and end < self._cursor.since:
            return True
        version = str((workload.get("metadata") or {}).get("resourceVersion") or "")
        return before.isdigit() and version.isdigit() and int(version) <= int(before)

    def _watch(self, scope: _Scope, namespace: str | None) -> Iterator[Found]:
        for event in self._client.watch_workloads(namespace, scope.workloads, self._config.watch_seconds, IDLE_SECONDS):
            if event.type == "BOOKMARK":
                scope.workloads = event.version or scope.workloads
                continue
            kept = self._cursor.plain()
            found = self._tell(scope, event.object)
            if event.type == "DELETED":
                found += self._gone(scope, _uid(event.object), event.object)
            scope.workloads = event.version or scope.workloads
            for one in found[:-1]:
                yield Found(cursor=kept, found=one)
            if found:
                yield Found(cursor=self._cursor.plain(), found=found[-1])
        yield Found(cursor=self._cursor.plain())

    def _tell(self, scope: _Scope, workload: dict[str, Any]) -> list[FoundAttempt]:
        if self._config.queues and queue_of(workload) not in self._config.queues:
            return []
        uid = _uid(workload)
        known = scope.running.get(uid)
        seen = look(workload, known, self._config.user_label)
        is_known = known is not None and not known.waiting and seen.running is not None
        told = is_known and seen.running.number == known.number  # type: ignore[union-attr]
        found = [
            self._attempt(ref_of(workload, cycle.number), cycle, workload)
            for cycle in seen.cycles
            if not (told and cycle.ended_at is None)
        ]
        scope.running.pop(uid, None)
        if seen.running is not None:
            scope.running[uid] = seen.running
        return found

    def _gone(self, scope: _Scope, uid: str, workload: dict[str, Any] | None) -> list[FoundAttempt]:
        known = scope.running.pop(uid, None)
        if known is None or known.waiting:
            return []
        ref = WorkloadRef.decode(known.ref)
        cycle = vanished(known, time.time(), workload)
        if workload is not None:
            return [self._attempt(ref, cycle, workload)]
        plain = {"metadata": {"namespace": ref.namespace, "name": ref.name}, "spec": {"queueName": known.queue}}
        return [self._attempt(ref, cycle, plain, user=known.user)]

    def _attempt(
        self, ref: WorkloadRef, cycle: Cycle, workload: dict[str, Any], user: str | None = None
    ) -> FoundAttempt:
        pods = self._pods(ref, cycle)
        reason = cycle.reason
        if cycle.state == "Failed" and reason is None:
            reason = self._reason(ref, cycle)
        if cycle.ended_at is not None and not cycle.passed and self._sightings is not None and ref.uid:
            last = {"kind": "Workload", **workload}
            self._sightings.save([sighting_of(last, time.time(), uid=f"{ref.uid}#{cycle.number}")])
        attempt = Attempt(
            workload=Workload(
                id=f"{ref.namespace}/{ref.name}",
                name=name_of(ref),
                scheduler="kueue",
                cluster=self._config.cluster,
                user=user_of(workload, self._config.user_label) if user is None else user,
                queue=queue_of(workload),
            ),
            number=cycle.number,
            state=cycle.state,
            exit_code=exit_code(pods) if cycle.state.startswith("Failed") else None,
            reason=reason,
            started_at=cycle.started_at,
            ended_at=cycle.ended_at,
            nodes=nodes_of(pods),
            gpus_per_node=gpus_per_node(pods),
        )
        return FoundAttempt(
            attempt=attempt,
            ref=ref.encode(),
            label=f"{ref.namespace}/{name_of(ref)}",
            content_key=f"{cycle.state}@{cycle.ended_at or 0:.0f}",
        )

    def _pods(self, ref: WorkloadRef, cycle: Cycle) -> list[dict[str, Any]]:
        session = self._client.session if self._asks_for_pods else None
        found = pods_of(session, ref, cycle.started_at, cycle.ended_at, self._sightings)
        if found.error is not None and found.error.kind in _ENDING:
            raise found.error
        return found.pods

    def _reason(self, ref: WorkloadRef, cycle: Cycle) -> str | None:
        """Why the owner failed, in its own word; else what Kueue says."""
        owner = None
        if ref.owner is not None:
            try:
                owner = self._client.owner(ref.namespace, ref.owner)
            except KubeError as error:
                if error.kind in _ENDING:
                    raise
        return (owner_reason(owner) if owner is not None else None) or cycle.message[:200] or None


def _uid(workload: Mapping[str, Any]) -> str:
    return str((workload.get("metadata") or {}).get("uid") or "")
