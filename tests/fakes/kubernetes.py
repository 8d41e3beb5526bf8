"""A Kubernetes API server that answers by its reference, for tests.

What it holds to, and where that is written:
- Lists, chunks, watches, bookmarks, 410: https://kubernetes.io/docs/reference/using-api/api-concepts/
  `limit` and `continue` give one consistent snapshot; an expired token is 410 `Expired` with a new token in
  `metadata.continue`, which goes on from the next key in the newest state. A watch tells of changes after
  `resourceVersion`; one that is older than the history gets 410, as an ERROR event in a 200 answer (or as an HTTP
  status, as some versions do). BOOKMARK events hold kind, apiVersion and resourceVersion, only when
  `allowWatchBookmarks` is set. `timeoutSeconds` ends a watch. Items of lists of built-in kinds have no kind; those of
  custom resources have.
- Errors are objects of kind Status: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
  401 Unauthorized, 403 Forbidden (in the words of RBAC), 404 NotFound, 410 Expired, 429 TooManyRequests with
  Retry-After. A group that isn't served is 404 in plain text.
- Field selectors of pods and events: https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
  others are 400 `field label not supported`.
- `GET /api/v1/namespaces/{namespace}/pods/{name}/log`: `container`, `previous`, `sinceSeconds` or `sinceTime` (not
  both), `tailLines`, `limitBytes` (after the tail; may cut a line), `timestamps` (RFC3339Nano), `follow`:
  https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#get-read-log-of-the-specified-pod
  A kubelet reads only the newest file of a rotated log:
  https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation
- A parameter that the reference doesn't know is refused with 400 (the real server ignores it), so that tests notice.

What it can't be: admission, storage versions, protobuf, aggregated discovery, API priority and fairness other than by
`faults`.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

USER = "system:serviceaccount:faultline:faultline"
_PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[a-z0-9.-]+)/(?P<version>v\w+))"
    r"(?:/namespaces/(?P<namespace>[a-z0-9-]+))?/(?P<plural>[a-z]+)(?:/(?P<name>[\w.-]+)(?:/(?P<sub>[a-z]+))?)?"
)
_LIST = {
    "limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "watch",
    "allowWatchBookmarks", "timeoutSeconds", "pretty", "sendInitialEvents",
}  # fmt: skip
_LOG = {
    "container", "follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "pretty",
    "stream", "insecureSkipTLSVerifyBackend",
}  # fmt: skip
_FIELDS = {
    "pods": {"metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy", "status.phase",
             "status.podIP"},
    "events": {"metadata.name", "metadata.namespace", "involvedObject.kind", "involvedObject.name",
               "involvedObject.namespace", "involvedObject.uid", "involvedObject.fieldPath", "reason", "type",
               "reportingComponent", "source"},
    "nodes": {"metadata.name", "spec.unschedulable"},
}  # fmt: skip


class Refused(Exception):
    def __init__(self, status: int, reason: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.headers: dict[str, str] = more.pop("headers", {})
        meta = more.pop("metadata", {})
        self.body = json.dumps(
            {
                "kind": "Status", "apiVersion": "v1", "metadata": meta, "status": "Failure", "message": message,
                "reason": reason, "code": status, **more,
            }
        )  # fmt: skip


class Plain(Exception):
    """An answer that is no Status."""


class Fault(NamedTuple):
    """Instead of the next answer: an error; with status 0 a delay in seconds before the real one, or with `cut` an end
    in the middle of it.
    """

    status: int
    body: str = ""
    headers: Mapping[str, str] = {}
    seconds: float = 0.0
    cut: bool = False


class Line(NamedTuple):
    ns: int
    text: str


class Log:
    """What one run of a container wrote, as far as its kubelet still has it."""

    def __init__(self, lines: Iterable[Line] = (), *, ended: bool = True) -> None:
        self.lines = list(lines)
        self.ended = ended
        self.rotated = 0
        """Lines that are in older files, which the kubelet doesn't read."""

    def rotate(self) -> None:
        self.rotated = len(self.lines)


class _Change(NamedTuple):
    version: int
    type: str
    key: tuple[str, str]
    """Group/plural; namespace/name."""
    object: dict[str, Any]
    before: dict[str, Any] | None


class FakeKubernetes:
    """Use as a context; `url` is where it listens, `kubeconfig(path)` writes how to sign in."""

    def __init__(self, *, token: str = "sesame", kueue: tuple[str, ...] = ("v1beta1",), tls: Any = None) -> None:
        self.token = token
        self.kueue = kueue
        self.denied: set[tuple[str, str]] = set()
        """(verb, plural[/sub]) that the account may not."""
        self.faults: deque[Fault] = deque()
        self.gone_as_status = False
        self.kubelets_down: set[str] = set()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.logs: dict[tuple[str, str, str, bool], Log] = {}
        """(namespace, pod, container, previous)"""
        self._version = 1000
        self._oldest = 0
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._history: list[_Change] = []
        self._snapshots: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that has gone away
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> FakeKubernetes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self, path: Any, *, token: str | None = None) -> str:
        """Writes a kubeconfig with a token; returns its path."""
        content = {
            "apiVersion": "v1", "kind": "Config", "current-context": "k2",
            "clusters": [{"name": "k2", "cluster": {"server": self.url}}],
            "users": [{"name": "faultline", "user": {"token": self.token if token is None else token}}],
            "contexts": [{"name": "k2", "context": {"cluster": "k2", "user": "faultline"}}],
        }  # fmt: skip
        path.write_text(json.dumps(content))
        return str(path)

    # --- what the cluster holds ---------------------------------------------------------------------------------------

    def put(self, item: Mapping[str, Any], plural: str | None = None) -> dict[str, Any]:
        """Creates an object or replaces it."""
        item = copy.deepcopy(dict(item))
        key = self._key(item, plural)
        with self._changed:
            before = self._objects.get(key)
            self._version += 1
            item.setdefault("metadata", {})["resourceVersion"] = str(self._version)
            self._objects[key] = item
            self._history.append(_Change(self._version, "MODIFIED" if before else "ADDED", key, item, before))
            self._changed.notify_all()
        return item

    def delete(self, item: Mapping[str, Any], plural: str | None = None) -> None:
        key = self._key(item, plural)
        with self._changed:
            before = self._objects.pop(key)
            self._version += 1
            last = copy.deepcopy(before)
            last["metadata"]["resourceVersion"] = str(self._version)
            self._history.append(_Change(self._version, "DELETED", key, last, before))
            self._changed.notify_all()

    def write(self, namespace: str, pod: str, container: str, lines: Iterable[Line], *, previous: bool = False,
              ended: bool = True) -> Log:  # fmt: skip
        """What a container wrote."""
        log = self.logs.setdefault((namespace, pod, container, previous), Log(ended=ended))
        with self._changed:
            log.lines.extend(lines)
            log.ended = ended
            self._changed.notify_all()
        return log

    def compact(self) -> None:
        """Forgets the history: watches from before are 410 Gone, continue tokens have expired."""
        with self._changed:
            self._version += 1  # something else changed meanwhile
            self._oldest = self._version
            self._history.clear()
            self._snapshots.clear()

    def _key(self, item: Mapping[str, Any], plural: str | None) -> tuple[str, str]:
        group = item["apiVersion"].rpartition("/")[0]
        meta = item["metadata"]
        plural = plural or item["kind"].lower() + "s"
        return f"{group}/{plural}", f"{meta.get('namespace', '')}/{meta['name']}"

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    def _handler(fake) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30
            wbufsize = 1 << 16  # else head and body are two packets, of which the second waits for an acknowledgement

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                target = urllib.parse.urlsplit(self.path)
                params = dict(urllib.parse.parse_qsl(target.query, keep_blank_values=True))
                fake.requests.append((target.path, params))
                fault = fake.faults.popleft() if fake.faults else None
                if fault is not None and fault.seconds:
                    time.sleep(fault.seconds)
                if fault is not None and fault.status:
                    self._send(fault.status, fault.body.encode(), headers=fault.headers)
                    return
                try:
                    scheme, _, token = self.headers.get("Authorization", "").partition(" ")
                    if scheme.lower() != "bearer" or token != fake.token:
                        raise Refused(401, "Unauthorized", "Unauthorized")
                    answer = fake._answer(target.path, params)
                except Refused as error:
                    self._send(error.status, error.body.encode(), headers=error.headers)
                except Plain as error:
                    self._send(404, str(error).encode(), "text/plain; charset=utf-8")
                else:
                    if isinstance(answer, bytes):
                        self._send(200, answer, cut=fault is not None and fault.cut)
                    else:
                        self._stream(answer, fault is not None and fault.cut)

            def _send(self, status: int, body: bytes, kind: str = "application/json", *,
                      headers: Mapping[str, str] | None = None, cut: bool = False) -> None:  # fmt: skip
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                for key, value in (headers or {}).items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if cut else body)
                self.wfile.flush()
                self.close_connection = cut or self.close_connection

            def _stream(self, blocks: Iterator[bytes], cut: bool) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    self.wfile.flush()
                    for block in blocks:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
                        self.wfile.flush()
                        if cut:
                            self.close_connection = True
                            return
                    self.wfile.write(b"0\r\n\r\n")
                    self.wfile.flush()
                except OSError:
                    self.close_connection = True

        return Handler

    def _answer(self, path: str, params: Mapping[str, str]) -> bytes | Iterator[bytes]:
        found = _PATH.fullmatch(path)
        if not found:
            raise Plain("404 page not found")
        group, plural = found["group"] or "", found["plural"]
        if group == "kueue.x-k8s.io" and found["version"] not in self.kueue:
            raise Plain("404 page not found")
        if group not in ("", "kueue.x-k8s.io", "batch", "kubeflow.org", "jobset.x-k8s.io", "ray.io"):
            raise Plain("404 page not found")
        version = found["core"] or f"{group}/{found['version']}"
        kind, namespace, name = f"{group}/{plural}", found["namespace"], found["name"]
        if name and found["sub"] == "log":
            self._allow("get", "pods/log", group, namespace)
            _known(params, _LOG)
            return self._log(namespace or "", name, params)
        if name:
            self._allow("get", plural, group, namespace)
            item = self._objects.get((kind, f"{namespace or ''}/{name}"))
            if item is None:
                said = f"{plural}.{group}" if group else plural
                raise Refused(404, "NotFound", f'{said} "{name}" not found', details={"name": name, "kind": plural})
            return json.dumps(item).encode()
        _known(params, _LIST)
        select = _selected(plural, params)
        if params.get("watch") in ("1", "true", "True"):
            self._allow("watch", plural, group, namespace)
            return self._watch(kind, version, namespace, params, select)
        self._allow("list", plural, group, namespace)
        return self._list(kind, version, namespace, params, select)

    def _allow(self, verb: str, plural: str, group: str, namespace: str | None) -> None:
        if (verb, plural) in self.denied:
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            raise Refused(
                403, "Forbidden",
                f'{plural} is forbidden: User "{USER}" cannot {verb} resource "{plural}" in API group "{group}" '
                f"{where}",
                details={"kind": plural},
            )  # fmt: skip

    # --- lists and watches --------------------------------------------------------------------------------------------

    def _list(
        self, kind: str, version: str, namespace: str | None, params: Mapping[str, str], select: Callable[..., bool]
    ) -> bytes:
        limit = int(params.get("limit") or 0)
        with self._changed:
            if params.get("continue"):
                at, items = self._continued(params["continue"], kind, namespace, select)
            else:
                at, items = self._version, self._current(kind, namespace, select)
            page, rest = (items[:limit], items[limit:]) if limit else (items, [])
            token = ""
            if rest:
                last = f"{page[-1]['metadata'].get('namespace', '')}/{page[-1]['metadata']['name']}"
                token = base64.urlsafe_b64encode(json.dumps({"v": at, "start": last}).encode()).decode()
                self._snapshots[token] = (at, rest)
        meta: dict[str, Any] = {"resourceVersion": str(at)}
        if token:
            meta |= {"continue": token, "remainingItemCount": len(rest)}
        shown = [self._as_item(item, kind) for item in page]
        singular = page[0]["kind"] if page else kind.rpartition("/")[2][:-1].capitalize()
        return json.dumps({"kind": f"{singular}List", "apiVersion": version, "metadata": meta, "items": shown}).encode()

    def _continued(
        self, token: str, kind: str, namespace: str | None, select: Callable[..., bool]
    ) -> tuple[int, list[dict[str, Any]]]:
        if token in self._snapshots:
            return self._snapshots[token]
        try:
            fields = json.loads(base64.urlsafe_b64decode(token))
        except ValueError:
            raise Refused(400, "BadRequest", "continue key is not valid") from None
        if fields["v"] == -1 or int(fields["v"]) > self._oldest:
            items = self._current(kind, namespace, select)
            return self._version, [item for item in items if self._key_of(item) > fields["start"]]
        fresh = base64.urlsafe_b64encode(json.dumps({**fields, "v": -1}).encode()).decode()
        raise Refused(
            410, "Expired",
            "The provided continue parameter is too old to display a consistent list result. You can start a new list "
            "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
            "the results.",
            metadata={"continue": fresh},
        )  # fmt: skip

    @staticmethod
    def _key_of(item: Mapping[str, Any]) -> str:
        return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"

    def _current(self, kind: str, namespace: str | None, select: Callable[..., bool]) -> list[dict[str, Any]]:
        found = sorted((key[1], item) for key, item in self._objects.items() if key[0] == kind)
        return [item for key, item in found if (not namespace or key.startswith(f"{namespace}/")) and select(item)]

    @staticmethod
    def _as_item(item: dict[str, Any], kind: str) -> dict[str, Any]:
        if "." in kind:  # a custom resource keeps its kind
            return item
        return {key: value for key, value in item.items() if key not in ("kind", "apiVersion")}

    def _watch(
        self, kind: str, version: str, namespace: str | None, params: Mapping[str, str], select: Callable[..., bool]
    ) -> Iterator[bytes]:
        at = int(params.get("resourceVersion") or self._version)
        if at < self._oldest:
            gone = Refused(410, "Expired", f"too old resource version: {at} ({self._oldest})")
            if self.gone_as_status:
                raise gone
            return iter([json.dumps({"type": "ERROR", "object": json.loads(gone.body)}).encode() + b"\n"])
        bookmarks = params.get("allowWatchBookmarks") in ("1", "true", "True")
        seconds = float(params.get("timeoutSeconds") or 1800)
        return self._changes(kind, version, namespace, at, seconds, bookmarks, select)

    def _changes(
        self, kind: str, version: str, namespace: str | None, at: int, seconds: float, bookmarks: bool,
        select: Callable[..., bool],
    ) -> Iterator[bytes]:  # fmt: skip
        end, told = time.monotonic() + seconds, at
        while True:
            with self._changed:
                fresh = [change for change in self._history if change.version > at]
                if not fresh:
                    left = end - time.monotonic()
                    if left <= 0 or self._closing:
                        break
                    if not bookmarks or told >= self._version:
                        self._changed.wait(min(left, 0.2))
                        continue
                now = self._version
            for change in fresh:
                at = change.version
                event = self._event(change, kind, namespace, select)
                if event:
                    told = at
                    yield json.dumps(event).encode() + b"\n"
            if bookmarks and told < now:
                at = told = now
                singular = {"pods": "Pod", "workloads": "Workload"}.get(kind.rpartition("/")[2], "Event")
                mark = {"kind": singular, "apiVersion": version, "metadata": {"resourceVersion": str(now)}}
                yield json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n"

    @staticmethod
    def _event(change: _Change, kind: str, namespace: str | None, select: Callable[..., bool]) -> dict[str, Any] | None:
        if change.key[0] != kind or (namespace and not change.key[1].startswith(f"{namespace}/")):
            return None
        was = change.before is not None and select(change.before)
        is_now = change.type != "DELETED" and select(change.object)
        if not was and not is_now:
            return None
        type_ = "MODIFIED" if was and is_now else "ADDED" if is_now else "DELETED"
        return {"type": type_, "object": change.object}

    # --- logs ---------------------------------------------------------------------------------------------------------

    def _log(self, namespace: str, pod: str, params: Mapping[str, str]) -> bytes | Iterator[bytes]:
        item = self._objects.get(("/pods", f"{namespace}/{pod}"))
        if item is None:
            raise Refused(404, "NotFound", f'pods "{pod}" not found', details={"name": pod, "kind": "pods"})
        spec = item["spec"]
        names = [c["name"] for c in [*spec.get("initContainers", []), *spec["containers"]]]
        container = params.get("container", "")
        if not container:
            if len(names) > 1:
                raise Refused(
                    400, "BadRequest",
                    f"a container name must be specified for pod {pod}, choose one of: [{' '.join(names)}]",
                )  # fmt: skip
            container = names[0]
        if container not in names:
            raise Refused(400, "BadRequest", f"container {container} is not valid for pod {pod}")
        if "sinceSeconds" in params and "sinceTime" in params:
            raise Refused(422, "Invalid", 'PodLogOptions "" is invalid: at most one of `sinceTime` or `sinceSeconds`')
        previous = params.get("previous") in ("1", "true", "True")
        node = spec.get("nodeName", "")
        if not node:
            raise Refused(400, "BadRequest", f"pod {pod} does not have a host assigned")
        if node in self.kubelets_down:
            raise Refused(
                500, "InternalError",
                f'Get "https://{node}:10250/containerLogs/{namespace}/{pod}/{container}": dial tcp {node}:10250: '
                "connect: no route to host",
            )  # fmt: skip
        log = self.logs.get((namespace, pod, container, previous))
        if log is None and previous:
            raise Refused(400, "BadRequest", f'previous terminated container "{container}" in pod "{pod}" not found')
        if log is None:
            raise Refused(
                400, "BadRequest", f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating'
            )
        stamps = params.get("timestamps") in ("1", "true", "True")
        since = _since(params)
        lines = [line for line in log.lines[log.rotated :] if line.ns >= since]
        if "tailLines" in params:
            lines = lines[len(lines) - min(int(params["tailLines"]), len(lines)) :]
        content = b"".join(_shown(line, stamps) for line in lines)
        if "limitBytes" in params:
            content = content[: int(params["limitBytes"])]
        if params.get("follow") in ("1", "true", "True"):
            return self._followed(log, len(log.lines), content, stamps)
        return iter([content[at : at + 65536] for at in range(0, len(content), 65536)])

    def _followed(self, log: Log, had: int, content: bytes, stamps: bool) -> Iterator[bytes]:
        if content:
            yield content
        while True:
            with self._changed:
                fresh = log.lines[had:]
                if not fresh:
                    if log.ended or self._closing:
                        return
                    self._changed.wait(0.1)
                    continue
                had += len(fresh)
            yield b"".join(_shown(line, stamps) for line in fresh)


def _known(params: Mapping[str, str], names: set[str]) -> None:
    unknown = set(params) - names
    if unknown:
        raise Refused(400, "BadRequest", f"unknown parameter {sorted(unknown)[0]}")


def _selected(plural: str, params: Mapping[str, str]) -> Callable[[Mapping[str, Any]], bool]:
    labels = [part for part in params.get("labelSelector", "").split(",") if part]
    fields = [part for part in params.get("fieldSelector", "").split(",") if part]
    for part in labels:
        if not re.fullmatch(r"!?[\w./-]+(?:(?:==?|!=)[\w.-]*)?", part):
            raise Refused(400, "BadRequest", f"unable to parse requirement: {part}")
    for part in fields:
        name = re.split(r"!=|==?", part)[0]
        if name not in _FIELDS.get(plural, {"metadata.name", "metadata.namespace"}):
            raise Refused(400, "BadRequest", f"field label not supported: {name}")

    def holds(part: str, of: Callable[[str], str | None]) -> bool:
        name, sign, value = re.fullmatch(r"(!?[\w./-]+?)(?:(!=|==?)(.*))?", part).groups()  # type: ignore[union-attr]
        if not sign:
            return of(name[1:]) is None if name.startswith("!") else of(name) is not None
        return (of(name) == value) is (sign != "!=")

    def select(item: Mapping[str, Any]) -> bool:
        mine = item.get("metadata", {}).get("labels") or {}

        def field(name: str) -> str:
            value: Any = item
            for key in name.split("."):
                value = value.get(key, "") if isinstance(value, dict) else ""
            return str(value)

        return all(holds(part, mine.get) for part in labels) and all(holds(part, field) for part in fields)

    return select


def _since(params: Mapping[str, str]) -> int:
    if "sinceTime" in params:
        return int(datetime.fromisoformat(params["sinceTime"]).timestamp() * 1e9)
    if "sinceSeconds" in params:
        if int(params["sinceSeconds"]) < 1:
            raise Refused(422, "Invalid", "sinceSeconds: must be greater than 0")
        return int((time.time() - int(params["sinceSeconds"])) * 1e9)
    return 0


def _shown(line: Line, stamps: bool) -> bytes:
    if not stamps:
        return f"{line.text}\n".encode()
    whole, nanos = divmod(line.ns, 10**9)
    at = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{at}{fraction}Z {line.text}\n".encode()
