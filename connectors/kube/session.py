"""Asking the Kubernetes API: lists in pages, watches with bookmarks, logs; each request with a time limit.

By https://kubernetes.io/docs/reference/using-api/api-concepts/ (chunks, watches, resource versions).
"""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, TimeoutError

from connectors.http import CONNECT_SECONDS, Deadline, Watchdog
from connectors.kube import login
from connectors.kube.config import KubeConfig
from connectors.kube.errors import KubeError, refused, untrusted
from connectors.kube.resources import EVENTS, NODES, PODS, Resource
from connectors.refusals import Kind, unreachable

MAX_BYTES = 64 * 1024**2
"""Of one object or page of a list."""
MAX_EVENT_BYTES = 8 * 1024**2
"""Of one event of a watch: etcd keeps no larger objects than 1.5 MB by default."""
RELISTS = 2
"""So often a list whose token ran out is begun anew before it is ended with the token that the server offers."""
BLOCK = 64 * 1024
_TRIES = {Kind.DOWN: 3, Kind.BUSY: 8, Kind.SERVER: 3}


class Page(msgspec.Struct):
    """A part of a list."""

    items: list[dict[str, Any]]
    version: str
    """Resource version of the list: a watch from here on misses nothing."""
    last: bool


class WatchEvent(msgspec.Struct, frozen=True):
    """A change. `type`: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: dict[str, Any]

    @property
    def version(self) -> str:
        return str((self.object.get("metadata") or {}).get("resourceVersion") or "")


class KubeSession:
    """Requests to one cluster, one after another. Not shared between threads. All calls raise KubeError, and
    ConnectorError when one can't sign in.
    """

    def __init__(self, config: KubeConfig, deadline: Deadline) -> None:
        self.config, self.deadline = config, deadline
        self.asked: list[str] = []
        """Paths that were asked for, each once."""
        self._held: list[socket.socket] = []
        self._api = login.api_client(config, self._held)

    def __enter__(self) -> KubeSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        login.close(self._api)

    @property
    def url(self) -> str:
        return str(self._api.configuration.host)

    # --- objects ------------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any]:
        """One object. `error.gone` when it isn't there."""
        doing = f"get {resource.plural[:-1]} {name}" + (f" in {namespace}" if namespace else "")
        self._note(resource.path(namespace, name))
        item = self._json(doing, lambda seconds: self._read(resource, namespace, name, seconds))
        item.setdefault("kind", resource.kind)
        item.setdefault("apiVersion", resource.api_version)
        return item

    def pages(
        self, resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "", limit: int | None = None
    ) -> Iterator[Page]:
        """A list in pages. When the token for the next page ran out (410), the list begins anew, so that items may
        come twice.
        """
        doing = f"list {resource.plural} in {namespace or 'all namespaces'}"
        selectors = [f"labelSelector={labels}"] * bool(labels) + [f"fieldSelector={fields}"] * bool(fields)
        self._note("?".join(filter(None, (resource.path(namespace), "&".join(selectors)))))
        token, relists = "", 0
        while True:
            options: dict[str, Any] = {"limit": limit or self.config.page}
            options |= {"_continue": token} if token else {}
            options |= {"label_selector": labels} if labels else {}
            options |= {"field_selector": fields} if fields else {}
            try:
                body = self._json(doing, lambda seconds, o=options: self._list(resource, namespace, o, seconds))  # type: ignore[misc]
            except KubeError as error:
                if not error.expired or not token:
                    raise
                relists += 1
                if relists > RELISTS and not error.continue_:
                    raise
                token = error.continue_ if relists > RELISTS else ""
                continue
            meta = body.get("metadata") or {}
            items = [item for item in body.get("items") or [] if isinstance(item, dict)]
            for item in items:
                item["kind"], item["apiVersion"] = resource.kind, resource.api_version
            token = str(meta.get("continue") or "")
            yield Page(items, str(meta.get("resourceVersion") or ""), not token)
            if not token:
                return

    def list(
        self, resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "", most: int = 100_000
    ) -> list[dict[str, Any]]:
        """All items of a list, each once, up to `most`."""
        found: dict[str, dict[str, Any]] = {}
        for page in self.pages(resource, namespace, labels=labels, fields=fields):
            for item in page.items:
                meta = item.get("metadata") or {}
                found[str(meta.get("uid") or f"{meta.get('namespace')}/{meta.get('name')}")] = item
            if len(found) >= most:
                break
        return list(found.values())

    def watch(
        self,
        resource: Resource,
        namespace: str | None,
        version: str,
        *,
        seconds: float,
        idle: float,
        labels: str = "",
    ) -> Iterator[WatchEvent]:
        """Changes after `version`, with bookmarks, for at most `seconds`, and until nothing came for `idle` seconds.
        `error.expired` (410 Gone) when the version is too old: then list anew.
        """
        doing = f"watch {resource.plural} in {namespace or 'all namespaces'}"
        self._note(resource.path(namespace) + "?watch=1")
        allowed = min(seconds, self.deadline.left())
        options: dict[str, Any] = {
            "watch": True,
            "allow_watch_bookmarks": True,
            "resource_version": version,
            "timeout_seconds": max(int(allowed), 1),
        }
        options |= {"label_selector": labels} if labels else {}
        with self._open(doing, lambda limit: self._list(resource, namespace, options, limit), allowed, idle) as answer:
            for line in _lines(answer, doing):
                event = self._event(doing, line)
                if event is not None:
                    event.object.setdefault("kind", resource.kind)
                    event.object.setdefault("apiVersion", resource.api_version)
                    yield event

    def _event(self, doing: str, line: bytes) -> WatchEvent | None:
        try:
            event = msgspec.json.decode(line, type=WatchEvent)
        except (msgspec.DecodeError, RecursionError):
            raise KubeError(Kind.GARBAGE, f"{doing}: the answer is not JSON: is this the Kubernetes API?") from None
        if event.type == "ERROR":
            body = msgspec.json.encode({"kind": "Status", **event.object}).decode()
            code = event.object.get("code")
            raise refused(self.config, doing, code if isinstance(code, int) else 500, body, None)
        return event

    # --- logs ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def log(
        self, namespace: str, pod: str, container: str, *, seconds: float, idle: float | None = None, **options: Any
    ) -> Iterator[Iterator[bytes]]:
        """A container's log in blocks. Options as of `read_namespaced_pod_log`, by their names in Python."""
        from kubernetes import client

        doing = f"read the log of {pod}/{container} in {namespace}"

        def ask(limit: tuple[float, float]) -> Any:
            return client.CoreV1Api(self._api).read_namespaced_pod_log(
                pod, namespace, container=container, _preload_content=False, _request_timeout=limit, **options
            )

        with self._open(doing, ask, min(seconds, self.deadline.left()), idle, tries=2) as answer:
            yield _blocks(answer, quiet=idle is not None)

    # --- how the official client is called ----------------------------------------------------------------------------

    def _list(
        self, resource: Resource, namespace: str | None, options: dict[str, Any], seconds: tuple[float, float]
    ) -> Any:
        from kubernetes import client

        options = {**options, "_preload_content": False, "_request_timeout": seconds}
        core = client.CoreV1Api(self._api)
        if resource == PODS:
            return (
                core.list_namespaced_pod(namespace, **options)
                if namespace
                else core.list_pod_for_all_namespaces(**options)
            )
        if resource == EVENTS:
            if namespace:
                return core.list_namespaced_event(namespace, **options)
            return core.list_event_for_all_namespaces(**options)
        if resource == NODES:
            return core.list_node(**options)
        custom = client.CustomObjectsApi(self._api)
        if namespace:
            return custom.list_namespaced_custom_object(
                resource.group, resource.version, namespace, resource.plural, **options
            )
        return custom.list_cluster_custom_object(resource.group, resource.version, resource.plural, **options)

    def _read(self, resource: Resource, namespace: str | None, name: str, seconds: tuple[float, float]) -> Any:
        from kubernetes import client

        options: dict[str, Any] = {"_preload_content": False, "_request_timeout": seconds}
        core = client.CoreV1Api(self._api)
        if resource == PODS:
            return core.read_namespaced_pod(name, namespace or "", **options)
        if resource == NODES:
            return core.read_node(name, **options)
        return client.CustomObjectsApi(self._api).get_namespaced_custom_object(
            resource.group, resource.version, namespace or "", resource.plural, name, **options
        )

    def _json(self, doing: str, ask: Callable[[tuple[float, float]], Any]) -> dict[str, Any]:
        try:
            content = self._whole(doing, ask)
        except KubeError as error:
            if error.kind is not Kind.DOWN or error.status:
                raise
            content = self._whole(doing, ask)  # broken off in the middle of the answer
        try:
            body = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise KubeError(
                Kind.GARBAGE, f"{self.url} does not answer like the Kubernetes API: check server in {self.config.login}"
            )
        return body

    def _whole(self, doing: str, ask: Callable[[tuple[float, float]], Any]) -> bytes:
        with self._open(doing, ask, self.config.request_seconds) as answer:
            content = bytearray()
            for block in _blocks(answer):
                content += block
                if len(content) > MAX_BYTES:
                    raise KubeError(Kind.TOO_LARGE, f"{doing}: the answer has more than {MAX_BYTES} bytes: lower page")
            return bytes(content)

    @contextmanager
    def _open(
        self,
        doing: str,
        ask: Callable[[tuple[float, float]], Any],
        allowed: float,
        idle: float | None = None,
        tries: int = 8,
    ) -> Iterator[urllib3.HTTPResponse]:
        """The answer to a request, as it comes. With `idle` its end by silence or by time is no error."""
        answer, watchdog, tried = None, None, 0
        while answer is None:
            allowed = min(allowed, self.deadline.left())
            if self.deadline.stopped():
                raise KubeError(Kind.STOPPED, "stopped before it was finished")
            if allowed <= 0:
                whole = self.deadline.whole
                raise KubeError(Kind.OVER, f"{doing}: not finished within the time limit ({whole:.0f} s)")
            watchdog = Watchdog(allowed, self._held)
            watchdog.__enter__()
            try:
                limit = (min(CONNECT_SECONDS, allowed), max(min(idle or allowed, allowed), 0.05))
                answer = self._answer(doing, ask, limit, watchdog)
            except KubeError as error:
                watchdog.__exit__()
                tried += 1
                wait = error.retry_after or min(0.3 * 2 ** (tried - 1), 15.0) * random.uniform(0.75, 1.25)
                if tried >= min(tries, _TRIES.get(error.kind, 1)) or wait >= self.deadline.left():
                    raise
                self.deadline.wait(wait)
            except BaseException:
                watchdog.__exit__()
                raise
        try:
            yield answer
        except (HTTPError, OSError) as error:
            if idle is None:
                raise self._broken(doing, error, watchdog, allowed) from None
        finally:
            if watchdog is not None:
                watchdog.__exit__()
            with suppress(Exception):
                answer.close()  # what was read to its end is in the pool again already

    def _answer(
        self, doing: str, ask: Callable[[tuple[float, float]], Any], limit: tuple[float, float], watchdog: Watchdog
    ) -> urllib3.HTTPResponse:
        from kubernetes.client.exceptions import ApiException

        try:
            answer: urllib3.HTTPResponse = ask(limit)
            return answer
        except ApiException as error:
            body = error.body.decode("utf-8", "replace") if isinstance(error.body, bytes) else str(error.body or "")
            if not error.status:
                raise untrusted(self.config, str(error.reason)) from None
            raise refused(self.config, doing, int(error.status), body, error.headers) from None
        except (HTTPError, OSError) as error:
            raise self._broken(doing, error, watchdog, limit[1]) from None

    def _broken(self, doing: str, error: Exception, watchdog: Watchdog | None, allowed: float) -> KubeError:
        """No whole answer came."""
        late = (watchdog is not None and watchdog.fired) or (
            isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError)
        )
        if late and self.deadline.stopped():
            return KubeError(Kind.STOPPED, "stopped before it was finished")
        if late and self.deadline.left() < 0.05:
            return KubeError(Kind.OVER, f"{doing}: not finished within the time limit ({self.deadline.whole:.0f} s)")
        if late:
            return KubeError(Kind.SLOW, f"{doing}: Kubernetes did not answer within {allowed:.0f} s: it is overloaded")
        if isinstance(error, urllib3.exceptions.SSLError | ssl.SSLError):
            return untrusted(self.config, str(error))
        down = unreachable("Kubernetes", self.url, error)
        return KubeError(down.kind, f"{down} (the address is in {self.config.login})")

    def _note(self, path: str) -> None:
        if path not in self.asked:
            self.asked.append(path)


def _blocks(answer: urllib3.HTTPResponse, *, quiet: bool = False) -> Iterator[bytes]:
    """An answer's bytes as they arrive. With `quiet` silence and time limits end it like its end does."""
    try:
        yield from answer.stream(BLOCK, decode_content=True)
    except (HTTPError, OSError):
        if not quiet:
            raise


def _lines(answer: urllib3.HTTPResponse, doing: str) -> Iterator[bytes]:
    """Lines of a watch. Silence, or the end of its time, ends it."""
    rest = b""
    for block in _blocks(answer, quiet=True):
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) > MAX_EVENT_BYTES:
            raise KubeError(Kind.TOO_LARGE, f"{doing}: a change has more than {MAX_EVENT_BYTES} bytes")
        for line in lines:
            if line.strip():
                yield line
