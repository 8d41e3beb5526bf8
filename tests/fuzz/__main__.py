"""``python -m tests.fuzz TARGET``: see README.md beside this file."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

import atheris

with atheris.instrument_imports(include=["engine"]):
    from engine import clock, collective, facts, lines, series, tracebacks
    from engine.bundle import BundleError, open_bundle, parse_attempt
    from engine.diagnose import diagnose
    from engine.model import Attempt, Source, Stream, Workload
    from engine.origin import Places
    from engine.ruleset import RulesetError, check_file, load_ruleset
    from tests.fuzz.checked import check

NODES = ("node-01", "node-02")
ATTEMPT = Attempt(
    workload=Workload(id="4711"), state="FAILED", exit_code="1:0", started_at=1_762_130_000.0, ended_at=1_762_137_200.0,
    nodes=NODES, gpus_per_node=8,
)  # fmt: skip


def _stream(name: str, source: Source, content: bytes) -> Stream:
    return Stream(name=name, source=source, open=lambda: cast(BinaryIO, io.BytesIO(content)), size=len(content))


def fuzz_lines(data: bytes) -> None:
    line = lines.clean(data)
    assert all(isinstance(text, str) for text in line.texts)
    lines.printable(line.text).encode("utf-8")


def fuzz_clock(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    found = clock.read_stamp(text)
    samples = [(found[0], text)] if found else []
    told = clock.StreamClock(ATTEMPT.started_at, ATTEMPT.ended_at, samples)
    told.resolve(found[0] if found else clock.find_stamp(text))
    clock.parse_time(text)


def fuzz_manifest(data: bytes) -> None:
    try:
        parse_attempt(data)
    except BundleError as error:
        assert "\n" not in str(error)


def fuzz_bundle(data: bytes) -> None:
    kinds = (".tar", ".tar.gz", ".tar.zst", ".tar.xz", ".zip")
    kind = kinds[data[0] % len(kinds)] if data else ".tar"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"bundle{kind}"
        path.write_bytes(data[1:])
        try:
            with open_bundle(path) as bundle:
                for stream in bundle.streams[:4]:
                    with stream.open() as content:
                        content.read(1 << 16)
        except BundleError as error:
            assert "\n" not in str(error)
        except (OSError, EOFError, ValueError):
            pass  # a damaged member, when it is read: diagnose() reports it


def fuzz_facts(data: bytes) -> None:
    names = ("sacct.txt", "scontrol-nodes.txt", "pods.json", "events.json", "workload.json", "sacct.json", "squeue.txt")
    with contextlib.suppress(ValueError):
        facts.read_facts(f"scheduler/{names[len(data) % len(names)]}", data, ATTEMPT)


def fuzz_dump(data: bytes) -> None:
    streams = [_stream(f"flight_recorder/nccl_trace_rank_{rank}", Source.FLIGHT_RECORDER, data) for rank in (0, 1)]
    collective.read_dumps(streams, Places(ATTEMPT, streams))


def fuzz_series(data: bytes) -> None:
    streams = [_stream("metrics/x.json", Source.METRIC, data)]
    series.read_series(streams, RULES, Places(ATTEMPT, streams), _window())


def _window() -> object:
    from engine.findings import attempt_window

    return attempt_window(ATTEMPT, [])


def fuzz_traceback(data: bytes) -> None:
    raw = b"Traceback (most recent call last):\n" + data
    tracebacks.read((n, n + 1, lines.clean(line)) for n, line in enumerate(raw.split(b"\n")))


def fuzz_rules(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "site.yaml"
        path.write_bytes(data)
        with contextlib.suppress(RulesetError):
            check_file(path)


def fuzz_diagnose(data: bytes) -> None:
    """The first byte parts the data into a job log, a kernel log, scheduler records and a metric answer."""
    pieces = data.split(b"\x00\x00")
    names = (
        ("applog/job.log", Source.APPLOG),
        ("syslog/node-01.log", Source.SYSLOG),
        ("scheduler/sacct.txt", Source.SCHEDULER),
        ("scheduler/pods.json", Source.SCHEDULER),
        ("metrics/m.json", Source.METRIC),
        ("flight_recorder/rank_0", Source.FLIGHT_RECORDER),
    )
    streams = [_stream(name, source, piece) for (name, source), piece in zip(names, pieces, strict=False)]
    told = diagnose(ATTEMPT, streams, RULES)
    assert told.domain and set(told.root_cause.nodes if told.root_cause else ()) <= set(NODES)


def fuzz_attempt(data: bytes) -> None:
    """A stored attempt that the bytes change: see attempts.py."""
    check(data, SLOWEST)


SLOWEST = 20.0
"""Seconds of processor time, instrumented, that two diagnoses of a small attempt may take."""
RULES = load_ruleset()
TARGETS: dict[str, Callable[[bytes], None]] = {
    name.removeprefix("fuzz_"): function for name, function in list(globals().items()) if name.startswith("fuzz_")
}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: python -m tests.fuzz {'|'.join(TARGETS)} [libFuzzer options] [CORPUS]")
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup([*sys.argv, "-rss_limit_mb=2048", "-timeout=20"], target)
    atheris.Fuzz()


main()
