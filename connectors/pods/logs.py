"""Reading one container's log: its beginning and its end within a limit; following it for a while when it runs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from connectors.kube.errors import KubeError
from connectors.kube.session import KubeSession
from connectors.kube.times import parse, rfc3339_seconds
from connectors.pods.parser import LOST, after, as_cri, counted, first_stamp, last_stamp, seconds, whole_lines
from connectors.refusals import Kind
from connectors.spool import Spool

HEAD_SHARE = 0.75
USUAL_LINE = 120
"""Bytes; by which the lines of a log's end are estimated when nothing better is known."""
ROTATED_BYTES = 1024**2
ROTATED_SECONDS = 60.0
FOLLOW_IDLE = 3.0
CLOCK_SLACK = 60.0
"""Seconds by which the clocks of this machine and of a node may differ."""


class LogPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One log: of a container, or of its run before the last restart."""

    namespace: str
    pod: str
    uid: str
    node: str | None
    container: str
    previous: bool = False
    running: bool = False
    started_at: float | None = None
    """When this run of the container began."""

    @property
    def label(self) -> str:
        return f"{self.pod}/{self.container}" + (" (before its restart)" if self.previous else "")


class LogResult(msgspec.Struct):
    """What became of reading a log."""

    note: str = ""
    missing: bool = False
    """There is no such log; that is no error."""
    partial: bool = False
    error: KubeError | None = None
    first: bytes = b""
    last: bytes = b""
    size: int = 0
    lines: int = 0
    overlaps: bool = False
    """Whether some of it was there already."""


class LogReader:
    """Reads logs into a spool."""

    def __init__(self, session: KubeSession, spool: Spool, since: float | None) -> None:
        self._session, self._spool = session, spool
        self._since = since

    def read(self, place: LogPlace, limit: int, allowed: float, follow: float = 0.0) -> LogResult:
        """At most about `limit` bytes within `allowed` seconds; then `follow` seconds more of a running container."""
        result, began = LogResult(), time.monotonic()
        head = max(int(limit * HEAD_SHARE), 1024)
        try:
            if self._take(place, result, allowed, {"limit_bytes": head}) >= head:
                self._take_end(place, result, limit, max(allowed - (time.monotonic() - began), 5.0))
            elif follow > 0 and place.running and not place.previous:
                self._follow(place, result, follow)
        except KubeError as error:
            self._failed(place, result, error)
        if not result.error and not result.missing:
            self._tell_rotation(place, result)
        return result

    def _take(
        self, place: LogPlace, result: LogResult, allowed: float, options: dict[str, Any], later_than: bytes = b""
    ) -> int:
        """One request, into the spool. Lines up to `later_than` are there already. Returns how much came."""
        options = {"timestamps": True, **options}
        if place.previous:
            options["previous"] = True
        since = seconds(later_than) if later_than else self._since
        idle = options.pop("_idle", None)
        query = f"/api/v1/namespaces/{place.namespace}/pods/{place.pod}/log?container={place.container}"
        if len(self._session.asked) < 50:
            self._session.asked.append(query + ("&previous=true" if place.previous else ""))
        if since is not None:
            # the official client has no sinceTime; an older start than asked for does no harm
            options["since_seconds"] = max(int(time.time() - since + CLOCK_SLACK), 1)
        with self._session.log(
            place.namespace, place.pod, place.container, seconds=allowed, idle=idle, **options
        ) as blocks:
            total = [0]
            self._keep(place, result, whole_lines(counted(blocks, total), options.get("limit_bytes")), later_than)
        return total[0]

    def _keep(self, place: LogPlace, result: LogResult, blocks: Iterable[bytes], later_than: bytes) -> None:
        fresh = not later_than
        for block in blocks:
            if not result.size and block.startswith(LOST):
                result.missing = True
                result.note = f"the kubelet has no log of {place.label} any more"
                return
            if not fresh:
                later = after(block, later_than)
                result.overlaps = result.overlaps or len(later) < len(block)
                block, fresh = later, bool(later)
                if not fresh:
                    continue
            result.first = result.first or first_stamp(block)
            result.last = last_stamp(block) or result.last
            content = as_cri(block)
            lines = content.count(b"\n")
            self._spool.add(place, content, lines=lines)
            result.size += len(block)
            result.lines += lines

    def _take_end(self, place: LogPlace, result: LogResult, limit: int, allowed: float) -> None:
        """The last lines of a log that is longer than its limit."""
        usual = max(result.size // max(result.lines, 1), 1) if result.lines else USUAL_LINE
        room, edge = limit - result.size, result.last
        tail = LogResult(last=edge)
        options = {"tail_lines": max(room // usual, 1), "limit_bytes": max(2 * room, 1024)}
        came = self._take(place, tail, allowed, options, edge)
        result.last, result.size, result.lines = tail.last, result.size + tail.size, result.lines + tail.lines
        said = f"{place.label} is longer than {limit} bytes"
        gap_from, gap_to = seconds(edge), seconds(tail.first)
        if gap_from is not None and gap_to is not None and not tail.overlaps:
            result.partial = True
            gap = f"{rfc3339_seconds(gap_from)} to {rfc3339_seconds(gap_to)}"
            result.note = f"{said}: lines from {gap} are left out"
        if came >= options["limit_bytes"]:
            result.partial = True
            result.note = f"{result.note or said}; its last lines are longer than the others and left out"

    def _follow(self, place: LogPlace, result: LogResult, follow: float) -> None:
        """What a running container writes now. A log that is rotated meanwhile is taken up again by time."""
        end = time.monotonic() + follow
        while (left := end - time.monotonic()) > 0.2:
            lines = result.lines
            self._take(place, result, left, {"follow": True, "_idle": min(FOLLOW_IDLE, left)}, result.last)
            if result.lines == lines:
                return

    def _failed(self, place: LogPlace, result: LogResult, error: KubeError) -> None:
        words = error.detail or str(error)
        if error.gone:
            result.missing = not result.size
            result.note = f"pod {place.pod} is gone: its logs can only come from a log store"
        elif error.status == 400 and "previous terminated container" in words:
            result.missing = True
        elif error.status == 400 and ("waiting to start" in words or "is not available" in words):
            result.missing = True
            result.note = f"{place.label} has no log: {words}"
        elif error.status == 400:
            result.missing = True
            result.note = f"{place.label}: {words}"
        elif error.kind in (Kind.OVER, Kind.SLOW) and result.size:
            result.partial = True
            result.note = f"{place.label} is not read to its end: {error}"
        elif error.status >= 500:
            result.error = error
            node = f" of {place.node}" if place.node else ""
            result.note = f"the kubelet{node} does not give the log of {place.label}: {words}"
        else:
            result.error = error
            result.note = str(error)

    def _tell_rotation(self, place: LogPlace, result: LogResult) -> None:
        """A kubelet gives only the newest file of a log that it has rotated."""
        begun = max(filter(None, (place.started_at, self._since)), default=None)
        first = seconds(result.first)
        if begun is None or first is None or result.size < ROTATED_BYTES or first - begun < ROTATED_SECONDS:
            return
        result.partial = True
        said = (
            f"the log of {place.label} begins {(first - begun) / 60:.0f} min after the container: it was probably "
            "rotated (containerLogMaxSize of the kubelet); a log store has the lines before"
        )
        result.note = "; ".join(filter(None, (result.note, said)))


def places_of(pod: dict[str, Any], *, init: bool, previous: bool) -> list[LogPlace]:
    """The logs that a pod may have, init containers first."""
    meta, spec, status = (pod.get(key) or {} for key in ("metadata", "spec", "status"))
    kinds = [("initContainers", "initContainerStatuses")] if init else []
    found: list[LogPlace] = []
    for key, statuses in [*kinds, ("containers", "containerStatuses")]:
        states = {s.get("name"): s for s in status.get(statuses) or [] if isinstance(s, dict)}
        for container in spec.get(key) or []:
            name = str(container.get("name") or "")
            state = states.get(name) or {}
            common: dict[str, Any] = {
                "namespace": str(meta.get("namespace") or ""),
                "pod": str(meta.get("name") or ""),
                "uid": str(meta.get("uid") or ""),
                "node": str(spec.get("nodeName") or "") or None,
                "container": name,
            }
            last = (state.get("lastState") or {}).get("terminated") or {}
            if previous and (state.get("restartCount") or 0) > 0:
                found.append(LogPlace(**common, previous=True, started_at=parse(last.get("startedAt"))))
            now = state.get("state") or {}
            begun = (now.get("running") or now.get("terminated") or {}).get("startedAt")
            found.append(LogPlace(**common, running="running" in now, started_at=parse(begun)))
    return found
