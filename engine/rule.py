"""One rule: as its author wrote it, as it is meant, and compiled to decide on a line."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import msgspec

from engine.decode import DECODERS
from engine.model import SUB_DOMAINS, Role, Source

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NODE_BLAMED = {("storage", "local_disk"), ("storage", "shared_filesystem"), ("scheduler", "node_failure")}
_NODE_BLAMED |= {("network", sub) for sub in ("infiniband", "roce", "ethernet")}


class Recommend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action: Literal["restart", "restart_excluding", "stop", "investigate", "none"]
    text: str = ""
    references: tuple[str, ...] = ()


class MetricSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    names: tuple[str, ...]
    detector: Literal[
        "bits",
        "above",
        "below",
        "increase",
        "step_down",
        "step_up",
        "outlier",
        "changed",
        "rate_rises",
        "unused",
        "stays",
    ]
    threshold: float = 0.0
    mask: int = 0
    min_samples: int = 2
    values: tuple[float, ...] = ()
    """Only a change to one of these (`changed`); what all samples are (`stays`)."""
    labels: dict[str, str] = {}
    """Only series whose labels match these regexes."""
    alike: bool = False
    """A step counts also when most series make it: what is measured is behind them all."""


class ExampleMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    line: str
    captures: dict[str, str] = {}
    id: str | None = None
    """For a rule with a table: the id that must come out."""
    frames: str = ""


class Examples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    match: tuple[ExampleMatch, ...] = ()
    no_match: tuple[str, ...] = ()


class Meaning(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a match means. A rule has one; a table row may replace any part of it."""

    id: str | None = None
    title: str | None = None
    role: Role | None = None
    domain: str | None = None
    sub_domain: str | None = None
    blames: Literal["node", "peer", "none"] | None = None
    checks: tuple[str, ...] | None = None
    explains: tuple[str, ...] | None = None
    needs: tuple[str, ...] | None = None
    scope: Literal["device", "node", "peers", "job"] | None = None
    within: str | None = None
    delay: str | None = None
    survives: str | None = None
    persists: bool | None = None
    persists_with: tuple[str, ...] | None = None
    cleared_by: tuple[str, ...] | None = None
    degrades: bool | None = None
    ends_by: tuple[str, ...] | None = None
    slows: bool | None = None
    layered: bool | None = None
    on_one_node: str | None = None
    node_by: tuple[str, ...] | None = None
    doubtful_without: tuple[str, ...] | None = None
    recommend: Recommend | None = None
    guide: str | None = None
    does_not_prove: str | None = None
    references: tuple[str, ...] | None = None


class Variant(Meaning, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    when: dict[str, str | tuple[str, ...]]


class Row(Meaning, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    variants: tuple[Variant, ...] = ()


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    table: str
    key: str
    rows: dict[str, Row]
    source: str = ""
    default: Row | None = None


class RuleSpec(Meaning, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One rule as its author wrote it."""

    id: str
    version: int = 1
    status: Literal["active", "shadow", "retired"] = "active"
    source: tuple[Source, ...]
    on: Literal["line", "exception", "metric"] = "line"
    match: str | tuple[str, ...] = ()
    exclude: str | None = None
    frames: str | None = None
    table: str | None = None
    decode: str | None = None
    metric: MetricSpec | None = None
    examples: Examples = Examples()

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.match,) if isinstance(self.match, str) else self.match


class Pack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    family: str
    rules: tuple[RuleSpec, ...]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The full meaning of one match: a rule, or one row of its table, with every default filled in."""

    id: str
    title: str
    role: Role
    domain: str | None
    sub_domain: str | None
    blames: str
    checks: tuple[str, ...]
    """Rules whose finding the line repeated somewhere else: node and device are theirs, its own is the healthy one."""
    explains: tuple[str, ...]
    needs: tuple[str, ...]
    scope: str
    within: float
    delay: float
    survives: float
    persists: bool
    persists_with: tuple[str, ...]
    """Seen before the start, it counts only beside one of these at the same node, or naming it as their peer."""
    cleared_by: tuple[str, ...]
    degrades: bool
    ends_by: tuple[str, ...]
    """What slows a job down has ended it where one node has it, and a job that failed shows one of these after it."""
    slows: bool
    """In a job that slowed down and went on it is a cause of that, whatever it is otherwise."""
    layered: bool
    """Its sub-domain is that of the port it is about, where the evidence tells (engine/linklayer.py)."""
    on_one_node: tuple[str, str] | None
    """Domain and sub-domain when all ranks of one node report it and no other node does: then the node is to blame."""
    node_by: tuple[str, ...]
    """Where one node alone reports it, and one of these says so of that node alone, that node is to blame."""
    doubtful_without: tuple[str, ...]
    """Sources without which it is never a root: they would show the fault that looks the same."""
    recommend: Recommend | None
    guide: str
    does_not_prove: str
    references: tuple[str, ...]
    status: str

    @property
    def family(self) -> str:
        return self.id.partition(".")[0]

    def may_explain(self, rule_id: str) -> bool:
        return any(fnmatch.fnmatchcase(rule_id, pattern) for pattern in self.explains)


def seconds(duration: str) -> float:
    """``"35m"`` -> 2100.0. Raises ValueError."""
    found = _DURATION.match(duration)
    if not found:
        raise ValueError(f"{duration!r} is not a duration such as 90s, 35m or 2h")
    return float(found[1]) * _UNIT[found[2]]


class Matcher:
    """One rule of a pack, compiled: decides on one cleaned line, and says what a match means."""

    def __init__(self, spec: RuleSpec, table: Table | None) -> None:
        self.spec = spec
        self.table = table
        self._meanings: dict[tuple[str, int], Rule] = {}
        self._regexes: dict[int, re.Pattern[str]] = {}

    def regex(self, number: int) -> re.Pattern[str]:
        """One of the rule's patterns, by its place among them."""
        found = self._regexes.get(number)
        if found is None:
            found = self._regexes[number] = re.compile(self.spec.patterns[number])
        return found

    @cached_property
    def excluded(self) -> re.Pattern[str] | None:
        return re.compile(self.spec.exclude) if self.spec.exclude else None

    @cached_property
    def framed(self) -> re.Pattern[str] | None:
        return re.compile(self.spec.frames, re.MULTILINE) if self.spec.frames else None

    def match(self, text: str, which: Sequence[int] | None = None) -> dict[str, str] | None:
        """Captures of the first pattern found in `text`, or None. `which`: the places of those that may be found."""
        captures = self.captures(text, which)
        return None if captures is None or self.excludes(text) else captures

    def captures(self, text: str, which: Sequence[int] | None = None) -> dict[str, str] | None:
        """The same whether or not the rule excludes the line."""
        for number in range(len(self.spec.patterns)) if which is None else which:
            found = self.regex(number).search(text)
            if found:
                captures = {name: value for name, value in found.groupdict().items() if value is not None}
                if self.spec.decode:
                    captures |= DECODERS[self.spec.decode](text, captures)
                return captures
        return None

    def excludes(self, text: str) -> bool:
        return self.excluded is not None and self.excluded.search(text) is not None

    def match_exception(self, text: str, frames: str) -> dict[str, str] | None:
        """Captures when the last line of a traceback matches, and its frames do where the rule asks for them."""
        if self.framed and not self.framed.search(frames):
            return None
        return self.match(text)

    def meaning(self, captures: dict[str, str]) -> Rule:
        """What a match with these captures means, by the table when there is one."""
        key, number = self._row_of(captures)
        found = self._meanings.get((key, number))
        if found is None:
            found = self._meanings[key, number] = self._resolve(key, number)
        return found

    def rules(self) -> Iterator[Rule]:
        """Every meaning that this rule can have."""
        if not self.table:
            yield self._resolve("", -1)
            return
        for key, row in self.table.rows.items():
            for number in range(len(row.variants)):
                yield self._resolve(key, number)
            yield self._resolve(key, -1)
        yield self._resolve("", -1)

    def _row_of(self, captures: dict[str, str]) -> tuple[str, int]:
        if not self.table:
            return "", -1
        key = captures.get(self.table.key, "")
        row = self.table.rows.get(key) or self.table.rows.get(key.lstrip("0") or "0")
        if row is None:
            return "", -1
        key = key if key in self.table.rows else key.lstrip("0") or "0"
        for number, variant in enumerate(row.variants):
            if all(
                captures.get(name) in ((want,) if isinstance(want, str) else want)
                for name, want in variant.when.items()
            ):
                return key, number
        return key, -1

    def _resolve(self, key: str, number: int) -> Rule:
        layers: list[Meaning] = [self.spec]
        rule_id = self.spec.id
        if self.table:
            row = self.table.rows.get(key, self.table.default)
            if row is not None:
                layers.append(row)
                if key:
                    rule_id = f"{self.spec.id.partition('.')[0]}.{key.lower()}"
                if number >= 0:
                    layers.append(row.variants[number])
        merged: dict[str, Any] = {}
        for layer in layers:
            for field in Meaning.__struct_fields__:
                value = getattr(layer, field)
                if value is not None:
                    merged[field] = value
        if len(layers) > 1:
            merged["id"] = next((layer.id for layer in reversed(layers[1:]) if layer.id), rule_id)
        return build_rule(merged, self.spec.status)


def build_rule(parts: dict[str, Any], status: str) -> Rule:
    """Fill in the defaults that follow from role and domain."""
    role = Role(parts.get("role") or Role.CONTEXT)
    domain, sub_domain = parts.get("domain"), parts.get("sub_domain")
    blames = parts.get("blames")
    if blames is None:
        on_node = domain in ("hardware", "platform") or (domain, sub_domain) in _NODE_BLAMED
        blames = "node" if on_node else "none"
    return Rule(
        id=parts["id"],
        title=parts.get("title") or parts["id"],
        role=role,
        domain=domain,
        sub_domain=sub_domain,
        blames=blames,
        checks=tuple(parts.get("checks") or ()),
        explains=tuple(parts.get("explains") or ()),
        needs=tuple(parts.get("needs") or ()),
        scope=parts.get("scope") or "job",
        within=seconds(parts.get("within") or "35m"),
        delay=seconds(parts.get("delay") or "0s"),
        survives=seconds(parts.get("survives") or "90s"),
        persists=bool(parts.get("persists") or parts.get("persists_with")),
        persists_with=tuple(parts.get("persists_with") or ()),
        cleared_by=tuple(parts.get("cleared_by") or ()),
        degrades=bool(parts.get("degrades")),
        ends_by=tuple(parts.get("ends_by") or ()),
        slows=bool(parts.get("slows")),
        layered=bool(parts.get("layered")),
        on_one_node=_pair(parts.get("on_one_node")),
        node_by=tuple(parts.get("node_by") or ()),
        doubtful_without=tuple(parts.get("doubtful_without") or ()),
        recommend=parts.get("recommend"),
        guide=parts.get("guide") or "",
        does_not_prove=parts.get("does_not_prove") or "",
        references=tuple(parts.get("references") or ()),
        status=status,
    )


def _pair(text: str | None) -> tuple[str, str] | None:
    """``"platform/node_config"`` as a pair. Raises ValueError."""
    if text is None:
        return None
    domain, _, sub_domain = text.partition("/")
    if sub_domain not in SUB_DOMAINS.get(domain, ()):
        raise ValueError(f"on_one_node: {text!r} is not domain/sub_domain")
    return domain, sub_domain
