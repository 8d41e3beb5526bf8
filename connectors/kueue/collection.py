"""Collecting: what Kubernetes tells of one attempt, as files of the scheduler folder that the engine reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any, TypeVar

from connectors.base import CollectionReport, CollectRequest, ConnectorError
from connectors.kube.errors import KubeError
from connectors.kube.owners import WorkloadRef, nodes_of
from connectors.kube.pods import AttemptPods, name_of, pods_of
from connectors.kube.sightings import SightingStore
from connectors.kube.tidy import as_json, as_list, tidy
from connectors.kueue.client import KueueClient
from connectors.kueue.config import KueueConfig
from connectors.refusals import Kind
from engine.model import Source, Stream, rfc3339

EVENTS_KEPT = 3600.0
"""Seconds that Kubernetes keeps events, unless its --event-ttl says otherwise."""
_HOPELESS = (Kind.DOWN, Kind.TLS, Kind.GARBAGE, Kind.STOPPED, Kind.OVER)
_T = TypeVar("_T")


class KueueCollection:
    """workload.json, owner.json, pods.json, events.json and nodes.json of one attempt, and a report."""

    def __init__(
        self, config: KueueConfig, client: KueueClient, request: CollectRequest, sightings: SightingStore | None
    ) -> None:
        self._config, self._client, self._request, self._sightings = config, client, request, sightings
        self._ref = WorkloadRef.decode(request.ref)
        self._began = time.monotonic()
        self._notes: list[str] = []
        self._errors: list[KubeError] = []
        self._partial = False
        self._streams = self._lines = self._bytes = 0

    def streams(self) -> Iterator[Stream]:
        """One file a kind of object. Raises ConnectorError when nothing at all could be had, and may be later."""
        attempt = self._request.attempt
        workload = self._workload()
        if workload is not None:
            yield from self._stream("workload", as_json(tidy(workload)))
        owner = self._owner(workload)
        if owner is not None:
            yield from self._stream("owner", as_json(tidy(owner)))
        session = None if self._is_hopeless else self._client.session
        pods = pods_of(session, self._ref, attempt.started_at, attempt.ended_at, self._sightings)
        self._tell_of(pods)
        if pods.pods:
            yield from self._stream("pods", as_list([tidy(pod) for pod in pods.pods]))
        nodes = attempt.nodes or nodes_of(pods.pods)
        events = self._events(workload, owner, pods.pods, nodes)
        if events:
            yield from self._stream("events", as_list([tidy(event) for event in events]))
        known = self._nodes(nodes) if self._config.nodes else []
        if known:
            yield from self._stream("nodes", as_list([tidy(node) for node in known]))
        temporary = [error for error in self._errors if error.temporary]
        if temporary and not self._streams:
            raise ConnectorError(str(temporary[0]), temporary=True)

    def reports(self) -> list[CollectionReport]:
        """One, for the scheduler."""
        status = "ok"
        if self._errors or self._partial:
            status = "partial" if self._streams else "error" if self._errors else "missing"
        return [
            CollectionReport(
                source=Source.SCHEDULER.value,
                status=status,
                note="; ".join(dict.fromkeys(self._notes)),
                streams=self._streams,
                lines=self._lines,
                bytes=self._bytes,
                first_at=rfc3339(self._request.attempt.started_at) if self._streams else None,
                last_at=rfc3339(self._request.attempt.ended_at) if self._streams else None,
                connector=self._config.name,
                duration_s=round(time.monotonic() - self._began, 3),
                failed=bool(self._errors),
                query="\n".join(self._client.session.asked[:20]),
            )
        ]

    # --- objects ------------------------------------------------------------------------------------------------------

    def _workload(self) -> dict[str, Any] | None:
        """As it was at the end of this attempt, when that was seen; else as it is now."""
        ref = self._ref
        seen = self._sightings.by_uid("Workload", f"{ref.uid}#{ref.number}") if self._sightings and ref.uid else None
        if seen is not None:
            return seen.object
        found = self._ask(lambda: self._client.workload(ref.namespace, ref.name))
        if found is None or (ref.uid and (found.get("metadata") or {}).get("uid") != ref.uid):
            if not self._errors:
                self._lacks(f"the Workload {ref.namespace}/{ref.name} is gone")
            return None
        return found

    def _owner(self, workload: Mapping[str, Any] | None) -> dict[str, Any] | None:
        owner = self._ref.owner
        if owner is None or owner.resource is None or self._is_hopeless:
            return None
        found = self._ask(lambda: self._client.owner(self._ref.namespace, owner))
        if found is None and not self._is_hopeless and not self._errors:
            self._lacks(f"the {owner.kind} {owner.name} is gone")
        return found

    def _tell_of(self, pods: AttemptPods) -> None:
        if pods.error is not None:
            self._failed(pods.error)
        gone = pods.gone
        if not pods.pods and pods.error is None:
            self._lacks(
                "no pod of the attempt is there any more, and none was seen while it ran: where it ran is not known; "
                "Faultline captures placements while its discovery runs"
            )
        elif gone and pods.error is None:
            names = ", ".join(name_of(pod) for pod in gone[:5]) + (", ..." if len(gone) > 5 else "")
            self._notes.append(f"{len(gone)} of {len(pods.pods)} pods are gone ({names}): as they were last seen")

    def _events(
        self,
        workload: Mapping[str, Any] | None,
        owner: Mapping[str, Any] | None,
        pods: list[dict[str, Any]],
        nodes: tuple[str, ...],
    ) -> list[dict[str, Any]]:
        if self._is_hopeless:
            return []
        ref = self._ref
        uids = {str((item.get("metadata") or {}).get("uid")) for item in (workload, owner, *pods) if item}
        uids |= {ref.uid, ref.owner.uid if ref.owner else ""}
        for pod in pods:  # the jobs between a JobSet and its pods
            uids |= {str(r.get("uid")) for r in (pod.get("metadata") or {}).get("ownerReferences") or []}
        uids.discard("")
        names = {ref.name, ref.owner.name if ref.owner else ref.name, *(name_of(pod) for pod in pods)}
        all_events = self._ask(lambda: self._client.events(ref.namespace)) or []
        mine = [event for event in all_events if _is_about(event, uids, names)]
        if self._config.nodes and nodes:
            of_nodes = self._ask(self._client.node_events) or []
            mine += [event for event in of_nodes if (event.get("involvedObject") or {}).get("name") in nodes]
        ended = self._request.attempt.ended_at
        if not mine and not self._errors:
            self._lacks("no event of the attempt is there")
            if ended is not None and time.time() - ended > EVENTS_KEPT:
                self._notes.append("Kubernetes keeps events for an hour by default (--event-ttl), and it ended earlier")
        return sorted(mine, key=_event_order)

    def _nodes(self, nodes: tuple[str, ...]) -> list[dict[str, Any]]:
        found = []
        for name in nodes:
            if self._is_hopeless:
                break
            errors = len(self._errors)
            node = self._ask(lambda name=name: self._client.node(name))  # type: ignore[misc]
            if node is not None:
                found.append(node)
            elif len(self._errors) > errors:
                break
            else:
                self._notes.append(f"node {name} is not in the cluster any more")
        return found

    # --- bookkeeping --------------------------------------------------------------------------------------------------

    @property
    def _is_hopeless(self) -> bool:
        return any(error.kind in _HOPELESS or error.status == 401 for error in self._errors)

    def _ask(self, what: Callable[[], _T]) -> _T | None:
        if self._is_hopeless:
            return None
        try:
            return what()
        except KubeError as error:
            self._failed(error)
            return None

    def _failed(self, error: KubeError) -> None:
        self._errors.append(error)
        self._notes.append(str(error))

    def _lacks(self, note: str) -> None:
        self._partial = True
        self._notes.append(note)

    def _stream(self, name: str, content: bytes) -> Iterator[Stream]:
        limits = self._request.limits
        if self._streams >= limits.streams or self._bytes + len(content) > limits.bytes:
            self._lacks(f"{name}.json is left out for the limit of {limits.streams} streams and {limits.bytes} bytes")
            return
        self._streams += 1
        self._lines += content.count(b"\n")
        self._bytes += len(content)
        yield Stream(
            name=f"scheduler/{name}.json", source=Source.SCHEDULER, open=lambda: BytesIO(content), size=len(content)
        )


def _is_about(event: Mapping[str, Any], uids: set[str], names: set[str]) -> bool:
    """By uid, where an event has one: names come back."""
    about = event.get("involvedObject") or event.get("regarding") or {}
    return about["uid"] in uids if about.get("uid") else about.get("name") in names


def _event_order(event: Mapping[str, Any]) -> tuple[str, str]:
    when = event.get("eventTime") or event.get("firstTimestamp") or event.get("lastTimestamp") or ""
    return str(when), str((event.get("metadata") or {}).get("name"))
