"""Everything that can be wrong with a rule, found when its pack is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.decode import DECODERS
from engine.model import SUB_DOMAINS, Role
from engine.ordinary import messages
from engine.patterns import PatternError, ends_unbounded, to_scanner
from engine.rule import Matcher, Rule, RuleSpec, Table

MOST_ORDINARY = 0.01
"""Share of ordinary lines that a pattern may match."""
_ID = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*\.[a-z0-9]+(?:[.-][a-z0-9]+)*\Z")


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
        else:
            yield from _check_cost(spec, pattern)
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


def _check_cost(spec: RuleSpec, pattern: str) -> Iterator[str]:
    """What makes a pattern dear in every log: it matches what jobs write all the time, or the rest of any line."""
    if ends_unbounded(pattern):
        yield f"match: {pattern!r} ends unbounded; leave out the last part, or bound it, as in .{{0,160}}"
    if spec.on != "line" or spec.role in (Role.PROGRESS, Role.CONTEXT):
        return  # these are meant to match ordinary lines
    regex, lines = re.compile(pattern), messages()
    found = sum(1 for line in lines if regex.search(line))
    if found > MOST_ORDINARY * len(lines):
        said = f"matches {found} of {len(lines)} ordinary lines (rules/ordinary.txt)"
        yield f"match: {pattern!r} {said}; at most {MOST_ORDINARY:.0%}"


def _check_meaning(rule: Rule, where: str) -> Iterator[str]:
    if rule.domain is not None and rule.domain not in SUB_DOMAINS:
        yield f"{where}domain: unknown domain {rule.domain!r}"
    elif rule.domain is not None and rule.sub_domain not in SUB_DOMAINS[rule.domain]:
        yield f"{where}sub_domain: {rule.sub_domain!r} is not one of {', '.join(SUB_DOMAINS[rule.domain])}"
    elif rule.domain is None and (rule.role in (Role.CAUSE, Role.EITHER) or rule.slows):
        yield f"{where}domain: is missing ({f'role {rule.role}' if not rule.slows else 'slows'})"


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
