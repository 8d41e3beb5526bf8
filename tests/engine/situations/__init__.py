"""Attempts written by hand, each as short as the situation allows, with what a careful expert would say of it.

They stand in the YAML files of this folder. A file's text may hold macros, one a line:

    ~ 02:05:00 02:40:00 60 | {iso} step {n} loss 2.31      the line every 60 s, {n} counting up from 1
    ~ranks 0-31 02:50:10 | {iso} [rank{r}]: text            the line once for each rank, {node} being the rank's node
    ~nodes 02:50:10 | ...                                   the line once for each node
    ~metric NAME {"instance": "n1:9100"} 02:00:00 60 0x20 9x5    a series: 20 samples of 0, then 5 of 9, one every 60 s

A file that holds series becomes one answer of Prometheus.

Times are of 3 November 2026 in UTC; {iso}, {py}, {sys}, {dmesg}, {glog}, {hms}, {day}, {epoch} write them in the usual
styles. Other lines stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from engine import hostlist
from engine.model import Diagnosis
from tests.engine.evidence import Evidence
from tests.engine.judge import named_nodes

FOLDER = Path(__file__).parent
DAY = datetime(2026, 11, 3, tzinfo=UTC)
_EVERY = re.compile(r"~ (\S+) (\S+) ([\d.]+) \| (.*)")
_METRIC = re.compile(r"~metric (\S+) (\{.*?\}) (\S+) (\d+) (.*)")
_EACH = re.compile(r"~(ranks|nodes)(?: ([\d,-]+))? (\S+) \| (.*)")


@dataclass(frozen=True)
class Situation:
    it: str
    """What the attempt is, as a sentence's beginning; unique."""
    verdict: tuple[str, ...]
    """Domain and sub-domain, the first being the best answer."""
    blames: tuple[tuple[str, ...], ...]
    outcome: str | None
    evidence: Evidence
    source: str = field(compare=False, default="")

    def complaints(self, found: Diagnosis) -> list[str]:
        """What a careful expert would say against the diagnosis."""
        said = f"{found.domain}/{found.sub_domain}"
        named = tuple(sorted(named_nodes(found)))
        wrong = []
        if said not in self.verdict:
            wrong.append(f"says {said}, not {' or '.join(self.verdict)}")
        if named not in self.blames:
            wrong.append(f"names {', '.join(named) or 'no node'}, not {' or '.join(map(str, self.blames))}")
        if self.outcome and found.outcome != self.outcome:
            wrong.append(f"outcome {found.outcome}, not {self.outcome}")
        return wrong


@cache
def situations() -> tuple[Situation, ...]:
    """Every situation of this folder."""
    found = [_situation(raw, file.stem) for file in sorted(FOLDER.glob("*.yaml")) for raw in _documents(file)]
    names = [one.it for one in found]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
    return tuple(found)


def _documents(file: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = yaml.safe_load(file.read_text())
    return listed


def _situation(raw: dict[str, Any], source: str) -> Situation:
    listed = raw.pop("nodes", "node-[01-04]")
    nodes = hostlist.expand_hostlist(listed) if listed else []
    began, ended = raw.pop("span", "02:00:00 03:00:00").split()
    state, _, code = raw.pop("state", "FAILED 1:0").partition(" ")
    attempt: dict[str, Any] = {
        "number": 1,
        "state": state,
        "started_at": moment(began).isoformat(),
        "ended_at": moment(ended).isoformat(),
        "nodes": nodes,
        "gpus_per_node": raw.pop("gpus", 8),
    }
    if code:
        attempt["exit_code"] = code
    if "reason" in raw:
        attempt["reason"] = raw.pop("reason")
    workload = {"id": str(raw.pop("job", "4711")), "name": "pretrain", "scheduler": raw.pop("scheduler", "slurm")}
    document = {"schema": 1, "workload": workload | {"cluster": "c1", "user": "user1"}, "attempt": attempt}
    files = {name: expand(text, nodes, attempt["gpus_per_node"]).encode() for name, text in raw.pop("files").items()}
    verdict, blames = raw.pop("verdict"), raw.pop("blames", [])
    also = raw.pop("also_blames", [])
    made = Situation(
        it=raw.pop("it"),
        verdict=tuple([verdict] if isinstance(verdict, str) else verdict),
        blames=tuple(tuple(sorted(one)) for one in (blames, *also)),
        outcome=raw.pop("outcome", None),
        evidence=Evidence(document, files),
        source=source,
    )
    raw.pop("why", None)
    assert not raw, f"{made.it}: {sorted(raw)}"
    return made


def moment(clock: str) -> datetime:
    """``02:05:00``, ``02:05:00.250`` or, on another day, ``-1d 23:00:00`` without the blank (``-1d23:00:00``)."""
    found = re.fullmatch(r"(?:([+-]\d+)d)?(\d+):(\d\d):(\d\d(?:\.\d+)?)", clock)
    assert found, clock
    return DAY + timedelta(days=int(found[1] or 0), hours=int(found[2]), minutes=int(found[3]), seconds=float(found[4]))


def expand(text: str, nodes: list[str], per_node: int) -> str:
    """The text with its macros written out."""
    if "~metric " in text:
        series = [_series(found) for line in text.splitlines() if (found := _METRIC.match(line))]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}, indent=1)
    return "".join(f"{line}\n" for raw in text.splitlines() for line in _lines(raw, nodes, per_node))


def _series(found: re.Match[str]) -> dict[str, Any]:
    """``100x20 100..40x10 rising``: values with how often, ranges that go evenly from one to the other."""
    values: list[float] = []
    for part in found[5].split():
        value, _, times = part.partition("x")
        number = int(times or 1)
        low, _, high = value.partition("..")
        step = (float(high) - float(low)) / max(number - 1, 1) if high else 0.0
        values += [float(low) + step * index for index in range(number)]
    start, every = moment(found[3]).timestamp(), int(found[4])
    pairs = [
        [start + every * index, f"{value:g}" if value < 1e6 else f"{value:.0f}"] for index, value in enumerate(values)
    ]
    return {"metric": {"__name__": found[1], **json.loads(found[2])}, "values": pairs}


def _lines(raw: str, nodes: list[str], per_node: int) -> Iterator[str]:
    every, each = _EVERY.match(raw), _EACH.match(raw)
    if every:
        at, until, number = moment(every[1]), moment(every[2]), 1
        while at <= until:
            yield _filled(every[4], at, n=number)
            at, number = at + timedelta(seconds=float(every[3])), number + 1
    elif each and each[1] == "ranks":
        numbers = hostlist.expand_hostlist(f"[{each[2]}]")
        for index, rank in enumerate(int(number) for number in numbers):
            node = nodes[min(rank // per_node, len(nodes) - 1)]
            at = moment(each[3]) + timedelta(milliseconds=37 * index)
            yield _filled(each[4], at, r=rank, l=rank % per_node, node=node)
    elif each:
        for index, node in enumerate(nodes):
            yield _filled(each[4], moment(each[3]) + timedelta(milliseconds=37 * index), node=node)
    else:
        yield raw


def _filled(template: str, at: datetime, **values: Any) -> str:
    styles = {
        "iso": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06d}Z",
        "py": f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}",
        "sys": f"{at:%b} {at.day:2d} {at:%H:%M:%S}",
        "dmesg": f"[{at:%a %b} {at.day:2d} {at:%H:%M:%S %Y}]",
        "glog": f"{at:%m%d %H:%M:%S}.{at.microsecond:06d}",
        "hms": f"{at:%H:%M:%S}",
        "day": f"{at:%Y-%m-%d}",
        "epoch": f"{at.timestamp():.3f}",
    }
    known = styles | {name: str(value) for name, value in values.items()}
    return re.sub(r"\{(\w+)\}", lambda found: known.get(found[1], found[0]), template)
