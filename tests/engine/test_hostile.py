"""Evidence that anyone may have written: nothing raises, hangs or grows without bound."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine import facts, tracebacks
from engine.bundle import BundleError
from engine.clock import StreamClock, parse_time, read_stamp
from engine.dumps import DumpError, load_dump, read_dump
from engine.lines import clean, printable, strip_ansi
from engine.manifest import parse_attempt
from engine.model import Attempt, Source, Stream, Workload, rfc3339
from engine.origin import Places
from engine.report import as_json, as_markdown, as_text
from engine.series import _parse
from tests.engine.evidence import Evidence, attempt, case, labels, ruleset

quick = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
few = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
ATTEMPT = Attempt(workload=Workload(id="1"), nodes=("node-01", "node-02"), gpus_per_node=8)
STREAM = Stream(name="x/y_3", source=Source.METRIC, open=lambda: None, size=0, rank=3)  # type: ignore[arg-type, return-value]

UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]")
PIECES = [
    *(b"\x1b[31m", b"\x1b]0;", b"\x07", b"\r", b"\x00", b"\xff\xfe", b"\xf0\x9f", b"\xef\xbb\xbf", b"\t", b"  ", b" "),
    *(
        b"2026-11-03T04:12:09.123Z ",
        b"2026-11-03 04:12:09,123 ",
        b"0000-00-00 00:00:00 ",
        b"9999-12-31T23:59:60+99:99 ",
    ),
    *(b"Nov  3 04:12:09 node-01 ", b"Feb 31 99:99:99 ", b"[ 8123.456789] ", b"[Tue Nov  3 04:12:09 2026] ", b"E1103 "),
    *(b"1793679129 ", b"99999999999999999999 ", b"04:12:09 ", b"stderr F ", b"stdout P ", b"kern :err : ", b"<34>1 "),
    *(b"[rank3]: ", b"[rank999999999]: ", b"[default0]:", b"17: ", b"[1,3]<stderr>:", b"(x pid=1, ip=10.0.0.1) "),
    *(
        b'{"log":"',
        b'\\n"}',
        b'{"msg":{"msg":',
        b"}",
        b'"rank":"\xc2\xb2"',
        b"MESSAGE=",
        b"node-01:1:2 [3] ",
        b"a-1 | ",
    ),
    *(
        b"NVRM: Xid (PCI:0000:61:00): 79, pid=1, ",
        b"Xid (PCI:",
        b"NCCL WARN ",
        b"Rank 3 ",
        b"rank=",
        b"SeqNum=",
        b"9" * 50,
    ),
    *(
        b"Traceback (most recent call last):",
        b'  File "a.py", line 1, in f',
        b"KeyError: 'x'",
        b"Error: ",
        b"Exception: ",
    ),
    *(b"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, Timeout(ms)=600000)",),
    *(
        b"torch.OutOfMemoryError: CUDA out of memory.",
        b"slurmstepd: error: *** STEP 1.0 ON node-01 CANCELLED AT ",
        b"\n",
    ),
]
fragments = st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=12)), max_size=14).map(b"".join)
noise = st.one_of(fragments, st.binary(max_size=300), st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace")))
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails when more CPU time than this is spent: a hang, or a search that grows with the square of its line."""
    began = time.process_time()
    yield
    spent = time.process_time() - began
    assert spent < seconds, f"{spent:.2f} s"


@quick
@given(noise)
@example(b"\r")
@example(b'{"msg":"x","rank":"\xc2\xb2"}')
@example(b'{"msg":"x","ts":1e999}')
@example(b"0000-00-00 00:00:00 x")
def test_any_bytes_are_a_line(raw: bytes) -> None:
    line = clean(raw)
    assert line.texts
    assert line.rank is None or 0 <= line.rank < 10**9
    for stamp in line.stamps:
        rfc3339(StreamClock(1.7e9, 1.7e9 + 3600, [(stamp, line.text)]).resolve(stamp).at)
    assert not UNREADABLE.search(printable(line.text))


@quick
@given(st.one_of(st.text(max_size=60), noise.map(lambda b: b.decode("utf-8", "replace")), json_like))
@example(10**400)
@example("1" * 5000)
def test_anything_may_stand_where_a_time_is_expected(value: Any) -> None:
    stamp = parse_time(value)
    read = read_stamp(value) if isinstance(value, str) else None
    for one in (stamp, read[0] if read else None):
        if one is not None:
            rfc3339(StreamClock(None, None, [(one, "")]).resolve(one).at)


@quick
@given(st.one_of(noise, json_like.map(lambda v: json.dumps(v).encode())))
def test_any_bytes_are_an_attempt_yaml_or_are_refused(content: bytes) -> None:
    with contextlib.suppress(BundleError):
        parse_attempt(content)


ATTEMPT_KEYS = ("number", "state", "exit_code", "reason", "started_at", "ended_at", "nodes", "gpus_per_node")


@quick
@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(ATTEMPT_KEYS, json_like)),
)
def test_any_values_are_an_attempt_or_are_refused(values: dict[str, Any]) -> None:
    with contextlib.suppress(BundleError):
        parse_attempt(json.dumps({"workload": {"id": "1"}, "attempt": values}).encode())


@quick
@given(st.sampled_from(["sacct.txt", "sacct.json", "scontrol.txt", "pods.json"]), noise | json_like.map(json.dumps))
def test_any_bytes_are_records_or_are_refused(name: str, content: bytes | str) -> None:
    with contextlib.suppress(ValueError):
        read = facts.read_facts(name, content.encode() if isinstance(content, str) else content, ATTEMPT)
        assert not any("\n" in fact.text for fact in read)


KINDS = ["Pod", "Event", "Workload", "Job", "Node"]
TREE = ["items", "metadata", "spec", "status", "conditions", "containerStatuses", "state", "involvedObject", "reason"]


@quick
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(KINDS),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*TREE, "kind", "name"]), inner),
        max_leaves=30,
    )
)
def test_objects_of_any_shape_are_records_or_none(document: Any) -> None:
    facts.read_facts("pods.json", json.dumps(document).encode(), ATTEMPT)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.sampled_from(
                ["entries", "pg_config", "pg_status", "rank", "process_group", "ranks", "input_sizes", "name"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@quick
@given(st.one_of(plain.map(pickle.dumps), noise, plain.map(lambda v: pickle.dumps({"entries": [v], "pg_config": v}))))
def test_any_bytes_are_a_dump_or_are_refused(content: bytes) -> None:
    with contextlib.suppress(DumpError):
        read_dump(load_dump(content), STREAM)


@quick
@given(st.one_of(noise, json_like.map(lambda v: json.dumps({"data": {"result": [v]}}).encode())))
def test_any_bytes_are_metrics_or_are_refused(content: bytes) -> None:
    with contextlib.suppress(ValueError, RecursionError):
        list(_parse(content, STREAM, Places(ATTEMPT, [])))


@quick
@given(st.lists(fragments, max_size=30))
def test_any_lines_are_read_for_a_traceback(lines: list[bytes]) -> None:
    tracebacks.read((n, n, clean(line)) for n, line in enumerate([b"Traceback (most recent call last):", *lines]))


NAMES = [
    *("applog/train.log", "applog/node-01.rank-3.log", "syslog/node-02.log", "scheduler/sacct.txt", "metrics/a.json"),
    *(
        "scheduler/pods.json",
        "scheduler/slurmctld.log",
        "flight_recorder/x_1",
        "flight_recorder/x_2",
        "applog/a.log.gz",
    ),
]


def told(evidence: Evidence) -> None:
    """Diagnose, and tell it in every form."""
    with within(10):
        found = evidence.diagnosed(ruleset())
        for form in (as_json, as_text, as_markdown):
            form(found).encode()


@few
@given(st.dictionaries(st.sampled_from(NAMES), st.lists(noise, max_size=40).map(b"\n".join), max_size=6), st.booleans())
@example({"applog/train.log": b"[rank" + b"9" * 5000 + b"]: Watchdog caught collective operation timeout"}, True)
@example({"applog/train.log": b"iteration " + b"9" * 5000 + b"/10 loss 1.0\n" * 3}, True)
def test_any_bundle_is_diagnosed(files: dict[str, bytes], windowed: bool) -> None:
    window = {} if windowed else {"started_at": None, "ended_at": None, "gpus_per_node": None}
    told(attempt(files, **window))


@few
@given(st.sampled_from(sorted(labels())), st.integers(0, 2**32), st.data())
def test_any_damage_to_a_real_attempt_is_survived(name: str, seed: int, data: st.DataObject) -> None:
    evidence = case(name)
    target = sorted(evidence.files)[seed % len(evidence.files)]
    content = evidence.files[target]
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(content)))
        content = content[:at] + data.draw(noise) + content[at + data.draw(st.integers(0, 40)) :]
    evidence.files[target] = content
    told(evidence)


@pytest.mark.parametrize("key", ["state", "exit_code", "reason", "nodes"])
def test_what_the_scheduler_tells_cannot_command_a_terminal(key: str) -> None:
    odd = "1\x1b[2J\u202e\x07"
    nodes = ["node-01", odd] if key == "nodes" else ["node-01"]
    log = "2026-11-03 02:30:00 node-01 kernel: NVRM: Xid (PCI:0000:61:00): 79, pid=1, GPU has fallen off the bus.\n"
    evidence = attempt({"syslog/node-01.log": log}, nodes=nodes)
    evidence.document["attempt"] |= {} if key == "nodes" else {key: odd}
    evidence.document["workload"] |= {"name": odd, "user": odd}
    found = evidence.diagnosed(ruleset())
    for form in (as_text, as_markdown):
        assert not UNREADABLE.search(form(found))
    assert not UNREADABLE.search(repr(found.attempt).encode().decode("unicode_escape"))


ENVELOPES = [
    *("", "[rank{0}]: ", "{0}: ", "2026-11-03 02:{0:02d}:00 ", "2026-11-03T02:{0:02d}:10Z stderr F ", "[{0}.123456] "),
    *(
        "Nov  3 02:{0:02d}:05 node-01 kernel: ",
        "(A pid={0}, ip=10.0.0.1) ",
        "node-01: [rank{0}]: ",
        '{{"rank":{0},"msg":"',
    ),
]
NUMBERS = ["0", "1", "-1", "9" * 20, "7" * 5000, "\u00b2", "\u0663", "1e999", "0x" + "f" * 40, ""]


@pytest.mark.parametrize("seed", range(12))
def test_lines_of_every_rule_with_odd_numbers_in_them_are_diagnosed(seed: int) -> None:
    chance = random.Random(seed)
    examples = [one.line for matcher in ruleset().matchers for one in matcher.spec.examples.match]
    files: dict[str, bytes | str] = {}
    for name in NAMES[:3] + NAMES[6:7]:
        lines = [chance.choice(ENVELOPES).format(chance.randrange(60)) + chance.choice(examples) for _ in range(150)]
        odd = [re.sub(r"\d+", lambda _: chance.choice(NUMBERS), one) if chance.random() < 0.3 else one for one in lines]
        files[name] = "\n".join(odd)
    window: dict[str, Any] = {} if seed % 2 else {"started_at": None, "ended_at": None, "gpus_per_node": None}
    told(attempt(files, **window))


UNITS = [
    *(" ", "a", "1", "[", "(", "{", ".", ":", "A", "A.", "-", "|", '"', "\\", "=", "a=", "/", "a ", "1:", "<1>", ", "),
    *(
        '{"a":',
        '{"log":"',
        "0x",
        "50%|",
        "\t",
        "20",
        "Jan ",
        "pid=",
        "rank ",
        "Error",
        "kern",
        "NodeName=\n",
        "\r",
        "\x1b[",
        "\x1b]",
    ),
]


@pytest.mark.parametrize("tail", ["", "!", "Error: x", ": ", "}", '"}', "=1"])
def test_long_lines_of_one_character_cost_no_more_than_their_length(tail: str) -> None:
    for unit in UNITS:
        text = (unit * 16_000)[:16_000] + tail
        with within(0.4):
            clean(text.encode())
            read_stamp(text)
            tracebacks.EXCEPTION.search(text)
            strip_ansi(text.encode() * 20)
            list(facts._scontrol(text + "="))


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_nesting_without_end_is_survived(depth: int) -> None:
    told(
        attempt(
            {
                "applog/train.log": b'{"msg":' * depth
                + b"\n"
                + b"[" * depth
                + b"\n"
                + b'{"log":"{' * depth
                + b'"}' * depth,
                "scheduler/pods.json": b'{"items":[' * depth,
                "metrics/x.json": b"[" * depth + b"]" * depth,
                "flight_recorder/r_1": b"[" * depth,
                "flight_recorder/r_2": b"\x80\x04" + b"]" * depth + b".",
            }
        )
    )


def test_a_job_of_many_ranks_that_all_say_the_same_is_diagnosed_in_bounded_time() -> None:
    said = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)"
    lines = "".join(
        f"2026-11-03 02:59:00 [rank{r}]: {said.format(r)} ran for 600001 milliseconds\n" for r in range(4000)
    )
    nodes = [f"node-{n:04d}" for n in range(500)]
    with within(12):
        attempt({"applog/train.log": lines}, nodes=nodes).diagnosed()


EVIL_TAILS = [" ", "a", "1", "A", ".", "a ", "1 ", "/", "[", ":", "-", "a=", "ab1", "node-1 "]


def test_no_rule_s_pattern_costs_the_square_of_a_line() -> None:
    slow = []
    for matcher in ruleset().matchers:
        for regex in () if matcher.spec.on == "metric" else map(matcher.regex, range(len(matcher.spec.patterns))):
            for unit in EVIL_TAILS:
                text = (unit * 8_000)[:8_000]
                began = time.process_time()
                regex.search(text)
                spent = time.process_time() - began
                if spent > 0.1:
                    slow.append(f"{matcher.spec.id}: {spent:.2f} s on {unit!r} repeated: {regex.pattern[:80]}")
                    break
    assert not slow, "\n".join(slow)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x80\x02Nr\xff\xff\xff\x3f.", id="a memo index of a thousand million"),
        pytest.param(b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"x.", id="a byte array of a terabyte"),
        pytest.param(b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b"x.", id="bytes of a terabyte"),
        pytest.param(b"\x80\x02\x82\x01.", id="an extension"),
    ],
)
def test_a_few_bytes_of_a_dump_cannot_ask_for_gigabytes(content: bytes) -> None:
    import tracemalloc

    from engine.dumps import DumpError, load_dump

    tracemalloc.start()
    try:
        load_dump(content)
    except DumpError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 16 << 20
