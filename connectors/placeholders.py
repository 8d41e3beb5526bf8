"""Queries with placeholders for what is known of an attempt: `{job_id}`, `{nodes_regex}`, ...

Job and node names are written by anyone, so each value is escaped for the place where it stands: a quoted string of
LogQL or PromQL, and a regular expression (RE2) inside of it. A placeholder outside of quotes is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from connectors.base import ConfigError
from engine.model import Attempt

PLAIN = ("workload", "job_id", "name", "namespace", "cluster", "user", "queue", "node")
REGEX = ("nodes_regex", "pod_regex")
PER_NODE = {"node", "nodes_regex"}
_HOLE = re.compile(r"(?<!\{)\{([a-z_]+)\}")
_RE2_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
_REGEX_OPERATOR = re.compile(r"(?:=~|!~|\|~)\s*\Z")


class MissingValue(Exception):
    """The attempt has nothing for a placeholder; holds its name."""


class _Hole(msgspec.Struct, frozen=True):
    name: str
    quote: str
    in_regex: bool


class Template:
    """A query with placeholders, checked when it is made. Raises ConfigError."""

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self._parts = list(_parse(text, where))
        self.names = frozenset(part.name for part in self._parts if isinstance(part, _Hole))

    def fill(self, values: Mapping[str, str]) -> str:
        """The query. Values of PLAIN are literal, those of REGEX regular expressions. Raises MissingValue."""
        return "".join(part if isinstance(part, str) else _filled(part, values) for part in self._parts)


def _parse(text: str, where: str) -> Iterator[str | _Hole]:
    quote, opened, start, position = "", 0, 0, 0
    while position < len(text):
        letter = text[position]
        hole = _HOLE.match(text, position) if letter == "{" else None
        if hole and (quote or hole[1] in (*PLAIN, *REGEX)):
            name = hole[1]
            if name not in (*PLAIN, *REGEX):
                raise ConfigError(f"{where}: {{{name}}} is not one of {', '.join((*PLAIN, *REGEX))}")
            if not quote:
                raise ConfigError(f"{where}: {{{name}}} must stand inside of quotes")
            in_regex = bool(_REGEX_OPERATOR.search(text, 0, opened))
            if name in REGEX and not in_regex:
                raise ConfigError(f"{where}: {{{name}}} is a regular expression and needs =~ or !~")
            yield text[start:position]
            yield _Hole(name, quote, in_regex)
            position = start = hole.end()
            continue
        if quote:
            if letter == "\\" and quote != "`":
                position += 1
            elif letter == quote:
                quote = ""
        elif letter in "\"'`":
            quote, opened = letter, position
        position += 1
    if quote:
        raise ConfigError(f"{where}: a quote is not closed")
    yield text[start:]


def _filled(hole: _Hole, values: Mapping[str, str]) -> str:
    value = values.get(hole.name, "")
    if not value:
        raise MissingValue(hole.name)
    if hole.in_regex and hole.name not in REGEX:
        value = regex_literal(value)
    if hole.quote == "`":
        if "`" in value:
            raise MissingValue(hole.name)
        return value
    escaped = value.replace("\\", "\\\\").replace(hole.quote, "\\" + hole.quote)
    return "".join(letter if ord(letter) >= 32 else f"\\x{ord(letter):02x}" for letter in escaped)


def regex_literal(value: str) -> str:
    """`value` as a regular expression that matches nothing else."""
    return _RE2_SPECIAL.sub(r"\\\1", value)


def nodes_regex(nodes: Sequence[str]) -> str:
    """One of the nodes, with or without their domain."""
    forms = []
    for node in nodes:
        short, dot, domain = node.partition(".")
        is_name = bool(dot) and not short.isdigit()
        forms.append(
            regex_literal(short) + (f"(?:{regex_literal(dot + domain)})?" if is_name else regex_literal(dot + domain))
        )
    return f"(?:{'|'.join(forms)})" if forms else ""


def values_of(attempt: Attempt) -> dict[str, str]:
    """What an attempt gives to every query: all but the nodes."""
    workload = attempt.workload
    namespace, slash, base = workload.id.rpartition("/")
    name = workload.name or base
    pods = dict.fromkeys(filter(None, (name, base)))
    return {
        "workload": workload.id,
        "job_id": base,
        "name": name,
        "namespace": namespace.rpartition("/")[2] if slash else "",
        "cluster": workload.cluster,
        "user": workload.user,
        "queue": workload.queue,
        "pod_regex": f"(?:{'|'.join(map(regex_literal, pods))})(?:-.*)?",
    }


def batches(template: Template, nodes: Sequence[str], size: int) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """The node sets that a template is asked for, with their values: one node each, at most `size`, or all at once.

    Raises MissingValue when it needs nodes and there are none.
    """
    wanted = template.names & PER_NODE
    if not wanted:
        yield tuple(nodes), {}
        return
    if not nodes:
        raise MissingValue(sorted(wanted)[0])
    size = 1 if "node" in wanted else size
    for start in range(0, len(nodes), size):
        some = tuple(nodes[start : start + size])
        yield some, {"node": some[0], "nodes_regex": nodes_regex(some)}
