"""The language of the search box: `domain:hardware -user:ada ended:7d "signal integrity"`, read, checked and written.

A query is a list of terms. Terms of one field are alternatives, fields are combined, a minus excludes. Everything that
the boxes beside a list can say is a term, so the address holds one text and the boxes only show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any

from engine.model import AMBIGUOUS, SUB_DOMAINS, Outcome, Source
from triage.models import TriageState, VerdictStatus
from triage.selectors.filters import AttemptFilter, printable_value, read_moment

MAX_LENGTH = 2000
MAX_TERMS = 40
ANY = "any"
"""As an outcome: no condition, but what succeeded is not left out."""
WORD = ""
"""The field of a term that is only text."""


@dataclass(frozen=True)
class Field:
    """A field of the language."""

    name: str
    about: str
    """What its value is, for people."""
    column: str = ""
    """Of AttemptFilter; empty for times."""
    values: tuple[str, ...] = ()
    """All values there are; empty when any text may be one."""
    example: str = ""


_SUBS = (*dict.fromkeys(sub for subs in SUB_DOMAINS.values() for sub in subs), AMBIGUOUS)
FIELDS: dict[str, Field] = {
    one.name: one
    for one in (
        Field("domain", "domain of the cause", "domain", tuple(SUB_DOMAINS)),
        Field("sub", "component", "sub_domain", _SUBS),
        Field("node", "node to blame, or none", "node", example="node-02"),
        Field("xid", "number of an Xid that was seen", "matched", example="149"),
        Field("is", "what people said", "verdict", tuple(VerdictStatus.values)),
        Field("user", "who submitted it, or none", "user", example="ada"),
        Field("cluster", "cluster, or none", "cluster", example="c1"),
        Field("queue", "queue or team, or none", "queue", example="pretrain"),
        Field("outcome", "how it ended; any: also what succeeded", "outcome", (*Outcome, ANY)),
        Field("workload", "name or id of the job", "workload", example="48213"),
        Field("rule", "rule of the root cause", "rule", example="pytorch.*"),
        Field("saw", "rule that matched anywhere", "matched", example="nccl.*"),
        Field("on", "node that it ran on", "on", example="node-02"),
        Field("incident", "incident", "incident", example="INC-118"),
        Field("assignee", "who has the incident, or none", "assignee", example="none"),
        Field("missing", "evidence that was not complete", "missing", tuple(Source)),
        Field("triage", "how far the triage is", "status", tuple(TriageState.values)),
        Field("ended", "within the last hours, days or weeks", example="7d"),
        Field("after", "ended at or after a day or time", example="2026-10-01"),
        Field("before", "ended before a day or time", example="2026-11-01"),
    )
}
ALIASES = {"sub_domain": "sub", "team": "queue", "job": "workload", "since": "after", "until": "before"}
TIMES = ("ended", "after", "before")
SPANS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_SPAN = re.compile(r"([1-9]\d{0,3})([hdw])\Z")
_NAMED = re.compile(r"([a-z_]{2,20}):")
_TOKEN = re.compile(r'(-?)([A-Za-z_]{2,20}:)?(?:"((?:[^"\\]|\\.)*)"(?=\s|$)|(\S+))')
_ESCAPED = re.compile(r"\\u\{([0-9a-f]{1,6})\}|\\(.)")
"""Inside quotes: what can't be seen or typed by its number, quotes and backslashes by a backslash before them."""


@dataclass(frozen=True)
class Term:
    """One condition. Text has no field."""

    field: str
    value: str
    negated: bool = False

    def __str__(self) -> str:
        plain = self.value.isprintable() and " " not in self.value and not self.value.startswith('"')
        plain = plain and bool(self.value)
        if self.field == WORD and (self.value.startswith("-") or _NAMED.match(self.value)):
            plain = False
        value = self.value if plain else f'"{"".join(map(_escape, self.value))}"'
        return ("-" if self.negated else "") + (f"{self.field}:" if self.field else "") + value


@dataclass(frozen=True)
class Query:
    """What somebody looks for. With `errors`, it was not understood whole and nothing should be listed."""

    terms: tuple[Term, ...] = ()
    errors: tuple[str, ...] = ()
    source: str = ""
    """As it was written, when it has errors."""

    def __str__(self) -> str:
        return self.source if self.errors else " ".join(map(str, self.terms))

    def values(self, name: str) -> tuple[str, ...]:
        """The values of a field that are asked for, without those that are excluded."""
        return tuple(term.value for term in self.terms if term.field == name and not term.negated)

    def value(self, name: str) -> str:
        return next(iter(self.values(name)), "")

    def without(self, *names: str) -> Query:
        """Without what is asked for in these fields; what is excluded stays."""
        return Query(tuple(term for term in self.terms if term.negated or term.field not in names))

    def minus(self, term: Term) -> Query:
        return Query(tuple(other for other in self.terms if other != term))

    def plus(self, *terms: Term) -> Query:
        return Query(tuple(dict.fromkeys((*self.terms, *terms))))

    def set(self, name: str, *values: str) -> Query:
        """With exactly these values of a field."""
        return self.without(name).plus(*(Term(name, value) for value in values if value))

    def to_filter(self, *, now: datetime | None = None, me: str = "") -> AttemptFilter:
        """The database's side of it. Relative times count from `now`; `assignee:me` is the person `me`."""
        now = now or datetime.now(UTC)
        values: dict[str, list[str]] = {}
        excluded: list[tuple[str, str]] = []
        since: list[datetime] = []
        until: list[datetime] = []
        for term in self.terms:
            if term.field in TIMES:
                _bound(term, now, since, until)
                continue
            column = FIELDS[term.field].column if term.field else "phrases"
            for value in _for_column(term, me):
                if term.negated:
                    excluded.append((column, value))
                else:
                    values.setdefault(column, []).append(value)
        return AttemptFilter(
            **{column: tuple(dict.fromkeys(found)) for column, found in values.items()},
            since=max(since) if since else None,
            until=min(until) if until else None,
            excluded=tuple(dict.fromkeys(excluded)),
        )


def parse(text: str) -> Query:
    """Reads a query. What is wrong with it is in `errors`, one sentence each that begins with the word in question."""
    if len(text) > MAX_LENGTH:
        return Query((), (f"The search is longer than {MAX_LENGTH:,} characters.",), text[:MAX_LENGTH])
    text = "".join(character if character.isprintable() else " " for character in text).strip()
    reader = _Reader()
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TOKEN.match(text, at)
        assert match is not None
        reader.read(match)
        at = match.end()
    terms = tuple(dict.fromkeys(reader.terms))
    if len(terms) > MAX_TERMS:
        reader.errors.append(f"{len(terms)} conditions are too many; at most {MAX_TERMS}.")
    return Query(terms, tuple(dict.fromkeys(reader.errors)), text if reader.errors else "")


def read_query(params: Mapping[str, Any]) -> Query:
    """The query of an address: `q`, and what the boxes of a form add to it as parameters of their own.

    `domain=hardware` means `domain:hardware`; `until` is a last day that is meant whole; `text` is words.
    """
    many = params.getlist if hasattr(params, "getlist") else lambda name: [params[name]] if name in params else []
    query = parse(" ".join(many("q")))
    added: list[Term] = []
    errors = list(query.errors)
    for name in (*FIELDS, *ALIASES, "status", "verdict", "text"):
        for value in filter(None, map(printable_value, many(name))):
            if name == "text":
                added += [Term(WORD, word) for word in value.split()]
                continue
            known = {"status": "triage", "verdict": "is"}.get(name) or ALIASES.get(name, name)
            if name == "until" and len(value) == 10:
                day = read_moment(value)
                value = (day + timedelta(days=1)).date().isoformat() if day and day.year < 9999 else value
            error = check(known, value)
            if error:
                errors.append(error)
            else:
                added.append(Term(known, value))
    if errors:
        return Query((*query.terms, *added), tuple(dict.fromkeys(errors)), query.source or str(query))
    return query.plus(*added)


def check(name: str, value: str) -> str:
    """What is wrong with a value of a field; empty when nothing is."""
    known = FIELDS[name]
    word = f"{name}:{value}"
    if not value:
        example = known.example or known.values[0]
        return f"{name}: needs a value ({known.about}), for example {name}:{example}"
    if name == "ended" and not _SPAN.match(value):
        return f"{word}: write hours, days or weeks, for example ended:24h, ended:7d or ended:4w"
    if name in ("after", "before") and read_moment(value) is None:
        return f"{word}: is no day or time. Write it like {name}:2026-11-01 or {name}:2026-11-01T06:30"
    if name == "incident" and not re.fullmatch(r"(?i:inc-)?\d{1,18}", value):
        return f"{word}: is no incident. Write it like incident:INC-118"
    if name == "xid" and not re.fullmatch(r"\d{1,4}", value):
        return f"{word}: an Xid is a number, for example xid:149"
    if known.values and value not in known.values:
        return f"{word}: there is no such value.{_meant(value, known.values)}"
    return ""


# --- parts ------------------------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    terms: list[Term] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def read(self, token: re.Match[str]) -> None:
        negated, prefix, quoted, bare = token[1] == "-", token[2], token[3], token[4]
        value = _ESCAPED.sub(_unescape, quoted) if bare is None else bare
        if prefix is None and bare is not None:
            named = _NAMED.fullmatch(bare)
            if named:  # `node:` with nothing after it
                prefix, value = named[0], ""
            elif bare == "-":
                return
        if bare is not None and bare.startswith('"'):
            self.errors.append(f'{token[0]}: the quote is not closed. Put a second " at the end of the text')
            return
        name = (prefix or "").rstrip(":")
        name = ALIASES.get(name, name)
        if name in FIELDS:
            error = check(name, value)
            if error:
                self.errors.append(("-" if negated else "") + error)
            elif negated and name in TIMES:
                self.errors.append(f"-{name}:{value}: a time can't be excluded; use after: and before:")
            else:
                self.terms.append(Term(name, value, negated))
        elif prefix and prefix == prefix.lower():
            close = _meant(name, (*FIELDS, *ALIASES), ":")
            self.errors.append(
                f'{token[0]}: there is no field {name}:.{close} To find the text itself, quote it: "{token[0]}"'
            )
        else:
            text = ((prefix or "") + value).strip()
            if text:
                self.terms.append(Term(WORD, text, negated))


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def _unescape(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[2]
    number = int(match[1], 16)
    return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else ""


def _meant(word: str, known: Iterable[str], after: str = "") -> str:
    close = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    if close:
        return f" Did you mean {close[0]}{after}?"
    return f" Known: {', '.join(known)}." if not after else ""


def _bound(term: Term, now: datetime, since: list[datetime], until: list[datetime]) -> None:
    if term.field == "ended":
        number, unit = _SPAN.match(term.value).groups()  # type: ignore[union-attr]
        since.append(now - int(number) * SPANS[unit])
        return
    moment = read_moment(term.value)
    assert moment is not None
    (since if term.field == "after" else until).append(moment)


def _for_column(term: Term, me: str) -> list[str]:
    if term.field == "xid":
        number = str(int(term.value))
        return [f"xid.{number}", f"xid.{number}-*"]
    if term.field == "outcome" and term.value == ANY:
        return []
    if term.field == "assignee" and term.value == "me" and me:
        return [me]
    return [term.value]
