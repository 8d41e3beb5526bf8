"""The list of failures as an address: what is looked for, in which order and columns; and the boxes that show it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.http import QueryDict
from django.urls import reverse

from engine.model import Outcome
from triage import words
from triage.models import Audience, SavedView, TriageState, VerdictStatus
from triage.selectors import facets as facet
from triage.selectors.attempts import NO_NODE, AttemptFilter, Order, count_attempts, count_each
from triage.selectors.filters import read_moment
from triage.selectors.query import ANY, WORD, Query, Term, read_query
from triage.services.saved_views import default_view, visible_views
from triage.text import cut, printable

ENDED = {"24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days"}
FACETS = (
    ("is", "verdict", "Status"),
    ("domain", "domain", "Domain"),
    ("node", "node", "Node blamed"),
    ("outcome", "outcome", "Outcome"),
    ("cluster", "cluster", "Cluster"),
    ("user", "user", "User"),
    ("triage", "status", "Triage"),
)
"""Field of the query, facet, heading."""
ORDERS = {Order.NEWEST: "Newest first", Order.LOST: "Most GPU-hours lost", Order.OLDEST: "Longest waiting"}
COLUMNS = {"ran": "Ran for", "outcome": "Outcome", "queue": "Queue", "nodes": "Nodes", "rule": "Rule"}
"""Columns beyond those that are always there."""
MAX_DROPS_COUNTED = 6


def encoded(params: Any) -> str:
    """URL parameters with what reads well left readable."""
    return urlencode(params, doseq=True, safe=":,/*")


@dataclass(frozen=True)
class View:
    """What an address of the list says."""

    query: Query
    order: Order = Order.NEWEST
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, params: QueryDict) -> View:
        """Unknown orders and columns are left out."""
        sort = params.get("sort", "")
        columns = {name for value in params.getlist("cols") for name in value.split(",")}
        return cls(
            read_query(params),
            Order(sort) if sort in ORDERS else Order.NEWEST,
            tuple(name for name in COLUMNS if name in columns),
        )

    @classmethod
    def saved(cls, view: SavedView) -> View:
        return cls.of(QueryDict(encoded({"q": view.query, "sort": view.sort, "cols": view.columns})))

    def params(self, **more: str) -> dict[str, str]:
        query = str(self.query)
        params = {"q": query} if query else {}
        if self.order is not Order.NEWEST:
            params["sort"] = self.order.value
        if self.columns:
            params["cols"] = ",".join(self.columns)
        return {**params, **more}

    def address(self, name: str = "failures", **more: str) -> str:
        """The list, or another page that works on it. Everything is a parameter, so that Back and a link restore it."""
        params = self.params(**more) or {"q": ""}  # without any parameter the list opens with one's default view
        return f"{reverse(name)}?{encoded(params)}"

    def asking(self, query: Query) -> View:
        return replace(self, query=query)

    def narrowed(self, user: User | None = None) -> AttemptFilter:
        """What the list is narrowed to: successes are hidden unless an outcome is asked for."""
        narrowed = self.query.to_filter(me=user.get_username() if user else "")
        shown = Outcome.SUCCEEDED in narrowed.outcome or ANY in self.query.values("outcome")
        return narrowed if shown else replace(narrowed, failures=True)


def list_address(text: str = "") -> str:
    """The list with this query, which is trusted to be one."""
    return f"{reverse('failures')}?{encoded({'q': text})}"


# --- the boxes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """One box of a facet."""

    value: str
    label: str
    count: int
    selected: bool
    more: bool = False
    """There are more than were counted."""


@dataclass(frozen=True)
class Box:
    """One facet with its choices."""

    field: str
    label: str
    choices: list[Choice]


def boxes(view: View, counts: facet.Counts) -> list[Box]:
    """Every facet that offers a choice."""
    made = []
    for name, column, label in FACETS:
        picked = view.query.values(name)
        choices = [
            Choice(
                item.value,
                _label(name, item.value),
                item.count,
                item.value in picked,
                more=counts.succeeded_more and name == "outcome" and item.value == Outcome.SUCCEEDED,
            )
            for item in counts.facets[column]
            if item.value != NO_NODE and item.value.isprintable() and (item.count or item.value in picked)
        ]
        if name == "node" and (counts.no_node or NO_NODE in picked):
            choices.append(Choice(NO_NODE, "No node to blame", counts.no_node, NO_NODE in picked))
        if name == "outcome" and ANY in picked:
            choices.append(Choice(ANY, "Any, also succeeded", counts.total, True))
        if name == "triage" and not picked and all(choice.value == TriageState.DONE for choice in choices):
            continue
        if choices:
            made.append(Box(name, label, choices))
    return made


def _label(name: str, value: str) -> str:
    if name == "triage":
        return str(TriageState(value).label) if value in TriageState.values else value
    if name == "is":
        return str(VerdictStatus(value).label) if value in VerdictStatus.values else value
    if name in ("domain", "outcome"):
        return str(getattr(words, name)(value))
    return value


@dataclass(frozen=True)
class Drop:
    """A condition in force, the list's address without it, and how many would then match (None: not counted)."""

    label: str
    url: str
    count: int | None = None


def drops(view: View, user: User | None = None, *, count: bool = False) -> list[Drop]:
    """Every condition of the query."""
    made = []
    for number, term in enumerate(view.query.terms):
        left = view.asking(view.query.minus(term))
        matching = count_attempts(left.narrowed(user)) if count and number < MAX_DROPS_COUNTED else None
        label, more = cut(printable(str(term)), 60)
        made.append(Drop(label + ("\u2026" if more else ""), left.address(), matching))
    return made


@dataclass(frozen=True)
class Period:
    """What the boxes for the time show."""

    ended: str
    since: str
    last_day: str


def period(query: Query) -> Period:
    """`before:` is a day that no longer counts; the box asks for the last day that does."""
    until = read_moment(query.value("before"))
    last = until - timedelta(days=1) if until and until.year > 1 else None
    return Period(query.value("ended"), query.value("after")[:10], last.date().isoformat() if last else "")


def kept(view: View) -> str:
    """The part of the query that the boxes don't show and the form has to carry."""
    fields = (*(name for name, _, _ in FACETS), "ended", "after", "before")
    return str(view.query.without(*fields))


# --- saved views ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tab:
    """A view that one click opens."""

    name: str
    view: View
    current: bool
    about: str = ""
    count: int | None = None
    """How many match. None: not counted."""
    more: bool = False
    """There are more than were counted."""

    @property
    def url(self) -> str:
        return self.view.address()


BUILT_IN = (
    ("All failures", ""),
    ("Last 7 days", "ended:7d"),
    ("To confirm", "is:unconfirmed -domain:unattributed"),
    ("Without a cause", "domain:unattributed"),
)
MANY = 1_000
"""So many are counted at most behind a view that is not open."""
MAX_TABS_COUNTED = 16


def tabs(view: View, user: User, total: int | None = None) -> list[Tab]:
    """The views that everybody has, then those that somebody sees, with how many match: `total` of the one that is
    open, and of the others as far as it is counted. Two queries.
    """
    own = list(visible_views(user).select_related("owner", "team")[:40])
    saved = [View.saved(one) for one in own]
    same = view in saved
    made = []
    for name, text in BUILT_IN:
        one = View.of(QueryDict(encoded({"q": text})))
        made.append(Tab(name, one, current=one == view and not same))
    for row, one in zip(own, saved, strict=True):
        about = "" if row.owner_id == user.pk and row.audience == Audience.ME else _audience(row)
        made.append(Tab(row.name, one, current=one == view, about=about))
    places = [place for place, tab in enumerate(made) if not tab.view.query.errors][:MAX_TABS_COUNTED]
    counts = count_each([made[place].view.narrowed(user) for place in places], MANY)
    for place, count in zip(places, counts, strict=True):
        exact = made[place].current and total is not None
        made[place] = replace(made[place], count=total if exact else count, more=count == MANY and not exact)
    return made


def _audience(view: SavedView) -> str:
    whose = printable(view.owner.get_full_name() or view.owner.get_username())
    who = "everybody" if view.audience == Audience.ALL else printable(view.team.name) if view.team else "only them"
    return f"by {whose}, for {who}"


def default_address(user: User) -> str | None:
    """Where somebody's list opens, when they or a team of theirs chose a view for it."""
    view = default_view(user)
    return View.saved(view).address() if view is not None else None


__all__ = [
    "BUILT_IN", "COLUMNS", "ENDED", "FACETS", "ORDERS", "WORD", "Box", "Choice", "Drop", "Period",
    "Tab", "Term", "View", "boxes", "default_address", "drops", "encoded", "kept", "list_address", "period", "tabs",
]  # fmt: skip
