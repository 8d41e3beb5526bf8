"""Loads, checks and fingerprints rule packs.

A pack is one YAML file of rules (engine/rules/README.md is its specification). Every fault in a pack is an error
that names file, rule and key; nothing is skipped in silence.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from engine import __version__, cache
from engine.ordinary import PATH as ORDINARY
from engine.rule import Matcher, Meaning, MetricSpec, Pack, Rule, RuleSpec, Table, build_rule, seconds
from engine.rulecheck import check_rule

__all__ = [
    "BUILTIN",
    "Matcher",
    "Meaning",
    "MetricSpec",
    "Rule",
    "RuleSpec",
    "Ruleset",
    "RulesetError",
    "Table",
    "build_rule",
    "check_file",
    "check_rule",
    "load_ruleset",
    "lock_text",
    "seconds",
    "select",
]

BUILTIN = Path(__file__).parent / "rules"


class RulesetError(ValueError):
    """A rule pack is wrong. The message is one line a fault: file, rule, key, reason."""


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
    checks = [Path(__file__).with_name(f"{name}.py") for name in ("ruleset", "rule", "rulecheck", "patterns", "decode")]
    for path, content in [*contents, *((path, path.read_bytes()) for path in (*checks, ORDINARY))]:
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
        return yaml.load(content, Loader=loader)  # nosec B506: a safe one
    except yaml.YAMLError as error:
        raise RulesetError(f"not valid YAML: {' '.join(str(error).split())}") from None


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
