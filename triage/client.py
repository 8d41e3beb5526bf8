"""A client of Faultline's API in one file: only the standard library, so that it can be copied anywhere.

    client = Client("https://faultline.example.org", token)
    attempt = client.attempt("48213", cluster="c1", scheduler="slurm", state="FAILED")
    client.send(attempt, "applog/train.log", Path("train.log"))
    diagnosis = client.diagnose(attempt)

`faultline submit`, `faultline watch` and `faultline diagnose --server` are this file's `main`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import http.client
import json
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PART = 16 << 20
"""Bytes of a part; each is sent again by itself when the connection fails."""
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".zip")
EXIT_CODES = {"hardware": 10, "network": 11, "storage": 12, "platform": 13, "scheduler": 14, "software": 15}
"""Of `diagnose --server` and `watch`, by domain; 0 for an attempt that succeeded, 20 when nothing is blamed."""
_AGAIN = (429, 502, 503, 504)


class ApiError(Exception):
    """The server refused something, or couldn't be reached (`status` 0)."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or f"status {status}")
        self.status, self.problem = status, problem


class Client:
    """`timeout` in seconds; `tries` of each call that fails on the way; `patience` in seconds with a server that says
    when to come back.
    """

    def __init__(
        self, server: str, token: str, *, timeout: float = 90.0, tries: int = 5, patience: float = 600.0
    ) -> None:
        self._base = server.rstrip("/") + "/api/v1/"
        self._token, self._timeout, self._tries, self._patience = token, timeout, tries, patience

    def call(
        self, method: str, path: str, body: Any = None, *, query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:  # fmt: skip
        """The parsed answer. `body`: bytes as they are, anything else as JSON. Raises ApiError."""
        address = self._base + urllib.parse.quote(path)
        if query:
            address += "?" + urllib.parse.urlencode({k: v for k, v in query.items() if v is not None}, doseq=True)
        sent = {"Authorization": f"Bearer {self._token}", "Accept": "application/json", **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        elif body is not None:
            sent.setdefault("Content-Type", "application/octet-stream")
        left, until = self._tries - 1, time.monotonic() + self._patience
        while True:
            request = urllib.request.Request(address, data=body, headers=sent, method=method)
            try:
                with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # nosec B310: the user names it
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                with error:
                    problem = _problem(error)
                told = error.headers.get("Retry-After", "")
                wait = min(float(told), 60.0) if told.isdigit() else 2.0
                if told and error.code in _AGAIN and time.monotonic() + wait < until:
                    time.sleep(wait)  # it is there, and says when to come back: that is no try
                    continue
                if error.code not in _AGAIN or not left:
                    raise ApiError(error.code, problem) from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                if not left:
                    raise ApiError(0, {"detail": f"{address}: {getattr(error, 'reason', error)}"}) from None
                wait = 0.5 * 2 ** (self._tries - 1 - left)
            left -= 1
            time.sleep(min(wait, 60.0))

    def attempt(
        self, workload_id: str, *, number: int = 1, cluster: str = "", scheduler: str = "static", **facts: Any
    ) -> int:
        """Number of the attempt; made when it isn't known. Facts: name, user, queue, state, exit_code, reason,
        started_at, ended_at (RFC 3339), nodes, gpus_per_node.
        """
        identity = {"workload_id": workload_id, "number": number, "cluster": cluster, "scheduler": scheduler}
        return int(self.call("POST", "attempts", {**identity, **facts})["id"])

    def state(self, attempt: int, **facts: Any) -> dict[str, Any]:
        """States facts of an attempt; what is left out stays."""
        return dict(self.call("PATCH", f"attempts/{attempt}", facts))

    def send(self, attempt: int, name: str, content: Path | bytes, **place: Any) -> int:
        """Sends a stream from where the server has it; returns its size. `place`: source, node, rank."""
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        offset, first = 0, True
        while offset < size or first:
            part = _part(content, offset)
            headers = {"X-Content-SHA256": hashlib.sha256(part).hexdigest(), "Content-Encoding": "gzip"}
            query = {"offset": offset, **place}
            try:
                path = f"attempts/{attempt}/observations/{name}"
                taken = self.call("PUT", path, gzip.compress(part, 5), query=query, headers=headers)
            except ApiError as error:
                known = error.problem.get("offset")
                if error.status != 409 or not first or not isinstance(known, int) or not 0 < known <= size:
                    raise
                offset, first = known, False  # an earlier run sent this much
                continue
            offset, first = max(offset + len(part), int(taken["observation"]["bytes"])), False
        return size

    def send_bundle(self, attempt: int, archive: Path) -> None:
        """Every stream of a capture bundle becomes one of the attempt."""
        key = hashlib.sha256(archive.read_bytes()).hexdigest()
        self.call(
            "POST", f"attempts/{attempt}/observations", archive.read_bytes(), query={"name": archive.name},
            headers={"Idempotency-Key": f"{attempt}-{key}"},
        )  # fmt: skip

    def submit_bundle(self, archive: Path) -> int:
        """A capture bundle with its own attempt.yaml; the number of its attempt."""
        return int(self.call("POST", "bundles", archive.read_bytes(), query={"name": archive.name})["attempt"])

    def diagnose(self, attempt: int, *, seconds: float = 600.0) -> dict[str, Any]:
        """Asks for a diagnosis of all that is there and waits for it. Raises ApiError, TimeoutError."""
        answer = self.call("POST", f"attempts/{attempt}/diagnosis", query={"wait": min(30, int(seconds))})
        return self._wait(attempt, answer, seconds)

    def wait(self, attempt: int, *, seconds: float = 600.0) -> dict[str, Any]:
        """Waits for the diagnosis that is being made. Raises ApiError, TimeoutError."""
        return self._wait(attempt, {}, seconds)

    def recommendation(self, attempt: int, *, wait: int = 0) -> dict[str, Any]:
        """What to do, which nodes to leave out, whether a retry can help."""
        return dict(self.call("GET", f"attempts/{attempt}/recommendation", query={"wait": wait}))

    def _wait(self, attempt: int, answer: dict[str, Any], seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while answer.get("schema") is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"attempt {attempt}: no diagnosis within {seconds:.0f} s")
            begun = time.monotonic()
            answer = self.call("GET", f"attempts/{attempt}/diagnosis", query={"wait": max(1, min(30, int(left)))})
            if answer.get("schema") is None and time.monotonic() - begun < 0.5:
                time.sleep(min(1.0, max(0.0, left)))
        return answer


def _part(content: Path | bytes, offset: int) -> bytes:
    if isinstance(content, bytes):
        return content[offset : offset + PART]
    with content.open("rb") as file:
        file.seek(offset)
        return file.read(PART)


def _problem(error: urllib.error.HTTPError) -> dict[str, Any]:
    try:
        found = json.loads(error.read())
    except (ValueError, OSError, http.client.HTTPException):  # it may end half-way
        found = None
    return found if isinstance(found, dict) else {"detail": f"{error.code} {error.reason}"}


# --- the command line -------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done or succeeded, 1 the server can't help, 2 wrong arguments, else by the verdict's domain."""
    options = _parser().parse_args(argv)
    if not options.server or not options.token:
        print(
            "faultline: name the server: --server URL --token TOKEN, or FAULTLINE_SERVER and FAULTLINE_TOKEN",
            file=sys.stderr,
        )
        return 2
    client = Client(options.server, options.token)
    try:
        code: int = options.run(client, options)
        return code
    except ApiError as error:
        print(f"faultline: {error}", file=sys.stderr)
    except (OSError, TimeoutError) as error:
        print(f"faultline: {error}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="faultline", description="Send attempts to a Faultline server, read diagnoses."
    )
    commands = parser.add_subparsers(required=True, metavar="submit|watch|diagnose")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--server", default=os.environ.get("FAULTLINE_SERVER", ""), help="default: $FAULTLINE_SERVER")
    common.add_argument("--token", default=os.environ.get("FAULTLINE_TOKEN", ""), help="default: $FAULTLINE_TOKEN")
    common.add_argument("--format", choices=["text", "json"], default="text")
    common.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="how long to wait (600)")
    what = argparse.ArgumentParser(add_help=False)
    what.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a bundle, or log files of one attempt; - is stdin"
    )
    what.add_argument("--job", default="", help="the scheduler's id; needed for log files")
    what.add_argument("--number", type=int, default=1, help="which run of the job, from 1")
    what.add_argument("--cluster", default="")
    what.add_argument("--scheduler", choices=["static", "slurm", "kueue"], default="static")
    for name in ("name", "user", "queue", "state", "exit-code", "reason", "started-at", "ended-at"):
        what.add_argument(f"--{name}")
    what.add_argument("--nodes", help="parted by commas")
    what.add_argument("--gpus-per-node", type=int)
    submit = commands.add_parser("submit", parents=[common, what], help="send, and print the attempt's number")
    submit.set_defaults(run=_submit)
    diagnose = commands.add_parser("diagnose", parents=[common, what], help="send, wait for the diagnosis, print it")
    diagnose.set_defaults(run=_diagnose)
    watch = commands.add_parser("watch", parents=[common], help="wait for an attempt's diagnosis and print it")
    watch.add_argument("attempt", type=int)
    watch.set_defaults(run=_watch)
    return parser


def _submit(client: Client, options: argparse.Namespace) -> int:
    for attempt in _sent(client, options):
        client.call("POST", f"attempts/{attempt}/diagnosis")
        print(attempt)
    return 0


def _diagnose(client: Client, options: argparse.Namespace) -> int:
    code = 0
    for attempt in _sent(client, options):
        code = max(code, _show(client, attempt, client.diagnose(attempt, seconds=options.timeout), options.format))
    return code


def _watch(client: Client, options: argparse.Namespace) -> int:
    return _show(client, options.attempt, client.wait(options.attempt, seconds=options.timeout), options.format)


def _sent(client: Client, options: argparse.Namespace) -> list[int]:
    names = ("name", "user", "queue", "state", "exit_code", "reason", "started_at", "ended_at", "gpus_per_node")
    facts = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.nodes:
        # Slurm's lists (gx-[01-04,07]) go as they are: the server knows what they stand for.
        facts["nodes"] = [node.strip() for node in re.split(r",(?![^\[]*\])", options.nodes) if node.strip()]
    bundles = [path for path in options.paths if path.name.endswith(ARCHIVES)]
    logs = [path for path in options.paths if path not in bundles]
    if not logs and not options.job:
        return [client.submit_bundle(path) for path in bundles]
    if not options.job:
        raise ApiError(0, {"detail": "log files need --job: which attempt they are of"})
    attempt = client.attempt(
        options.job, number=options.number, cluster=options.cluster, scheduler=options.scheduler, **facts
    )
    for path in bundles:
        client.send_bundle(attempt, path)
    for path in logs:
        stdin = str(path) == "-"
        name = "stdin.log" if stdin else path.name
        folder = path.parent.name if path.parent.name in ("applog", "syslog", "scheduler", "metrics") else ""
        client.send(
            attempt, f"{folder}/{name}" if folder else name, sys.stdin.buffer.read() if stdin else path,
            source=None if folder else _source(name),
        )  # fmt: skip
    return [attempt]


def _source(name: str) -> str:
    words = name.lower()
    return "syslog" if any(word in words for word in ("syslog", "messages", "kern", "dmesg", "journal")) else "applog"


def _show(client: Client, attempt: int, diagnosis: dict[str, Any], form: str) -> int:
    if form == "json":
        print(json.dumps(diagnosis, sort_keys=True))
    else:
        advice = client.recommendation(attempt)
        print(f"attempt {attempt}: {diagnosis['title']}")
        print(f"  {diagnosis['outcome']}, {diagnosis['domain']}/{diagnosis['sub_domain']}")
        for item in diagnosis["evidence"][:5]:
            print(f"  {item['stream']}:{item['line']}  {item['text'][:160]}")
        nodes = ", ".join(node["node"] for node in advice["exclude_nodes"])
        print(f"  {advice['action']}{f' ({nodes})' if nodes else ''}: {advice['reason']}")
    if diagnosis["outcome"] == "succeeded":
        return 0
    return EXIT_CODES.get(diagnosis["domain"], 20)


if __name__ == "__main__":
    sys.exit(main())
