"""Kueue's Workload objects as attempts: one for each time that a workload was admitted.

By apis/kueue/v1beta2/workload_types.go of kubernetes-sigs/kueue; v1beta1 has the same fields where they are read here.
A Workload tells only how things stand now, so what is running is remembered from one look to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from connectors.kube.owners import WorkloadRef, owner_of
from connectors.kube.times import parse

PREVIOUSLY = "Previously: "
_TIME_LIMIT = "MaximumExecutionTimeExceeded"
_NOTHING_RAN = ("OutOfSync", "WorkloadSliceReplaced")
_USER_KEYS = ("kueue.x-k8s.io/user", "user", "username", "owner", "app.kubernetes.io/created-by")


class Running(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is remembered of a workload from its first admission to its end."""

    number: int
    since: float
    ref: str
    waiting: bool = False
    """Evicted, and told of; it may be admitted again as the next attempt."""
    name: str = ""
    user: str = ""
    queue: str = ""


class Cycle(msgspec.Struct, frozen=True, kw_only=True):
    """One admission of a workload, from being admitted to its end; `ended_at` is None while it runs."""

    number: int
    state: str
    reason: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    message: str = ""
    passed: bool = False
    """A later cycle has begun: the workload tells of that one now."""


class Look(msgspec.Struct, frozen=True):
    """What one look at a workload tells, and what to remember until the next."""

    cycles: tuple[Cycle, ...]
    running: Running | None


def look(workload: Mapping[str, Any], known: Running | None, user_label: str = "") -> Look:
    """The attempts that a Workload tells of, given what was remembered of it."""
    view = _View(workload)
    if view.finished is not None:
        return Look(view.at_the_end(known), None)
    if view.is_admitted and not view.is_evicted:
        return _admitted(view, workload, known, user_label)
    if view.is_evicted and not view.is_admitted and not (known is not None and known.waiting):
        cycle = view.after_eviction(known)
        if cycle is None:
            return Look((), None)
        ref = ref_of(workload, cycle.number)
        return Look((cycle,), Running(cycle.number, 0.0, ref.encode(), waiting=True))
    return Look((), known)  # its pods are being ended, or it waits


def _admitted(view: _View, workload: Mapping[str, Any], known: Running | None, user_label: str) -> Look:
    since = view.time("Admitted") or 0.0
    missed: tuple[Cycle, ...] = ()
    if known is not None and known.since == since and not known.waiting:
        number = known.number
    else:
        before = known.number if known is not None else 0
        number = max(view.evictions + 1, before + 1)
        missed = view.missed(known, number)
    ref = ref_of(workload, number)
    running = Running(
        number, since, ref.encode(), name=name_of(ref), user=user_of(workload, user_label), queue=queue_of(workload)
    )
    return Look((*missed, Cycle(number=number, state="Running", started_at=since or None)), running)


def vanished(known: Running, at: float, workload: Mapping[str, Any] | None = None) -> Cycle:
    """The end of a workload that was deleted while it ran."""
    state, reason, message = "Deleted", None, ""
    if workload is not None:
        view = _View(workload)
        at = min(parse(workload.get("metadata", {}).get("deletionTimestamp")) or at, at)
        if view.is_evicted:
            state, reason, message = view.eviction()
    return Cycle(
        number=known.number, state=state, reason=reason, started_at=known.since or None, ended_at=at, message=message
    )


class _View:
    """A Workload's status."""

    def __init__(self, workload: Mapping[str, Any]) -> None:
        self._status = workload.get("status") or {}
        conditions = [c for c in self._status.get("conditions") or [] if isinstance(c, dict)]
        self._conditions = {str(c.get("type")): c for c in conditions}
        stats = (self._status.get("schedulingStats") or {}).get("evictions") or []
        counts = [e.get("count") for e in stats if isinstance(e, dict)]
        self.evictions = sum(count for count in counts if isinstance(count, int))
        self._eviction_reasons = [str(e.get("reason")) for e in stats if isinstance(e, dict) and e.get("count")]
        requeues = (self._status.get("requeueState") or {}).get("count")
        if not stats and isinstance(requeues, int):
            self.evictions = requeues

    def true(self, kind: str) -> bool:
        return self._conditions.get(kind, {}).get("status") == "True"

    def time(self, kind: str) -> float | None:
        return parse(self._conditions.get(kind, {}).get("lastTransitionTime"))

    def word(self, kind: str, key: str = "reason") -> str:
        return str(self._conditions.get(kind, {}).get(key) or "")

    @property
    def is_admitted(self) -> bool:
        return self.true("Admitted")

    @property
    def is_evicted(self) -> bool:
        return self.true("Evicted")

    @property
    def finished(self) -> float | None:
        return (self.time("Finished") or 0.0) if self.true("Finished") else None

    def at_the_end(self, known: Running | None) -> tuple[Cycle, ...]:
        """A workload that is finished: nothing when it never ran, or was told of when it was evicted."""
        reason, message = self.word("Finished"), self.word("Finished", "message")
        if not self.is_admitted or reason in _NOTHING_RAN:
            return ()
        since = self.time("Admitted")
        again = known is not None and known.since != (since or 0.0)
        number = max(self.evictions, known.number if known is not None else 0) + 1
        if known is not None and not again:
            number = known.number
        state = reason
        if reason not in ("Succeeded", "Failed"):  # JobFinished, of Kueue before 0.9
            state = "Succeeded" if "success" in message.lower() else "Failed"
        missed = self.missed(known, number) if again else ()
        ended = self.finished or None
        return (*missed, Cycle(number=number, state=state, started_at=since, ended_at=ended, message=message))

    def after_eviction(self, known: Running | None) -> Cycle | None:
        """An evicted workload that waits again; None when it never ran before this eviction."""
        evicted, left = self.time("Evicted") or 0.0, self.time("Admitted") or 0.0
        if known is None and left < evicted:
            return None
        number = max(self.evictions, 1) if known is None else known.number
        ended = max(evicted, left) or None
        past = self._status.get("accumulatedPastExecutionTimeSeconds")
        since = known.since if known is not None else None
        if since is None and number == 1 and isinstance(past, int) and ended is not None:
            since = ended - past
        state, reason, message = self.eviction()
        return Cycle(number=number, state=state, reason=reason, started_at=since, ended_at=ended, message=message)

    def eviction(self) -> tuple[str, str | None, str]:
        """State, reason and message of the eviction that is told of."""
        reason = self.word("Evicted") or "Evicted"
        detail = self.word("Preempted") if reason == "Preempted" and self.true("Preempted") else None
        return *_eviction_words(reason, detail), self.word("Evicted", "message")

    def missed(self, known: Running | None, number: int) -> tuple[Cycle, ...]:
        """The cycle before this one, when its end was not seen: what the conditions still tell of it."""
        message = self.word("Evicted", "message")
        if number < 2 or self.true("Evicted") or (known is not None and known.waiting):
            return ()
        if known is None and not message.startswith(PREVIOUSLY):
            return ()
        reason = "Evicted"
        if len(set(self._eviction_reasons)) == 1:
            reason = self._eviction_reasons[0]
        elif self.word("Preempted", "message").startswith(PREVIOUSLY):
            reason = "Preempted"
        state, said = _eviction_words(reason, None)
        return (
            Cycle(
                number=known.number if known is not None else number - 1,
                state=state,
                reason=said,
                started_at=(known.since or None) if known is not None else None,
                ended_at=self.time("Evicted") or self.time("QuotaReserved"),
                message=message.removeprefix(PREVIOUSLY),
                passed=True,
            ),
        )


def _eviction_words(reason: str, detail: str | None) -> tuple[str, str | None]:
    """Kueue's word for an eviction as state and reason of an attempt."""
    if _TIME_LIMIT in reason:
        return "DeadlineExceeded", reason
    if reason == "NodeFailures":
        return "Failed/NodeFailures", reason
    return ("Evicted" if reason == "Evicted" else f"Evicted/{reason}"), detail


def ref_of(workload: Mapping[str, Any], number: int) -> WorkloadRef:
    meta = workload.get("metadata") or {}
    return WorkloadRef(
        namespace=str(meta.get("namespace") or ""),
        name=str(meta.get("name") or ""),
        uid=str(meta.get("uid") or ""),
        number=number,
        owner=owner_of(workload),
    )


def name_of(ref: WorkloadRef) -> str:
    """What people call it: the owner's name."""
    return ref.owner.name if ref.owner is not None else ref.name


def queue_of(workload: Mapping[str, Any]) -> str:
    return str((workload.get("spec") or {}).get("queueName") or "")


def user_of(workload: Mapping[str, Any], label: str = "") -> str:
    """From a label or annotation of the workload; Kubernetes itself does not know who asked for it."""
    meta = workload.get("metadata") or {}
    said = {**(meta.get("annotations") or {}), **(meta.get("labels") or {})}
    return next((str(said[key]) for key in ((label,) if label else _USER_KEYS) if said.get(key)), "")


def is_done(workload: Mapping[str, Any]) -> bool:
    """Will a finished workload tell nothing new any more?"""
    return _View(workload).finished is not None


def ended_at(workload: Mapping[str, Any]) -> float | None:
    """When it finished, or was evicted last."""
    view = _View(workload)
    return view.finished or view.time("Evicted")


def owner_reason(owner: Mapping[str, Any]) -> str | None:
    """Why an owner says that it failed, e.g. BackoffLimitExceeded."""
    status = owner.get("status") or {}
    for condition in status.get("conditions") or []:
        is_failure = isinstance(condition, dict) and condition.get("type") in ("Failed", "FailureTarget")
        if is_failure and condition.get("status") == "True" and condition.get("reason"):
            return str(condition["reason"])
    return str(status["reason"]) if status.get("reason") else None  # RayJob


def exit_code(pods: list[dict[str, Any]]) -> str | None:
    """Of the container that failed first; None when none did."""
    failed: list[tuple[bool, str, int]] = []
    for pod in pods:
        status = pod.get("status") or {}
        for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
            for key in ("lastState", "state"):
                end = (container.get(key) or {}).get("terminated") or {}
                code = end.get("exitCode")
                if isinstance(code, int) and code:
                    failed.append((code in (137, 143), str(end.get("finishedAt") or "~"), code))
    return str(min(failed)[2]) if failed else None
