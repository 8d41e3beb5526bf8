"""Where files of an attempt lie: `root:path` with placeholders and wildcards, name by name.

`{node}` and `{rank}` tell whose a file is; the other placeholders stand for what is known of the attempt. `*` and `?`
stand for signs of one name, `**` for any folders. Values come from job scripts, so one that isn't a plain name is not
put into a path.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence

import msgspec

from connectors.access import ANY_FOLDERS, Choices, Part
from connectors.base import ConfigError
from connectors.placeholders import MissingValue

ABOUT = ("workload", "job_id", "name", "namespace", "cluster", "user", "queue")
PLACES = ("node", "rank")
_TOKEN = re.compile(r"\{(?P<name>[a-z_]*)\}|(?P<wild>[*?])")
_UNSAFE = re.compile(r"[/\x00]")


class PathPattern(msgspec.Struct, frozen=True):
    """A pattern that was checked."""

    text: str
    root: str
    components: tuple[str, ...]
    names: frozenset[str]

    @classmethod
    def parse(cls, text: str, roots: Sequence[str], where: str) -> PathPattern:
        """Raises ConfigError."""
        root, colon, path = text.partition(":")
        if not colon or root not in roots:
            known = ", ".join(sorted(roots)) or "none"
            raise ConfigError(
                f"{where}: must begin with a root and a colon, like logs:{{node}}/syslog*; roots: {known}"
            )
        components = tuple(path.split("/"))
        if not path or any(part in ("", ".", "..") or "\0" in part for part in components):
            raise ConfigError(f"{where}: {text!r}: must be a path below the root, without empty names, . and ..")
        names = [found["name"] for found in _TOKEN.finditer(path) if found["wild"] is None]
        unknown = [name for name in names if name not in (*ABOUT, *PLACES)]
        if unknown:
            raise ConfigError(f"{where}: {{{unknown[0]}}} is not one of {', '.join((*ABOUT, *PLACES))}")
        if components[-1] == "**":
            raise ConfigError(f"{where}: ** stands for folders, so a file's name must follow it")
        return cls(text, root, components, frozenset(names))

    def parts(self, values: Mapping[str, str], hosts: Hosts) -> list[Part]:
        """The path for one attempt, to be looked for. Raises MissingValue."""
        for name in sorted(self.names - set(PLACES)):
            value = values.get(name, "")
            if not value or _UNSAFE.search(value) or value in (".", ".."):
                raise MissingValue(name)
        if "node" in self.names and not hosts:
            raise MissingValue("nodes")
        return [self.root, *(_part(component, values, hosts) for component in self.components)]

    def shown(self, values: Mapping[str, str]) -> str:
        """The pattern with what is known put in."""
        return _TOKEN.sub(lambda found: values.get(found["name"] or "", "") or found[0], self.text)


class Hosts:
    """The attempt's nodes in the forms that names of files have."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = {_short(node): node for node in nodes}
        self._domains = sorted({node[len(_short(node)) :] for node in nodes} - {""})

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def node(self, short: str | None) -> str | None:
        """The node as the scheduler writes it."""
        return self._nodes.get(short or "")

    def choices(self, before: str, after: str) -> Choices:
        """Names that hold a node and nothing else that varies."""
        forms = {form: short for short, node in self._nodes.items() for form in (short, node)}
        return Choices({f"{before}{form}{after}": {"node": short} for form, short in forms.items()})

    @property
    def regex(self) -> str:
        names = "|".join(re.escape(short) for short in sorted(self._nodes, key=len, reverse=True))
        domains = "|".join(re.escape(domain) for domain in self._domains)
        return rf"(?<![A-Za-z0-9])(?P<node>{names})(?:{domains})?(?![A-Za-z0-9])"


def _short(node: str) -> str:
    try:
        ipaddress.ip_address(node)
    except ValueError:
        return node.split(".", 1)[0]
    return node


def _part(component: str, values: Mapping[str, str], hosts: Hosts) -> Part:
    if component == "**":
        return ANY_FOLDERS
    varies = [token["name"] or token["wild"] for token in _TOKEN.finditer(component) if token["name"] not in ABOUT]
    texts = _joined(component, values)
    if not varies:
        return texts[0]
    if varies == ["node"]:
        return hosts.choices(texts[0], texts[1])
    pattern, seen = re.escape(texts[0]), set[str]()
    for what, text in zip(varies, texts[1:], strict=True):
        pattern += (f"(?P={what})" if what in seen else _regex(what, hosts)) + re.escape(text)
        seen |= {what} & set(PLACES)
    hidden = "" if component.startswith(".") else r"(?!\.)"
    return re.compile(hidden + pattern, re.DOTALL)


def _joined(component: str, values: Mapping[str, str]) -> list[str]:
    """The texts before, between and after what varies, with the attempt's values put in."""
    texts, at = [""], 0
    for token in _TOKEN.finditer(component):
        texts[-1] += component[at : token.start()]
        at = token.end()
        if token["name"] in ABOUT:
            texts[-1] += values[token["name"]]
        else:
            texts.append("")
    texts[-1] += component[at:]
    return texts


def _regex(what: str, hosts: Hosts) -> str:
    if what == "node":
        return hosts.regex
    return {"rank": r"(?P<rank>\d{1,7})(?!\d)", "*": ".*", "?": "."}[what]
