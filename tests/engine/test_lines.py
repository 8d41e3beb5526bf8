"""What is left of a line when its envelopes are off, and what they told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.lines import SHOWN, Line, clean, printable, whole


def told(line: Line) -> dict[str, Any]:
    """What the envelopes said, without what they did not say."""
    names = ("host", "named", "pod", "rank", "local_rank", "gpu", "ip", "pid", "tag", "mentioned_rank")
    return {name: getattr(line, name) for name in names if getattr(line, name) is not None}


ENVELOPES = {
    "CRI": ("2026-11-03T04:12:09.123456789Z stderr F loss is nan", {}),
    "CRI with zone": ("2026-11-03T04:12:09.123456789+01:00 stdout F loss is nan", {}),
    "docker's JSON": (r'{"log":"loss is nan\n","stream":"stderr","time":"2026-11-03T04:12:08.5Z"}', {}),
    "application's JSON": (
        '{"msg":"loss is nan","ts":1793678529.25,"hostname":"n2","rank":3}',
        {"host": "n2", "rank": 3},
    ),
    "JSON with a rank in words": ('{"message":"loss is nan","global_rank":"7"}', {"rank": 7}),
    "JSON of fluent-bit": (
        '{"log":"loss is nan","kubernetes":{"pod_name":"w-1","host":"n2"}}',
        {"pod": "w-1", "host": "n2"},
    ),
    "JSON of a shipper around JSON": (
        '{"log":{"message":"loss is nan","rank":5},"@timestamp":"2026-11-03T04:12:09Z"}',
        {"rank": 5},
    ),
    "cloud logging": (
        '{"textPayload":"loss is nan","resource":{"labels":{"pod_name":"w-1"}},"timestamp":"2026-11-03T04:12:09Z"}',
        {"pod": "w-1"},
    ),
    "JSON inside a string of JSON": (r'{"message":"{\"msg\":\"loss is nan\",\"rank\":4}"}', {"rank": 4}),
    "logcli's JSON": (
        '{"labels":{"pod":"w-1"},"line":"loss is nan","timestamp":"2026-11-03T04:12:09Z"}',
        {"pod": "w-1"},
    ),
    "journalctl -o json": (
        '{"MESSAGE":"loss is nan","_HOSTNAME":"n2","__REALTIME_TIMESTAMP":"1793678529123456","_COMM":"kernel"}',
        {"host": "n2", "tag": "kernel"},
    ),
    "journalctl -o json, bytes": (json.dumps({"MESSAGE": list(b"loss is nan"), "_HOSTNAME": "n2"}), {"host": "n2"}),
    "journalctl -o export": ("MESSAGE=loss is nan", {}),
    "RFC 3164": ("Nov  3 04:12:09 n2 trainer[17]: loss is nan", {"host": "n2", "tag": "trainer"}),
    "RFC 3164 with priority": ("<3>Nov  3 04:12:09 n2 kernel: loss is nan", {"host": "n2", "tag": "kernel"}),
    "RFC 3164 with uptime": ("Nov  3 04:12:09 n2 kernel: [ 8123.456789] loss is nan", {"host": "n2", "tag": "kernel"}),
    "RFC 5424": (
        '<34>1 2026-11-03T04:12:09.003Z n2.example.com trainer 123 ID47 [x@1 iut="3"] loss is nan',
        {"host": "n2.example.com", "tag": "trainer"},
    ),
    "RFC 5424 with several elements": (
        '<34>1 2026-11-03T04:12:09.003Z n2 trainer - - [a sequenceId="29"][b@1 c="d]"] loss is nan'.replace("d]", "d"),
        {"host": "n2", "tag": "trainer"},
    ),
    "RFC 5424 without priority": (
        "1 2026-11-03T04:12:09.003Z n2 kernel - - - loss is nan",
        {"host": "n2", "tag": "kernel"},
    ),
    "journalctl -o short-full": (
        "Tue 2026-11-03 04:12:09 UTC n2 kernel: loss is nan",
        {"host": "n2", "tag": "kernel"},
    ),
    "syslog with facility": ("Nov  3 04:12:09 n2 kern.err kernel: loss is nan", {"host": "n2", "tag": "kernel"}),
    "kernel without a host": ("Nov  3 04:12:09 kernel: loss is nan", {"tag": "kernel"}),
    "kernel with its caller": (
        "Nov  3 04:12:09 n2 kernel: [ 8123.456789][ T1234] loss is nan",
        {"host": "n2", "tag": "kernel"},
    ),
    "JSON of ECS": (
        '{"@timestamp":"2026-11-03T04:12:09Z","message":"loss is nan","host":{"name":"n2"}}',
        {"host": "n2"},
    ),
    "JSON of OpenTelemetry": (
        '{"Timestamp":"2026-11-03T04:12:09Z","Body":"loss is nan","Resource":{"k8s.node.name":"n2",'
        '"k8s.pod.name":"w-1"}}',
        {"host": "n2", "pod": "w-1"},
    ),
    "JSON of loguru": (
        '{"text":"loss is nan","record":{"time":{"repr":"2026-11-03 04:12:09+00:00","timestamp":1793679129.0}}}',
        {},
    ),
    "RFC 5424 with nothing": (
        "<34>1 2026-11-03T04:12:09.003Z n2 trainer - - - loss is nan",
        {"host": "n2", "tag": "trainer"},
    ),
    "syslog in ISO 8601": (
        "2026-11-03T04:12:09.123456+00:00 n2 systemd[1]: loss is nan",
        {"host": "n2", "tag": "systemd"},
    ),
    "dmesg": ("[ 8123.456789] loss is nan", {}),
    "dmesg -T": ("[Tue Nov  3 04:12:09 2026] loss is nan", {}),
    "dmesg --time-format iso": ("2026-11-03T04:12:09,123456+00:00 loss is nan", {}),
    "dmesg --decode": ("kern  :err   : [ 8123.456789] loss is nan", {}),
    "dmesg --decode -T": ("daemon:warn  : [Tue Nov  3 04:12:09 2026] loss is nan", {}),
    "srun -l": ("17: loss is nan", {"rank": 17}),
    "srun -l, padded": ("  3: loss is nan", {"rank": 3}),
    "torchrun's rank": ("[rank5]: loss is nan", {"rank": 5}),
    "torchrun's default": ("[default3]:loss is nan", {"local_rank": 3}),
    "torchrun's node": ("[node1]: loss is nan", {}),
    "torchrun, both": ("[default3]:[rank11]: loss is nan", {"local_rank": 3, "rank": 11}),
    "mpirun --tag-output": ("[1,3]<stderr>: loss is nan", {"rank": 3}),
    "mpirun, glued": ("[1,3]<stdout>:loss is nan", {"rank": 3}),
    "mpirun -prepend-rank": ("[3] loss is nan", {"rank": 3}),
    "Ray": ("(RayTrainWorker pid=1234, ip=10.0.0.3) loss is nan", {"ip": "10.0.0.3", "pid": "1234"}),
    "Ray in colour": ("\x1b[36m(Trainer pid=12, ip=10.0.0.3)\x1b[0m loss is nan", {"ip": "10.0.0.3", "pid": "12"}),
    "Ray on the head": ("(pid=1234) loss is nan", {"pid": "1234"}),
    "glog": ("E1103 04:22:00.123456  1234 ProcessGroupNCCL.cpp:1234] loss is nan", {}),
    "glog in brackets": ("[rank3]:[E1103 04:22:00.123456789 ProcessGroupNCCL.cpp:616] loss is nan", {"rank": 3}),
    "vLLM": ("INFO 11-03 04:12:09 engine.py:12] loss is nan", {}),
    "NCCL": ("n2:1234:5678 [3] loss is nan", {"host": "n2", "gpu": 3}),
    "NCCL behind a time": ("[2026-11-03 04:12:09] n2:1234:5678 [3] loss is nan", {"host": "n2", "gpu": 3}),
    "kubectl logs --prefix": ("[pod/w-1/pytorch] loss is nan", {"pod": "w-1"}),
    "docker compose": ("trainer-1  | loss is nan", {"pod": "trainer-1"}),
    "Loki's labels": ('{app="train",pod="w-3"} loss is nan', {"pod": "w-3"}),
    "Loki's nanoseconds": ("1793678529123456789 loss is nan", {}),
    "pdsh around torchrun": ("n2: [rank5]: loss is nan", {"named": "n2", "rank": 5}),
    "pdsh around NCCL": ("n2: n2:1234:5678 [3] loss is nan", {"named": "n2", "host": "n2", "gpu": 3}),
    "Megatron": (" [2026-11-03 04:12:09] loss is nan", {}),
}


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_the_envelope_comes_off_and_tells_what_it_knows(envelope: str) -> None:
    raw, expected = ENVELOPES[envelope]
    line = clean(raw.encode())
    assert line.text == "loss is nan"
    assert told(line) == expected


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("CRI", "torchrun's rank", {"rank": 5}),
        ("CRI", "application's JSON", {"host": "n2", "rank": 3}),
        ("CRI", "glog in brackets", {"rank": 3}),
        ("docker's JSON", "NCCL", {"host": "n2", "gpu": 3}),
        ("srun -l", "NCCL behind a time", {"rank": 17, "host": "n2", "gpu": 3}),
        ("kubectl logs --prefix", "torchrun, both", {"pod": "w-1", "local_rank": 3, "rank": 11}),
        ("docker compose", "syslog in ISO 8601", {"pod": "trainer-1", "host": "n2", "tag": "systemd"}),
        ("Ray", "torchrun's rank", {"ip": "10.0.0.3", "pid": "1234", "rank": 5}),
        ("Loki's labels", "CRI", {"pod": "w-3"}),
        ("syslog in ISO 8601", "application's JSON", {"host": "n2", "tag": "systemd", "rank": 3}),
        ("mpirun --tag-output", "vLLM", {"rank": 3}),
    ],
)
def test_envelopes_come_off_in_any_nesting(outer: str, inner: str, expected: dict[str, Any]) -> None:
    within = json.dumps(ENVELOPES[inner][0])[1:-1] if "JSON" in outer else ENVELOPES[inner][0]
    line = clean(ENVELOPES[outer][0].replace("loss is nan", within).encode())
    assert line.text == "loss is nan"
    assert told(line) == expected


@pytest.mark.parametrize("text", ["04:12:09 loss", "04:12:09.123 loss", "04:12:09,123 loss"])
def test_the_hour_of_a_time_of_day_is_no_rank(text: str) -> None:
    line = clean(text.encode())
    assert line.rank is None
    assert line.text == "loss"


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "python3: can't open file 'train.py'",
        "mlx5_0: port 1 is down",
        "0000:61:00.0: link retrained",
        "{'loss': 0.5, 'step': 3}",
        "{not json}",
        "[tensor(1.), tensor(2.)]",
        "rank: 3 of 8",
        "<module>",
        "(1, 2, 3)",
        "MESSAGE of the day",
        "kernel: oops",
    ],
)
def test_a_message_that_only_looks_like_an_envelope_stays_whole(text: str) -> None:
    assert clean(text.encode()).text == text


def test_a_rank_in_the_message_is_weaker_than_one_in_the_envelope() -> None:
    assert clean(b"[Rank 3] Watchdog caught").rank == 3
    assert told(clean(b"the global rank 3 is late")) == {"mentioned_rank": 3}


def test_colours_nul_bytes_and_bad_bytes_do_not_hide_the_message() -> None:
    assert clean(b"\x1b[31m\x1b[1mRuntimeError\x1b[0m: boom\r").text == "RuntimeError: boom"
    assert clean(b"\x00Runtime\x00Error: boom").text == "RuntimeError: boom"
    assert clean(b"Runtime\xffError: \x80").text == "Runtime\ufffdError: \ufffd"
    assert clean(b"\x1b]8;;http://x\x07link\x1b]8;;\x07").text == "link"


def test_a_message_glued_behind_a_progress_bar_stands_alone() -> None:
    bars = b"\r".join(b"Epoch 1:  %d%%|#####     | %d/100 [00:10<00:10,  5.00it/s]" % (n, n) for n in (50, 51))
    assert clean(bars + b"RuntimeError: boom").text == "RuntimeError: boom"
    assert clean(bars + b"\rTraceback (most recent call last):").text == "Traceback (most recent call last):"
    assert len(clean(bars * 50).texts) > 50


def test_a_message_of_several_lines_in_json_keeps_them_apart() -> None:
    line = clean(rb'{"log":"[rank2]: Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 1\n"}')
    assert line.texts == ["Traceback (most recent call last):", '  File "a.py", line 1', "KeyError: 1"]
    assert line.rank == 2
    with_trace = clean(rb'{"msg":"failed","exc_info":"Traceback (most recent call last):\nKeyError: 1"}')
    assert with_trace.texts == ["failed", "Traceback (most recent call last):", "KeyError: 1"]


def test_a_long_json_line_is_read_whole() -> None:
    raw = json.dumps({"pad": "x" * 200_000, "msg": "loss is nan", "rank": 3}).encode()
    assert (clean(raw).text, clean(raw).rank) == ("loss is nan", 3)


def test_a_line_of_many_megabytes_is_cut_to_its_ends() -> None:
    line = clean(b"begin " + b"x" * 5_000_000 + b" end")
    assert line.text.startswith("begin x")
    assert line.text.endswith("x end")
    assert len(line.text) <= 4 * SHOWN


def test_a_part_of_a_line_says_so() -> None:
    assert clean(b"2026-11-03T04:12:09.1Z stdout P first half").partial
    assert not clean(b"2026-11-03T04:12:09.1Z stdout F second half").partial


@pytest.mark.parametrize("value", ["\u00b2", "\u2467", "1" * 5000, "-1", "1.5", "", None, True, 1.5, [1], {}])
def test_what_is_no_small_number_is_no_rank(value: object) -> None:
    assert whole(value) is None
    assert clean(json.dumps({"msg": "x", "rank": value}).encode()).rank is None


def test_control_and_bidirectional_characters_are_made_visible() -> None:
    assert printable("a\u202eb\x07c\u200bd\ufeff") == "a<U+202E>b<U+0007>c<U+200B>d<U+FEFF>"
    assert printable("x" * (SHOWN + 5)).endswith("... [5 more characters]")
    assert printable("tab\tstays") == "tab\tstays"


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ("n2: loss is nan", "n2"),
        ("[n2] 2026-11-03T04:12:09Z loss is nan", "n2"),
        ("n2 2026-11-03T04:12:09Z loss is nan", "n2"),
        ("n2 | loss is nan", "n2"),
        ("n2: 12: loss is nan", "n2"),
        ("w-1 pytorch loss is nan", "w-1"),
        ("[w-1 pytorch] loss is nan", "w-1"),
        ("n2 kernel: loss is nan", "n2"),
    ],
)
def test_a_node_or_pod_of_the_attempt_before_a_line_is_taken_off(raw: str, named: str) -> None:
    line = clean(raw.encode(), frozenset({"n2", "w-1"}))
    assert (line.node, line.text) == (named, "loss is nan")
    assert clean(raw.replace(named, "nobody7").encode(), frozenset({"n2", "w-1"})).node is None


@pytest.mark.parametrize(
    "raw",
    [
        "[INFO|trainer.py:811] 2026-11-03 04:12:09,123 >> loss is nan",
        "[Gloo] 2026-11-03 04:12:09,123 loss is nan",
        "level=info ts=2026-11-03T04:12:09.123Z loss is nan",
        "(n7) 2026-11-03 04:12:09 loss is nan",
    ],
)
def test_tags_may_stand_before_the_time(raw: str) -> None:
    (stamp,) = clean(raw.encode()).stamps
    assert stamp.kind == "full"


def test_a_time_that_a_sentence_speaks_of_is_not_its_own() -> None:
    assert clean(b"resuming from the checkpoint of 2026-10-28 11:00:00").stamps == []


@pytest.mark.parametrize(
    "stamp", ["[ 8123.456789]", "[Tue Nov  3 04:12:09 2026]", "[2026-11-03T04:12:09,000000+00:00]"]
)
def test_a_driver_and_its_device_are_no_host_and_program(stamp: str) -> None:
    line = clean(f"{stamp} nvme nvme0: I/O 23 QID 5 timeout, aborting".encode())
    assert (line.host, line.text) == (None, "nvme nvme0: I/O 23 QID 5 timeout, aborting")
    line = clean(f"{stamp} n2 kernel: nvme nvme0: controller is down".encode())
    assert (line.host, line.tag, line.text) == ("n2", "kernel", "nvme nvme0: controller is down")


FOLDS = {"escaped": r"\n", "of rsyslog": "#012", "with bars": " | "}


@pytest.mark.parametrize("fold", FOLDS.values(), ids=FOLDS)
def test_a_traceback_that_was_written_as_one_line_is_unfolded(fold: str) -> None:
    whole_one = [
        "rank 29 get_batch failed: Traceback (most recent call last):",
        '  File "/w/pretrain.py", line 140, in get_batch',
        "    mask = left | right",
        '  File "/w/data.py", line 11, in read',
        "    return frombuffer(buffer, offset=offset)",
        "ValueError: offset must be non-negative",
    ]
    assert clean(f"0: {fold.join(whole_one)}".encode()).texts == whole_one


def test_a_line_that_only_speaks_of_a_traceback_stays_whole() -> None:
    said = "Traceback (most recent call last): | see the other log"
    assert clean(said.encode()).texts == [said]


@pytest.mark.parametrize(
    ("own", "held_s"),
    [
        ("2026-11-08 16:39:02", 690),
        ("2026-11-08 08:39:02", 690),
        ("2026-11-08 22:09:02", 690),
        ("2026-11-08 16:50:31", 0),
        ("2026-11-08 16:50:33", 0),
        ("2026-11-08 22:35:32", 0),
        ("2026-10-01 00:00:00", 0),
    ],
    ids=["UTC", "8 h west", "5:30 h east", "at once", "a second ahead", "5:45 h east", "a date that is spoken of"],
)
def test_a_line_that_lay_in_a_buffer_has_the_time_at_which_it_was_said(own: str, held_s: int) -> None:
    record = {"ts": "2026-11-08T16:50:32Z", "msg": f"[{own}] rank 29 get_batch failed"}
    shipped = clean(json.dumps({"ts": "2026-11-08T16:50:32Z", "msg": "x"}).encode()).stamp
    said = clean(json.dumps(record).encode()).stamp
    assert shipped is not None and said is not None
    assert shipped.naive - said.naive == held_s
