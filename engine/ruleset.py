"""Loads, checks and fingerprints rule packs.

A pack is one YAML file of rules (engine/rules/README.md is its specification). Every fault in a pack is an error
that names file, rule and key; nothing is skipped in silence.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from engine import __version__, cache
from engine.decode import DECODERS
from engine.model import SUB_DOMAINS, Role, Source
from engine.patterns import PatternError, to_scanner

BUILTIN = Path(__file__).parent / "rules"
_ID = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*\.[a-z0-9]+(?:[.-][a-z0-9]+)*\Z")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NODE_BLAMED = {("storage", "local_disk"), ("storage", "shared_filesystem"), ("scheduler", "node_failure")}
_NODE_BLAMED |= {("network", sub) for sub in ("infiniband", "roce", "ethernet")}

DETECTORS = ("bits", "above", "below", "increase", "step_down", "step_up", "outlier", "changed")


class RulesetError(ValueError):
    """A rule pack is wrong. The message is one line a fault: file, rule, key, reason."""


class Recommend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action: Literal["restart", "restart_excluding", "stop", "investigate", "none"]
    text: str = ""
    references: tuple[str, ...] = ()


class MetricSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    names: tuple[str, ...]
    detector: Literal["bits", "above", "below", "increase", "step_down", "step_up", "outlier", "changed"]
    threshold: float = 0.0
    mask: int = 0
    min_samples: int = 2
    labels: dict[str, str] = {}
    """Only series whose labels match these regexes."""


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
    explains: tuple[str, ...] | None = None
    needs: tuple[str, ...] | None = None
    scope: Literal["device", "node", "peers", "job"] | None = None
    within: str | None = None
    delay: str | None = None
    survives: str | None = None
    persists: bool | None = None
    cleared_by: tuple[str, ...] | None = None
    degrades: bool | None = None
    on_one_node: str | None = None
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
    explains: tuple[str, ...]
    needs: tuple[str, ...]
    scope: str
    within: float
    delay: float
    survives: float
    persists: bool
    cleared_by: tuple[str, ...]
    degrades: bool
    on_one_node: tuple[str, str] | None
    """Domain and sub-domain when all ranks of one node report it and no other node does: then the node is to blame."""
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

    @cached_property
    def regexes(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(pattern) for pattern in self.spec.patterns)

    @cached_property
    def excluded(self) -> re.Pattern[str] | None:
        return re.compile(self.spec.exclude) if self.spec.exclude else None

    @cached_property
    def framed(self) -> re.Pattern[str] | None:
        return re.compile(self.spec.frames, re.MULTILINE) if self.spec.frames else None

    def match(self, text: str) -> dict[str, str] | None:
        """Captures of the first pattern found in `text`, or None."""
        for regex in self.regexes:
            found = regex.search(text)
            if found:
                if self.excluded and self.excluded.search(text):
                    return None
                captures = {name: value for name, value in found.groupdict().items() if value is not None}
                if self.spec.decode:
                    captures |= DECODERS[self.spec.decode](text, captures)
                return captures
        return None

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
        explains=tuple(parts.get("explains") or ()),
        needs=tuple(parts.get("needs") or ()),
        scope=parts.get("scope") or "job",
        within=seconds(parts.get("within") or "35m"),
        delay=seconds(parts.get("delay") or "0s"),
        survives=seconds(parts.get("survives") or "90s"),
        persists=bool(parts.get("persists")),
        cleared_by=tuple(parts.get("cleared_by") or ()),
        degrades=bool(parts.get("degrades")),
        on_one_node=_pair(parts.get("on_one_node")),
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


class Ruleset:
    """All rules that are in force, ready to be compiled by the scanner."""

    def __init__(self, specs: Sequence[RuleSpec], tables: dict[str, Table]) -> None:
        self.specs = tuple(specs)
        self.tables = tables
        self.matchers = tuple(
            Matcher(s, tables.get(s.table) if s.table else None) for s in specs if s.status != "retired"
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical form: what every diagnosis carries."""
        canonical = msgspec.json.encode(
            [sorted(self.specs, key=lambda s: s.id), [self.tables[name] for name in sorted(self.tables)]],
            order="sorted",
        )
        return "sha256:" + hashlib.sha256(canonical).hexdigest()

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """Every meaning of every rule, sorted by id."""
        unique = {rule.id: rule for matcher in self.matchers for rule in matcher.rules()}
        return tuple(unique[rule_id] for rule_id in sorted(unique))

    @cached_property
    def line_matchers(self) -> tuple[Matcher, ...]:
        return tuple(m for m in self.matchers if m.spec.on == "line")

    @cached_property
    def exception_matchers(self) -> tuple[Matcher, ...]:
        """In order of preference: packs that know a framework before the general ``python`` pack."""
        found = [m for m in self.matchers if m.spec.on == "exception"]
        return tuple(sorted(found, key=lambda m: m.spec.id.startswith("python.")))

    @cached_property
    def metric_matchers(self) -> tuple[Matcher, ...]:
        return tuple(m for m in self.matchers if m.spec.on == "metric")


def check_file(path: Path) -> list[str]:
    """Every fault of one pack, with the tables beside it."""
    tables = sorted((path.parent / "tables").glob("*.yaml"))
    try:
        _parse([(p, p.read_bytes()) for p in [*tables, path]], set(tables))
    except RulesetError as error:
        return str(error).splitlines()
    return []


def load_ruleset(extra: Sequence[Path] = (), *, builtin: bool = True) -> Ruleset:
    """Load the built-in packs and those of the `extra` folders; a later rule with the same id replaces an earlier one.

    Raises RulesetError with every fault found.
    """
    folders = ([BUILTIN] if builtin else []) + [Path(folder) for folder in extra]
    for folder in folders:
        if not folder.is_dir():
            raise RulesetError(f"{folder}: no such folder of rule packs")
    files = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    tables = [path for folder in folders for path in sorted((folder / "tables").glob("*.yaml"))]
    contents = [(path, path.read_bytes()) for path in [*tables, *files]]
    digest = hashlib.sha256(__version__.encode())
    for path, content in [
        *contents,
        *((p, p.read_bytes()) for p in (Path(__file__), Path(__file__).with_name("patterns.py"))),
    ]:
        digest.update(path.name.encode() + b"\0" + content + b"\0")
    checked = cache.get(f"ruleset-{digest.hexdigest()}", list[tuple[tuple[RuleSpec, ...], dict[str, Table]]])
    if checked is None:
        specs, loaded = _parse(contents, set(tables))
        checked = [(tuple(specs), loaded)]
        cache.put(f"ruleset-{digest.hexdigest()}", checked)
    return Ruleset(*checked[0])


def _parse(contents: list[tuple[Path, bytes]], table_files: set[Path]) -> tuple[list[RuleSpec], dict[str, Table]]:
    faults: list[str] = []
    tables: dict[str, Table] = {}
    specs: dict[str, RuleSpec] = {}
    for path, content in contents:
        try:
            if path in table_files:
                table = msgspec.convert(_yaml(path, content), Table)
                tables[table.table] = table
                continue
            pack = msgspec.convert(_yaml(path, content), Pack)
        except (msgspec.ValidationError, RulesetError) as error:
            faults.append(f"{path.name}: {error}")
            continue
        seen: set[str] = set()
        for spec in pack.rules:
            faults += [f"{path.name}: {spec.id}: {fault}" for fault in check_rule(spec, pack.family, tables)]
            if spec.id in seen:
                faults.append(f"{path.name}: {spec.id}: id: used twice")
            seen.add(spec.id)
            specs[spec.id] = spec
    if faults:
        raise RulesetError("\n".join(faults))
    return list(specs.values()), tables


def _yaml(path: Path, content: bytes) -> Any:
    import yaml  # only when a pack has changed: parsing is slow, and its result is cached

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(content, Loader=loader)
    except yaml.YAMLError as error:
        raise RulesetError(f"not valid YAML: {' '.join(str(error).split())}") from None


def check_rule(spec: RuleSpec, family: str, tables: dict[str, Table]) -> Iterator[str]:
    """Every fault of one rule, as ``key: reason``."""
    if not _ID.match(spec.id):
        yield "id: must be family.kebab-case"
    elif not spec.id.startswith(f"{family}."):
        yield f"id: must begin with {family}."
    for key in ("title", "role", "guide", "does_not_prove"):
        if not getattr(spec, key) and not (key == "role" and spec.table):
            yield f"{key}: is missing"
    if spec.table and spec.table not in tables:
        yield f"table: no tables/{spec.table}.yaml"
        return
    if spec.decode and spec.decode not in DECODERS:
        yield f"decode: unknown decoder {spec.decode!r}"
    yield from _check_patterns(spec)
    matcher = Matcher(spec, tables.get(spec.table) if spec.table else None)
    try:
        meanings = list(matcher.rules())
    except ValueError as error:
        yield str(error)
        return
    for rule in meanings:
        yield from _check_meaning(rule, "" if rule.id == spec.id else f"{rule.id}: ")
    if spec.on != "metric" and not any(True for _ in _check_patterns(spec)):
        yield from _check_examples(matcher)


def _check_patterns(spec: RuleSpec) -> Iterator[str]:
    if spec.on == "metric":
        if spec.metric is None:
            yield "metric: is missing"
        return
    if not spec.patterns:
        yield "match: is missing"
    for pattern in spec.patterns:
        try:
            re.compile(pattern)
            to_scanner(pattern)
        except (PatternError, re.error) as error:
            yield f"match: {pattern!r} {error}"
    for key, optional in (("exclude", spec.exclude), ("frames", spec.frames)):
        if optional:
            try:
                re.compile(optional)
            except re.error as error:
                yield f"{key}: not a valid regex: {error}"
    if not spec.examples.match:
        yield "examples.match: at least one line"
    if not spec.examples.no_match:
        yield "examples.no_match: at least one line"


def _check_meaning(rule: Rule, where: str) -> Iterator[str]:
    if rule.domain is not None and rule.domain not in SUB_DOMAINS:
        yield f"{where}domain: unknown domain {rule.domain!r}"
    elif rule.domain is not None and rule.sub_domain not in SUB_DOMAINS[rule.domain]:
        yield f"{where}sub_domain: {rule.sub_domain!r} is not one of {', '.join(SUB_DOMAINS[rule.domain])}"
    elif rule.role in (Role.CAUSE, Role.EITHER) and rule.domain is None:
        yield f"{where}domain: is missing (role {rule.role})"


def _check_examples(matcher: Matcher) -> Iterator[str]:
    for example in matcher.spec.examples.match:
        captures = matcher.match_exception(example.line, example.frames)
        if captures is None:
            yield f"examples.match: {example.line!r} does not match"
            continue
        for name, want in example.captures.items():
            if captures.get(name) != want:
                yield f"examples.match: {example.line!r} gives {name}={captures.get(name)!r}, not {want!r}"
        if example.id and matcher.meaning(captures).id != example.id:
            yield f"examples.match: {example.line!r} gives id {matcher.meaning(captures).id}, not {example.id}"
    for line in matcher.spec.examples.no_match:
        if not matcher.framed and matcher.match(line) is not None:
            yield f"examples.no_match: {line!r} matches"


def select(rules: Iterable[Rule], pattern: str) -> list[Rule]:
    """Rules whose id fits the glob."""
    return [rule for rule in rules if fnmatch.fnmatchcase(rule.id, pattern)]


def lock_text(ruleset: Ruleset) -> str:
    """``rules.lock``: id, version and content hash, one rule a line; changed content needs a new version."""
    lines = []
    for spec in sorted(ruleset.specs, key=lambda s: s.id):
        content = [spec, ruleset.tables.get(spec.table) if spec.table else None]
        digest = hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()
        lines.append(f"{spec.id} {spec.version} {spec.status} {digest}\n")
    return "".join(lines)
