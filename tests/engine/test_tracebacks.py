"""Tracebacks put together out of interleaved, chained, wrapped and cut lines."""

from __future__ import annotations

import json
import time

import pytest

from engine import tracebacks
from engine.lines import clean
from engine.tracebacks import EXCEPTION, Traceback
from tests.engine.evidence import attempt

ONE = [
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 10, in <module>',
    "    main()",
    '  File "/app/model.py", line 22, in main',
    "    return batch['input_ids']",
    "           ~~~~~^^^^^^^^^^^^^",
    "KeyError: 'input_ids'",
]
FRAMES = "/app/train.py:10 in <module>\n/app/model.py:22 in main"


def read(lines: list[str]) -> Traceback | None:
    return tracebacks.read((number * 100, number, clean(line.encode())) for number, line in enumerate(lines, 1))


def the(lines: list[str]) -> Traceback:
    found = read(lines)
    assert found is not None
    return found


def test_the_last_line_the_frames_and_the_place_are_told() -> None:
    found = the(ONE)
    assert (found.text, found.frames, found.line) == ("KeyError: 'input_ids'", FRAMES, 7)


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank3]: ",
        "3: ",
        "[1,3]<stderr>:",
        "(Trainer pid=7, ip=10.0.0.1) ",
        "2026-11-03T04:12:09.1Z stderr F ",
        "2026-11-03 04:12:09,123 ERROR ",
        "[pod/w-0/trainer] ",
    ],
)
def test_every_line_may_have_an_envelope(prefix: str) -> None:
    found = the([prefix + line for line in ONE])
    assert found.text.endswith("KeyError: 'input_ids'")


def test_ranks_that_fail_at_once_are_taken_apart() -> None:
    other = [
        line.replace("model.py", "loader.py").replace("KeyError: 'input_ids'", "OSError: [Errno 5] x") for line in ONE
    ]
    mixed = [line for pair in zip(ONE, other, strict=True) for line in (f"[rank0]: {pair[0]}", f"[rank1]: {pair[1]}")]
    assert (the(mixed).text, the(mixed[1:]).text) == ("KeyError: 'input_ids'", "OSError: [Errno 5] x")
    assert "loader.py" not in the(mixed).frames


@pytest.mark.parametrize(
    "between",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_a_chain_keeps_its_first_exception_beside_its_last(between: str) -> None:
    second = [*ONE[:-1], "RuntimeError: step failed"]
    found = the([*ONE, "", between, "", *second])
    assert (found.text, found.origin, found.origin_line) == ("RuntimeError: step failed", "KeyError: 'input_ids'", 7)


def test_an_exception_without_a_message_is_one() -> None:
    assert the([*ONE[:-1], "KeyboardInterrupt"]).text == "KeyboardInterrupt"
    assert the([*ONE[:-1], "torch.distributed.DistBackendError"]).text == "torch.distributed.DistBackendError"


def test_a_traceback_that_is_cut_off_is_none() -> None:
    assert read(ONE[:-1]) is None
    assert read(ONE[:1]) is None
    assert read([]) is None


def test_lines_of_the_log_that_follow_do_not_belong_to_it() -> None:
    found = the([*ONE, "step 100 loss 2.0", "Error: something else"])
    assert found.text == "KeyError: 'input_ids'"
    assert len(found.offsets) <= 9


def test_a_traceback_in_one_json_line_decides_like_one_in_many_lines() -> None:
    said = json.dumps({"ts": "2026-11-03T02:59:00Z", "rank": 3, "msg": "failed", "exc_info": "\n".join(ONE)})
    plain = "".join(f"2026-11-03 02:59:00 [rank3]: {line}\n" for line in ONE)
    found = [attempt({"applog/train.log": log}).diagnosed() for log in (said + "\n", plain)]
    assert {(d.domain, d.sub_domain) for d in found} == {("software", found[0].sub_domain)}
    assert all("KeyError" in d.title for d in found)


def test_an_exception_that_was_caught_and_followed_by_progress_is_no_cause() -> None:
    steps = "".join(f"2026-11-03 02:{m:02d}:00 [rank0]: step {m} loss 2.0 step_time 1.0\n" for m in range(10, 59))
    caught = "".join(f"2026-11-03 02:11:30 [rank0]: {line}\n" for line in ONE)
    lines = steps.splitlines(keepends=True)
    found = attempt({"applog/train.log": "".join([*lines[:2], caught, *lines[2:]])}).diagnosed()
    assert found.domain == "unattributed"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("KeyError: 'x'", "KeyError"),
        ("torch.OutOfMemoryError: CUDA out of memory", "torch.OutOfMemoryError"),
        ("ray.exceptions.ActorDiedError: gone", "ray.exceptions.ActorDiedError"),
        ("[rank0]:ValueError: bad", "ValueError"),
        ("StopIteration", "StopIteration"),
    ],
)
def test_an_exception_is_known_by_its_class_name(text: str, name: str) -> None:
    found = EXCEPTION.search(text)
    assert found is not None
    assert found["name"] == name


@pytest.mark.parametrize("text", ["no error: fine", "Errors: 0", "total_error: 3", "ErrorCount: 5"])
def test_other_words_are_no_exception(text: str) -> None:
    assert EXCEPTION.search(text) is None


@pytest.mark.parametrize("unit", ["A", "a.", "A.", "Aa", "Error", "AError", "a.A", " ", "_"])
def test_a_long_line_is_searched_in_linear_time(unit: str) -> None:
    began = time.process_time()
    EXCEPTION.search((unit * 16_000)[:16_000] + "!")
    assert time.process_time() - began < 0.5


def test_thousands_of_ranks_with_the_same_traceback_are_read_quickly() -> None:
    log = "".join(f"2026-11-03 02:59:00 [rank{rank}]: {line}\n" for rank in range(2000) for line in ONE)
    began = time.process_time()
    found = attempt({"applog/train.log": log}).diagnosed()
    assert found.domain == "software"
    assert time.process_time() - began < 20
