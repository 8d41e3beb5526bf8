"""Diagnoses a changed attempt, and checks what every diagnosis promises."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence
from typing import BinaryIO, cast

import msgspec

from engine.bundle import BundleError, parse_attempt, place_of, source_of
from engine.diagnose import diagnose
from engine.model import Attempt, Diagnosis, Stream
from engine.report import as_json, as_markdown, as_text
from engine.ruleset import load_ruleset
from tests.fuzz.attempts import attempt

READABLE = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff]*")
REFERENCES = re.compile(r"\[(e\d+(?:, e\d+)*)\]")
MAY_BE_DAMAGED = re.compile(r"scheduler/|flight_recorder/|metrics?/")
"""Files that may be refused; a log never is."""
RULES = load_ruleset()


def check(data: bytes, seconds: float) -> None:
    """Raises AssertionError, or what the engine raises. `seconds`: of processor time for two diagnoses."""
    files = attempt(data)
    try:
        told = parse_attempt(files.pop("attempt.yaml"))
    except BundleError:
        return
    streams = [_stream(name, content, told.nodes) for name, content in sorted(files.items())]
    began = time.process_time()
    found = diagnose(told, streams, RULES)
    said = as_json(found)
    assert said == as_json(diagnose(told, streams[::-1], RULES)), "other bytes the second time"
    assert time.process_time() - began < seconds, "slow"
    _check_contract(found, said, told)


def _stream(name: str, content: bytes, nodes: Sequence[str]) -> Stream:
    source = source_of(name)
    node, rank = place_of(name, source, nodes)

    def opened() -> BinaryIO:
        return cast(BinaryIO, io.BytesIO(content))

    return Stream(name=name, source=source, open=opened, size=len(content), node=node, rank=rank)


def _check_contract(found: Diagnosis, said: str, told: Attempt) -> None:
    """The contract's types, and what its fields promise each other."""
    assert as_json(msgspec.json.decode(said, type=Diagnosis)) == said
    for form in (as_text(found), as_markdown(found)):
        assert READABLE.fullmatch(form)
        form.encode()
    ids = {one.id for one in found.evidence}
    named = [one for part in (*found.symptoms, *found.candidates, *found.timeline) for one in part.evidence]
    named += found.root_cause.evidence if found.root_cause else ()
    for sentence in found.reasoning:
        named += [one for group in REFERENCES.findall(sentence) for one in group.split(", ")]
    assert set(named) <= ids, f"evidence that is not there: {set(named) - ids}"
    if told.nodes:  # else they are learnt from the logs
        assert set(found.root_cause.nodes if found.root_cause else ()) <= set(told.nodes)
        assert set(found.recommendation.exclude_nodes) <= set(told.nodes)
    for one in found.coverage:
        assert one.status != "error" or MAY_BE_DAMAGED.match(one.source), f"{one.source}: {one.note}"
