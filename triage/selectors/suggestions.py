"""What the word that somebody writes in the search box could become."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from django.contrib.auth.models import User
from django.db.models import Count, F

from triage.access.sql import rows_over
from triage.access.viewer import seen_people
from triage.selectors.filters import NO_NODE, NOBODY, UNNAMED, AttemptFilter, filtered_attempts
from triage.selectors.kept import kept
from triage.selectors.query import ALIASES, FIELDS, TIMES, Field, Query, Term, parse
from triage.selectors.rules import known_ids, title_of, titles_of

MAX = 8
NEWEST = 1_000
"""So many of the matching attempts are looked at for the values that they name."""
INDEXED = 10_000
"""The same of columns that an index has beside the time."""
_LAST = re.compile(r'(?:^|\s)(-?)((?:[^\s"]|"[^"]*"?)*)$')
_SPANS = ("24h", "7d", "30d", "12w")
_COLUMNS = {"user": "user", "queue": "queue", "cluster": "cluster__name", "rule": "rule", "workload": "workload__name"}
_COUNTED = {
    "is": "verdict_status",
    "domain": "domain",
    "sub": "sub_domain",
    "outcome": "outcome",
    "triage": "triage_state",
}
_UNNAMED = {"user": "no user known", "queue": "no queue known", "cluster": "no cluster named"}
_XID = re.compile(r"xid\.([0-9]+)(?:-.*)?\Z")
_UNUSED = "(not used on current GPUs)"


@dataclass(frozen=True)
class Suggestion:
    """One way to go on: `text` is the whole query with it taken."""

    text: str
    typed: str
    """The part of `rest` that was written already."""
    rest: str
    note: str = ""


def suggest(text: str, user: User) -> list[Suggestion]:
    """At most MAX ways to complete the last word. Counts respect the rest of the query."""
    text = text[:500]
    if not text or text[-1].isspace():
        return _fields(text, "", "")
    match = _LAST.search(text)
    assert match is not None
    minus, word = match[1], match[2]
    before = text[: match.start(2) - len(minus)]
    name, colon, value = word.partition(":")
    if not colon:
        return _fields(before, minus, word)
    known = FIELDS.get(ALIASES.get(name, name))
    if known is None:
        return []
    rest = parse(before)
    narrowed = rest.without(known.name).to_filter(me=user.get_username()) if not rest.errors else AttemptFilter()
    if "succeeded" not in narrowed.outcome and known.name != "outcome":
        narrowed = replace(narrowed, failures=True)
    begun = value.strip('"').lower()
    found = []
    for option, note in _values(known, begun, narrowed):
        term = str(Term(known.name, option))
        found.append(Suggestion(f"{before}{minus}{term} ", f"{known.name}:", term.partition(":")[2], note))
    return found[:MAX]


def _fields(before: str, minus: str, word: str) -> list[Suggestion]:
    begun = word.lower()
    fields = [one for one in FIELDS.values() if one.name.startswith(begun)]
    found = [
        Suggestion(f"{before}{minus}{one.name}:", begun, one.name[len(begun) :] + ":", one.about) for one in fields
    ]
    if word and not word.startswith('"'):
        term = str(Query((Term("", word),)))
        found.append(Suggestion(f"{before}{minus}{term} ", "", term, "the word, anywhere"))
    return found[:MAX] if begun else found[: MAX + 2]


def _values(known: Field, begun: str, narrowed: AttemptFilter) -> Iterable[tuple[str, str]]:
    if known.name in TIMES:
        return [(span, "") for span in _SPANS if span.startswith(begun)] if known.name == "ended" else []
    if known.name in _COUNTED:
        counted, more = _counted(_COUNTED[known.name], narrowed)
        named = [value for value in known.values if value.startswith(begun)]
        named.sort(key=lambda value: -counted.get(value, 0))
        return [(value, f"{counted.get(value, 0):,}{more}") for value in named]
    if known.name in ("node", "on"):
        column = "blamed_nodes" if known.name == "node" else "nodes"
        found = _nodes(column, begun, narrowed)
        return [*found, (NO_NODE, "no node to blame")] if known.name == "node" and NO_NODE.startswith(begun) else found
    if known.name in _COLUMNS:
        named = _named(_COLUMNS[known.name], begun, narrowed)
        unnamed = known.name in _UNNAMED and UNNAMED.startswith(begun)
        return [*named[: MAX - 1], (UNNAMED, _UNNAMED[known.name])] if unnamed else named
    if known.name == "saw":
        return [(rule, title_of(rule)) for rule in known_ids() if rule.startswith(begun)][:MAX]
    if known.name == "xid":
        return _xids(begun, narrowed)
    if known.name == "assignee":
        people = seen_people().filter(username__istartswith=begun).order_by("username")[:MAX]
        fixed = [("me", "you"), (NOBODY, "nobody")]
        return [
            *[(word, note) for word, note in fixed if word.startswith(begun)],
            *[(one.username, one.get_full_name()) for one in people],
        ]
    return [(value, "") for value in known.values if value.startswith(begun)]


def _named(column: str, begun: str, narrowed: AttemptFilter) -> list[tuple[str, str]]:
    """The values that begin so: those of the newest matching attempts; where none of these does, those of all."""
    counted, more = _counted(column, narrowed)
    named = [(value, f"{rows:,}{more}") for value, rows in counted.items() if value.lower().startswith(begun) and value]
    if column == "rule":  # what is known needs no search
        named += [(rule, "") for rule in known_ids() if rule.startswith(begun) and rule not in counted] if more else []
    elif more and not named:
        rows = filtered_attempts(narrowed).exclude(**{column: ""}).filter(**{f"{column}__istartswith": begun})
        older = rows.values_list(column).annotate(rows=Count("*")).order_by("-rows", column)[:MAX]
        named = [(value, f"{count:,}") for value, count in older]
    return named[:MAX]


_COUNT = """
SELECT named, count(*) FROM ({0}) newest GROUP BY named ORDER BY count(*) DESC, named
"""


def _counted(column: str, narrowed: AttemptFilter) -> tuple[dict[str, int], str]:
    """How many of the newest matching attempts have each value, most first, and `+` where there are more of these."""
    limit = NEWEST if column in ("rule", "workload__name") else INDEXED
    newest = filtered_attempts(narrowed).order_by("-sort_at").annotate(named=F(column)).values("named")[:limit]
    rows = kept(
        "counted",
        (column, narrowed),
        lambda: rows_over(_COUNT, [newest]),
        when=lambda found: sum(count for _, count in found) >= NEWEST,  # of so many, one more can't be seen
    )
    return dict(rows), "+" if sum(count for _, count in rows) == limit else ""


def _xids(begun: str, narrowed: AttemptFilter) -> list[tuple[str, str]]:
    """The Xids that begin with these digits, or whose meaning has the word: those seen most often among the newest
    matching attempts first, then the others that rules know.
    """
    seen: Counter[str] = Counter()
    for rules in filtered_attempts(narrowed).order_by("-sort_at", "-id").values_list("matched", flat=True)[:NEWEST]:
        seen.update({number[1] for rule in rules if (number := _XID.match(rule))})
    meanings = {**dict.fromkeys(seen, ""), **_xid_meanings()}
    found = [one for one, about in meanings.items() if one.startswith(begun) or begun in about.lower()]
    found.sort(key=lambda one: (one != begun, -seen[one], meanings[one].endswith(_UNUSED), int(one)))
    return [(one, meanings[one] + (f" ({seen[one]:,})" if seen[one] else "")) for one in found[:MAX]]


def _xid_meanings() -> dict[str, str]:
    """What each Xid means by its number; what has several meanings says that."""
    titles: dict[str, dict[str, None]] = {}
    for rule in known_ids():
        if number := _XID.match(rule):
            known = titles.setdefault(number[1], {})
            known.update(dict.fromkeys(title.partition(": ")[2] for title in titles_of(rule)))
    return {
        number: next(iter(known)) if len(known) == 1 else f"{next(iter(known)).partition(',')[0]}, of several kinds"
        for number, known in titles.items()
    }


_NODES_NAMED = """
SELECT named, count(*) FROM ({0}) newest, unnest(newest.nodes_named) AS named
GROUP BY named ORDER BY count(*) DESC, named
"""


def _nodes(column: str, begun: str, narrowed: AttemptFilter) -> list[tuple[str, str]]:
    """The nodes named most often among the newest matching attempts."""
    rows = filtered_attempts(narrowed)
    rows = rows.filter(blames=True) if column == "blamed_nodes" else rows.exclude(**{column: []})
    newest = rows.order_by("-sort_at", "-id").annotate(nodes_named=F(column)).values("nodes_named")[:NEWEST]
    named = kept(
        "named", (column, narrowed), lambda: rows_over(_NODES_NAMED, [newest])
    )  # for each letter that is typed
    return [(node, f"{count:,}") for node, count in named if node.lower().startswith(begun)][:MAX]
