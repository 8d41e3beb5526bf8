"""For each family of rules that can decide: one attempt that it decides, changed in seven ways, with what is right.

The cause is removed, on another node, followed by two hours of work, two days before the start, said again and again,
by a clock that is wrong, or seen with another source missing. Which attempt it is stands in families.yaml.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml
import zstandard

from engine.facts import is_structured
from engine.model import Diagnosis, Role, Source, Stream
from engine.scan import Scanner
from tests.engine import rewriting
from tests.engine.evidence import Evidence, case, labels, ruleset
from tests.engine.judge import FURTHER, named_nodes
from tests.engine.situations import situations
from tests.engine.variants import swapped

FAMILIES = Path(__file__).with_suffix(".yaml")
_SOURCES = {"applog": Source.APPLOG, "syslog": Source.SYSLOG, "scheduler": Source.SCHEDULER}
_MAY_DECIDE = (Role.CAUSE, Role.EITHER)
AGAIN = 40
Lines = dict[str, set[int]]


@dataclass(frozen=True)
class Base:
    """An attempt that a family decides."""

    family: str
    evidence: Evidence
    verdicts: frozenset[str]
    blames: frozenset[frozenset[str]]
    without: frozenset[str]
    """What else may be said where the cause is not there: other evidence tells of it, or of a consequence."""
    exempt: frozenset[str]
    """Changes that are none for it."""

    def right(self, found: Diagnosis) -> list[str]:
        """Complaints where the verdict should be the attempt's own."""
        return self._complaints(found, self.verdicts, self.blames)

    def gone(self, found: Diagnosis) -> list[str]:
        """Complaints where the cause must not be blamed any more."""
        said = f"{found.domain}/{found.sub_domain}"
        if found.root_cause is None:
            return []
        ended = found.domain == "scheduler" and found.sub_domain in ("cancelled", "time_limit", "preemption")
        return [] if said in self.without or ended else [f"blames {found.root_cause.rule}: {found.title}"]

    def no_worse(self, found: Diagnosis) -> list[str]:
        """Complaints where less may be known, and nobody else may be blamed."""
        if found.root_cause is None:
            return []
        return self._complaints(found, self.verdicts, self.blames | {frozenset()})

    @staticmethod
    def _complaints(found: Diagnosis, verdicts: frozenset[str], blames: frozenset[frozenset[str]]) -> list[str]:
        said, named = f"{found.domain}/{found.sub_domain}", frozenset(named_nodes(found))
        wrong = [] if said in verdicts else [f"says {said}, not {' or '.join(sorted(verdicts))}"]
        return wrong if named in blames else [*wrong, f"names {sorted(named)}, not {[sorted(b) for b in blames]}"]


@dataclass(frozen=True)
class Change:
    """An attempt of a family after one change."""

    name: str
    evidence: Callable[[], Evidence]
    complaints: Callable[[Diagnosis], list[str]] = field(repr=False)


@cache
def chosen() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(FAMILIES.read_text())
    return found


def deciding() -> set[str]:
    """Families with a rule that may be a root."""
    return {rule.family for rule in ruleset().rules if rule.role in _MAY_DECIDE and rule.status == "active"}


@cache
def base(family: str) -> Base:
    entry = chosen()[family]
    if "situation" in entry:
        (one,) = (s for s in situations() if s.it == entry["situation"])
        evidence, verdicts, blames = one.evidence, frozenset(one.verdict), frozenset(map(frozenset, one.blames))
    else:
        evidence, label = _stored(entry["attempt"])
        accepted = [label, *(label.get("also_ok") or [])]
        verdicts = frozenset(f"{each['domain']}/{each.get('sub_domain') or 'none'}" for each in accepted)
        nodes = [(label.get("root") or {}).get("nodes") or [], *(label.get("also_ok_nodes") or [])]
        blames = frozenset(map(frozenset, nodes))
    return Base(
        family,
        evidence,
        verdicts,
        blames,
        frozenset(entry.get("without", [])),
        frozenset(entry.get("exempt", [])),
    )


def _stored(name: str) -> tuple[Evidence, dict[str, Any]]:
    if name in labels():
        return case(name), labels()[name]
    packed = zstandard.ZstdDecompressor().decompressobj().decompress((FURTHER / f"{name}.tar.zst").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        opened = {info.name.split("/", 1)[1]: tar.extractfile(info) for info in tar if info.isfile()}
        files = {path: member.read() for path, member in opened.items() if member is not None}
    document = yaml.safe_load(files.pop("attempt.yaml"))
    attempt = document["attempt"]
    for key in ("started_at", "ended_at"):
        attempt[key] = attempt[key].isoformat() if isinstance(attempt[key], datetime) else attempt[key]
    return Evidence(document, files), yaml.safe_load((FURTHER / "labels.yaml").read_text())[name]


def cause_lines(evidence: Evidence, family: str) -> Lines:
    """File -> indices of the lines that the family's deciding rules match, tracebacks with all of theirs; where none
    does, as in what is concluded from many lines, of those that any of its rules match.
    """
    return _lines_of(evidence, family, _MAY_DECIDE) or _lines_of(evidence, family, tuple(Role))


def _lines_of(evidence: Evidence, family: str, roles: tuple[Role, ...]) -> Lines:
    found: Lines = {}
    for name, content in evidence.files.items():
        source = _SOURCES.get(name.split("/")[0])
        if source is None or (source is Source.SCHEDULER and is_structured(name)):
            continue
        stream = Stream(name=name, source=source, open=lambda content=content: io.BytesIO(content), size=len(content))
        lines = content.split(b"\n")
        for hit in Scanner(ruleset()).scan(stream).hits:
            if hit.rule.family == family and hit.rule.role in roles:
                first = last = hit.line - 1
                while hit.frames and first > 0 and b"Traceback" not in lines[first]:
                    first -= 1
                found.setdefault(name, set()).update(range(first, last + 1))
        same = {_shape(lines[index]) for index in found.get(name, ())}
        found.setdefault(name, set()).update(n for n, line in enumerate(lines) if line and _shape(line) in same)
    return {name: indices for name, indices in found.items() if indices}


def _shape(line: bytes) -> bytes:
    return re.sub(rb"\d+", b"N", line)


def cause_series(family: str) -> set[str]:
    specs = [m.spec for m in ruleset().metric_matchers if m.spec.id.startswith(f"{family}.") and m.spec.metric]
    return {name for spec in specs if spec.role in _MAY_DECIDE and spec.metric for name in spec.metric.names}


def _rewritten(evidence: Evidence, family: str, write: Callable[[bytes, bool], list[bytes]]) -> Evidence:
    """With every line written anew; `write` is told whether it is of the cause."""
    changed, causes = evidence.copy(), cause_lines(evidence, family)
    for name, indices in causes.items():
        lines = evidence.files[name].split(b"\n")
        changed.files[name] = b"\n".join(
            new for index, line in enumerate(lines) for new in write(line, index in indices)
        )
    return changed


def _series(evidence: Evidence, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Evidence:
    changed = evidence.copy()
    for name in [name for name in evidence.files if name.startswith("metrics/")]:
        document = json.loads(evidence.files[name])
        results = [change(result) for result in document["data"]["result"]]
        document["data"]["result"] = [result for result in results if result is not None]
        changed.files[name] = json.dumps(document).encode()
    return changed


def removed(evidence: Evidence, family: str) -> Evidence:
    names = cause_series(family)
    if family == "collective":  # concluded from dumps and from the lines of many ranks, not told by any
        return evidence.without_files("flight_recorder/*")
    changed = _rewritten(evidence, family, lambda line, cause: [] if cause else [line])
    changed = _series(changed, lambda result: None if result["metric"].get("__name__") in names else result)
    changed.document["attempt"] |= {"state": "FAILED", "reason": None}
    return _without_records(changed)


def _without_records(evidence: Evidence) -> Evidence:
    """Without what a scheduler says of the job in records, which may tell of the cause as well."""
    records = {name for name in evidence.files if name.startswith("scheduler/") and is_structured(name)}
    return Evidence(evidence.document, {name: c for name, c in evidence.files.items() if name not in records})


def worked_on(evidence: Evidence, family: str) -> Evidence:
    """The job went on for two hours, and failed then of nothing that is told."""
    began, ended = evidence.end, evidence.end + timedelta(hours=2)
    moments = [began + timedelta(seconds=20 * n) for n in range(2, 357)]
    lines = [f"{at:%Y-%m-%dT%H:%M:%S.%f}Z INFO step {70000 + n} loss 2.31" for n, at in enumerate(moments)]
    changed = evidence.with_lines("applog/went-on.log", *lines)
    for name in cause_lines(evidence, family):
        if name.startswith("applog/"):  # without times of its own, a line is before those that follow it in its log
            changed = changed.with_lines(name, *lines)
    return changed.with_attempt(ended_at=ended.isoformat(), state="FAILED", reason=None, exit_code="1:0")


def before_the_start(evidence: Evidence, family: str) -> Evidence | None:
    """Two days before, where all lines of the cause have a time; None where they don't."""
    changed, total = evidence.copy(), 0
    for name, indices in cause_lines(evidence, family).items():
        lines = evidence.files[name].split(b"\n")
        single = Evidence(evidence.document, {name: b"\n".join(lines[index] for index in sorted(indices))})
        try:
            moved = single.shifted(name, timedelta(days=-2)).files[name].split(b"\n")
        except AssertionError:
            return None
        if any(new == lines[index] for new, index in zip(moved, sorted(indices), strict=True)):
            return None
        for new, index in zip(moved, sorted(indices), strict=True):
            lines[index], total = new, total + 1
        changed.files[name] = b"\n".join(lines)
    names = cause_series(family)

    def earlier(result: dict[str, Any]) -> dict[str, Any]:
        if result["metric"].get("__name__") not in names or "values" not in result:
            return result
        return result | {"values": [[at - 172800, value] for at, value in result["values"]]}

    if not total and not any(n.encode() in c for n in names for c in evidence.files.values()):
        return None
    return _series(_without_records(changed), earlier)


def repeated(evidence: Evidence, family: str) -> Evidence:
    return _rewritten(evidence, family, lambda line, cause: [line] * (AGAIN if cause else 1))


def by_a_wrong_clock(evidence: Evidence, family: str) -> Evidence | None:
    """A node's log 20 minutes ahead, which the launch of the job tells; a job's log in another zone; samples late."""
    causes = cause_lines(evidence, family)
    nodes = {name: node for name in causes for node in evidence.nodes if re.match(rf"syslog/{node}\b", name)}
    if nodes:
        changed = evidence
        for name, node in nodes.items():
            job = evidence.document["workload"]["id"]
            text = f"slurmd[2211]: launch task StepId={job}.0 request from UID:1000 GID:1000"
            line = f"{evidence.start.isoformat(timespec='microseconds')} {node} {text}"
            changed = changed.with_lines(name, line).shifted(name, timedelta(minutes=20))
        return changed
    if any(name.startswith("applog/") for name in causes):
        return rewriting.in_zone(timedelta(hours=9))(evidence)
    if not causes and cause_series(family):
        late = lambda result: result | {"values": [[at + 45, value] for at, value in result.get("values", [])]}  # noqa: E731
        return _series(evidence, late)
    return None


def missing_sources(evidence: Evidence, family: str) -> Iterator[tuple[str, Evidence]]:
    """Each folder of evidence taken away that doesn't hold the cause."""
    held = {name.split("/")[0] for name in cause_lines(evidence, family)}
    series = cause_series(family)
    if any(name.encode() in content for name in series for content in evidence.files.values()):
        held.add("metrics")
    for folder in sorted({name.split("/")[0] for name in evidence.files} - held):
        if held:
            yield folder, evidence.without_files(f"{folder}/*")
    yield "the scheduler's word", evidence.with_attempt(reason=None, exit_code=None)


def changes(family: str) -> Iterator[Change]:
    one = base(family)
    evidence = one.evidence
    yield Change("as it is", lambda: evidence, one.right)
    yield Change("the cause is removed", lambda: removed(evidence, family), one.gone)
    yield Change("the job worked on for two hours", lambda: worked_on(evidence, family), one.gone)
    yield Change("said again and again", lambda: repeated(evidence, family), one.right)
    first = [node for nodes in one.blames if len(nodes) == 1 for node in nodes]
    others = [node for node in evidence.nodes if node not in first]
    if len(first) == 1 and others:
        was, now = first[0], others[-1]
        swap = {was: now, now: was}
        blames = frozenset(frozenset(swap.get(node, node) for node in nodes) for nodes in one.blames)
        moved = Base(family, evidence, one.verdicts, blames, one.without, one.exempt)
        yield Change("on another node", lambda: swapped(evidence, was, now), moved.right)
    if (earlier := before_the_start(evidence, family)) is not None:
        yield Change("two days before the start", lambda: earlier, one.gone)
    if (skewed := by_a_wrong_clock(evidence, family)) is not None:
        yield Change("by a wrong clock", lambda: skewed, one.right)
    for folder, less in missing_sources(evidence, family):
        yield Change(f"without {folder}", lambda less=less: less, one.no_worse)  # type: ignore[misc]
