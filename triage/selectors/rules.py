"""The rules in force, and how they fared here: how often they matched and decided, and whether people agreed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from django.conf import settings
from django.db.models import Count, Func

from engine.rule import ExampleMatch, Matcher, Rule
from engine.ruleset import Ruleset, RulesetError, load_ruleset
from triage.models import Attempt, Verdict, VerdictKind
from triage.models.attempt import FAILURE
from triage.selectors.kept import kept
from triage.statistics import Share, wilson

DAYS = 90
PAGE_SIZE = 50
MAX_LINE = 1000
_HOLE = re.compile(r"\{\w+[^}]*\}")


UNJUDGED = wilson(0, 0)


class RuleOrder(StrEnum):
    """How the list of rules is ordered."""

    ROOT = "root"
    PRECISION = "precision"
    VERDICTS = "verdicts"
    NAME = "name"


@dataclass(frozen=True)
class RuleRow:
    """A rule with its figures. `precision` has the people's verdicts as trials; none, when nobody judged."""

    id: str
    title: str
    family: str
    domain: str
    sub_domain: str
    role: str
    status: str
    roots: int = 0
    matches: int = 0
    precision: Share = UNJUDGED


@dataclass(frozen=True)
class Confusion:
    """The engine blamed one rule, and people something else."""

    rule: str
    title: str
    engine: tuple[str, str]
    people: tuple[str, str]
    times: int


@dataclass(frozen=True)
class RulePage:
    """One page of the list."""

    rows: list[RuleRow]
    total: int
    """Rules that fit the search."""
    pages: int
    by_line: bool = False
    """The rows are those that match the line that was given."""


@dataclass(frozen=True)
class RuleDetail:
    """All that is known of one rule."""

    row: RuleRow
    rule: Rule
    meanings: list[Rule]
    """Every meaning with this id: rows of a table may share one."""
    matcher: Matcher
    examples: list[ExampleMatch]
    rows: list[tuple[str, Rule]]
    """Of the table, when this is the rule that looks it up: key and meaning."""
    hits: list[Attempt]
    nodes: int
    """On how many nodes it was the root."""
    corrections: list[Verdict]


@lru_cache(maxsize=1)
def ruleset() -> Ruleset | None:
    """The rule packs, read once a process; None when they can't be read (the worker says what is wrong)."""
    try:
        return load_ruleset(settings.FAULTLINE_RULES)
    except RulesetError:
        return None


@lru_cache(maxsize=1)
def _by_id() -> dict[str, tuple[Matcher, list[Rule]]]:
    """Every id with the matcher that gives it and its meanings, in the order of the packs."""
    found: dict[str, tuple[Matcher, list[Rule]]] = {}
    loaded = ruleset()
    for matcher in loaded.matchers if loaded else ():
        for rule in matcher.rules():
            found.setdefault(rule.id, (matcher, []))[1].append(rule)
    return found


def known_ids() -> tuple[str, ...]:
    """Every id that a diagnosis can name."""
    return tuple(sorted(_by_id()))


def families() -> list[str]:
    return sorted({rule_id.partition(".")[0] for rule_id in _by_id()})


def list_rules(
    *, search: str = "", family: str = "", order: RuleOrder = RuleOrder.ROOT, page: int = 1, now: datetime | None = None
) -> RulePage:
    """A page of rules. A search that no rule's words fit is tried as a line of a log. Three queries."""
    figures = kept("rules", "", lambda: _figures(now or datetime.now(UTC)))
    rows = [_row(rule_id, meanings[0], figures) for rule_id, (_, meanings) in _by_id().items()]
    if family:
        rows = [row for row in rows if row.family == family]
    by_line = False
    if search:
        words = search.lower().split()
        texts = {row.id: f"{row.id} {row.title} {row.domain} {row.sub_domain}".lower() for row in rows}
        named = [row for row in rows if all(word in texts[row.id] for word in words)]
        if not named and len(words) > 1:
            matching, by_line = matching_ids(search), True
            named = [row for row in rows if row.id in matching]
        rows = named
    rows.sort(key=_ORDERS[order])
    pages = max(1, -(-len(rows) // PAGE_SIZE))
    begin = (min(max(1, page), pages) - 1) * PAGE_SIZE
    return RulePage(rows[begin : begin + PAGE_SIZE], len(rows), pages, by_line)


def matching_ids(line: str) -> set[str]:
    """The rules that match a line of a log."""
    loaded = ruleset()
    found: set[str] = set()
    for matcher in (*loaded.line_matchers, *loaded.exception_matchers) if loaded else ():
        captures = matcher.match(line[:MAX_LINE])
        if captures is not None:
            found.add(matcher.meaning(captures).id)
    return found


def confusions(limit: int = 12) -> tuple[list[Confusion], int, int]:
    """What people said instead, most frequent first; how many verdicts are corrections, and how many there are."""
    return kept("confusions", limit, lambda: _confusions(limit))


def rule_detail(rule_id: str, *, now: datetime | None = None) -> RuleDetail | None:
    """One rule; None when no pack has it. A fixed number of queries."""
    known = _by_id().get(rule_id)
    if known is None:
        return None
    matcher, meanings = known
    now = now or datetime.now(UTC)
    roots = Attempt.objects.filter(rule=rule_id)
    recent = roots.filter(sort_at__gte=now - timedelta(days=DAYS)).order_by()
    hits = roots.select_related("workload", "cluster", "diagnosis", "verdict__by").defer(
        "diagnosis__contract", "search"
    )
    nodes = recent.annotate(node=Func("blamed_nodes", function="unnest")).values("node").distinct().count()
    corrected = Verdict.objects.filter(rule=rule_id, ended_at__isnull=True).exclude(kind=VerdictKind.CONFIRMED)
    spec = matcher.spec
    own = [example for example in spec.examples.match if (example.id or spec.id) == rule_id]
    rows = (
        [(key, matcher.meaning({matcher.table.key: key})) for key in matcher.table.rows]
        if matcher.table and spec.id == rule_id
        else []
    )
    return RuleDetail(
        row=_row(rule_id, meanings[0], kept("rules", rule_id, lambda: _figures(now, rule_id))),
        rule=meanings[0],
        meanings=meanings,
        matcher=matcher,
        examples=own or ([] if matcher.table and spec.id != rule_id else list(spec.examples.match)),
        rows=rows,
        hits=list(hits.order_by("-sort_at", "-id")[:12]),
        nodes=nodes,
        corrections=list(corrected.select_related("by", "attempt__workload").order_by("-created_at")[:8]),
    )


def title_of(rule_id: str) -> str:
    """The title of a rule, with what a match fills in left open; the id when no pack has it."""
    known = _by_id().get(rule_id)
    return plain_title(known[1][0].title) if known else rule_id


def titles_of(rule_id: str) -> list[str]:
    """What a rule may be called: one title for each of its meanings."""
    known = _by_id().get(rule_id)
    return [plain_title(rule.title) for rule in known[1]] if known else []


def plain_title(title: str) -> str:
    return _HOLE.sub("\u2026", title)


# --- parts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Figures:
    roots: Counter[str]
    matches: Counter[str]
    right: Counter[str]
    judged: Counter[str]


def _figures(now: datetime, only: str = "") -> _Figures:
    recent = Attempt.objects.filter(FAILURE, sort_at__gte=now - timedelta(days=DAYS)).order_by()
    verdicts = Verdict.objects.filter(ended_at__isnull=True).order_by()
    if only:
        roots = Counter({only: recent.filter(rule=only).count()})
        matches = Counter({only: recent.filter(matched__contains=[only]).count()})
        verdicts = verdicts.filter(rule=only)
    else:
        roots = Counter(dict(recent.exclude(rule="").values_list("rule").annotate(rows=Count("pk"))))
        named = recent.exclude(matched=[]).annotate(named=Func("matched", function="unnest")).values_list("named")
        matches = Counter(dict(named.annotate(rows=Count("pk"))))
    right: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    for rule, kind, count in verdicts.exclude(rule="").values_list("rule", "kind").annotate(rows=Count("pk")):
        judged[rule] += count
        right[rule] += count if kind == VerdictKind.CONFIRMED else 0
    return _Figures(roots, matches, right, judged)


def _confusions(limit: int) -> tuple[list[Confusion], int, int]:
    standing = Verdict.objects.filter(ended_at__isnull=True).exclude(rule="")
    kinds = Counter(dict(standing.order_by().values_list("kind").annotate(rows=Count("pk"))))
    total, confirmed = sum(kinds.values()), kinds[VerdictKind.CONFIRMED]
    rows = (
        standing.filter(kind=VerdictKind.WRONG_CAUSE)
        .order_by()
        .values_list("rule", "diagnosis__domain", "diagnosis__sub_domain", "domain", "sub_domain")
        .annotate(times=Count("pk"))
        .order_by("-times", "rule")[:limit]
    )
    found = [
        Confusion(rule, title_of(rule), (engine, engine_sub), (people, people_sub), times)
        for rule, engine, engine_sub, people, people_sub, times in rows
    ]
    return found, total - confirmed, total


def _row(rule_id: str, rule: Rule, figures: _Figures) -> RuleRow:
    return RuleRow(
        id=rule_id,
        title=plain_title(rule.title),
        family=rule.family,
        domain=rule.domain or "",
        sub_domain=rule.sub_domain or "",
        role=rule.role,
        status=rule.status,
        roots=figures.roots[rule_id],
        matches=figures.matches[rule_id],
        precision=wilson(figures.right[rule_id], figures.judged[rule_id]),
    )


_ORDERS = {
    RuleOrder.ROOT: lambda row: (-row.roots, -row.matches, row.id),
    RuleOrder.PRECISION: lambda row: (not row.precision.trials, row.precision.high, row.precision.share, row.id),
    RuleOrder.VERDICTS: lambda row: (not row.roots, row.precision.trials, -row.roots, row.id),
    RuleOrder.NAME: lambda row: row.id,
}
