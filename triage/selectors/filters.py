"""What a list of attempts can be narrowed to, and the database's query for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.http import QueryDict
from django.utils.dateparse import parse_datetime

from triage.models import Attempt, Cluster, Membership, Workload
from triage.models.attempt import FAILURE

NO_NODE = "none"
"""As a value of the node filter: attempts with a diagnosis that blames no node."""
NOBODY = "none"
"""As a value of the assignee filter: attempts whose incident nobody has, or that have none."""
UNNAMED = "none"
"""As a user, a queue or a cluster: attempts of which none is known, and of one with that name."""
MAX_WORDS = 12


@dataclass(frozen=True)
class AttemptFilter:
    """What a list is narrowed to. Values of one field are alternatives, fields are combined."""

    domain: tuple[str, ...] = ()
    sub_domain: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    """Nodes that the answer blames (cause or suspect); `none` for attempts that blame no node."""
    user: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    """Triage states: pending, collecting, diagnosing, done, failed."""
    verdict: tuple[str, ...] = ()
    """What people said: unconfirmed, confirmed, corrected, disagrees."""
    queue: tuple[str, ...] = ()
    workload: tuple[str, ...] = ()
    """Name or the scheduler's id."""
    on: tuple[str, ...] = ()
    """Nodes of the allocation."""
    rule: tuple[str, ...] = ()
    """Rule of the root cause; a * at the end stands for anything."""
    matched: tuple[str, ...] = ()
    """Rules that the diagnosis names anywhere; a * at the end stands for anything."""
    missing: tuple[str, ...] = ()
    """Sources that were not complete."""
    incident: tuple[str, ...] = ()
    """Numbers of incidents."""
    assignee: tuple[str, ...] = ()
    """User names of whom the incident was given to; `none` for nobody."""
    failures: bool = False
    """Leave out what succeeded."""
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    """Words that must all occur, anywhere in the workload's names, the nodes or the verdict."""
    phrases: tuple[str, ...] = ()
    """Like words, with the spaces in them."""
    excluded: tuple[tuple[str, str], ...] = ()
    """Field and value of what must not be so; the field `phrases` for text."""

    MULTIPLE = (
        "domain", "sub_domain", "cluster", "node", "user", "outcome", "status", "verdict", "queue", "workload", "on",
        "rule", "matched", "missing", "incident", "assignee",
    )  # fmt: skip

    @classmethod
    def from_query(cls, query: QueryDict | Mapping[str, Any]) -> AttemptFilter:
        """From a URL's parameters: `?domain=hardware&domain=network&since=2026-11-03T02:00&text=xid+149`.

        Unknown parameters and unreadable times are ignored.
        """
        many = query.getlist if isinstance(query, QueryDict) else lambda name: _as_list(query.get(name))
        values: dict[str, Any] = {
            name: tuple(dict.fromkeys(clean for value in many(name) if (clean := printable_value(value))))
            for name in cls.MULTIPLE
        }
        return cls(
            **values,
            since=read_moment(query.get("since")),
            until=read_moment(query.get("until")),
            text=printable_value(query.get("text") or ""),
        )

    def to_query(self) -> dict[str, list[str]]:
        """The URL parameters that `from_query` reads back; empty fields are left out."""
        query = {name: list(getattr(self, name)) for name in self.MULTIPLE if getattr(self, name)}
        for name in ("since", "until"):
            moment = getattr(self, name)
            if moment is not None:
                query[name] = [moment.astimezone(UTC).isoformat().replace("+00:00", "Z")]
        if self.text:
            query["text"] = [self.text]
        return query

    def without(self, *names: str) -> AttemptFilter:
        """The same filter with some fields empty."""
        return replace(self, **{name: getattr(AttemptFilter(), name) for name in names})

    @property
    def is_empty(self) -> bool:
        return self == AttemptFilter()

    @property
    def words(self) -> tuple[str, ...]:
        """All that must occur in the text, in lower case."""
        return tuple(word.lower() for word in (*self.text.split(), *self.phrases)[:MAX_WORDS])


def filtered_attempts(narrowed: AttemptFilter) -> QuerySet[Attempt]:
    """The attempts that match, without an order."""
    query = Attempt.objects.order_by()
    if narrowed.failures:
        query = query.filter(FAILURE)
    for name, condition in _CONDITIONS.items():
        values = getattr(narrowed, name)
        if values:
            query = query.filter(condition(values))
    if narrowed.since is not None:
        query = query.filter(sort_at__gte=narrowed.since)
    if narrowed.until is not None:
        query = query.filter(sort_at__lt=narrowed.until)
    for word in narrowed.words:
        query = query.filter(search__contains=word)
    for name, value in narrowed.excluded:
        if name == "phrases":
            query = query.exclude(search__contains=value.lower())
        else:
            query = query.exclude(_CONDITIONS[name]((value,)))
    return query


def matches(narrowed: AttemptFilter, *names: str) -> Q:
    """What some of the fields alone ask for; always true when none of them asks for anything."""
    found = Q(pk__isnull=False)
    for name in names:
        values = getattr(narrowed, name)
        if values:
            found &= _CONDITIONS[name](values)
    return found


# --- parts ------------------------------------------------------------------------------------------------------------

Values = Sequence[str]


def _in(column: str) -> Callable[[Values], Q]:
    return lambda values: Q(**{f"{column}__in": values})


def _or_prefix(column: str) -> Callable[[Values], Q]:
    """Exactly one of the values; one that ends with * stands for all that begin so."""

    def condition(values: Values) -> Q:
        exact = [value for value in values if not value.endswith("*")]
        found = Q(**{f"{column}__in": exact}) if exact else Q(pk__in=[])
        for value in values:
            if value.endswith("*"):
                found |= Q(**{f"{column}__startswith": value[:-1]})
        return found | Q(**{column: ""}) if UNNAMED in values else found

    return condition


def _cluster(values: Values) -> Q:
    """Each name as a value of its own that is looked up once, so that an index alone can answer."""
    found = Q(pk__in=[])
    for name in (*values, *([""] if UNNAMED in values else [])):
        found |= Q(cluster=Subquery(Cluster.objects.filter(name=name).values("pk")[:1]))
    return found


def _node(values: Values) -> Q:
    named = [node for node in values if node != NO_NODE]
    found = Q(blamed_nodes__overlap=named) if named else Q(pk__in=[])
    if NO_NODE in values:
        found |= Q(blames=False) & ~Q(outcome="")
    return found


def _workload(values: Values) -> Q:
    return Q(workload__in=Workload.objects.filter(Q(workload_id__in=values) | Q(name__in=values)))


def _matched(values: Values) -> Q:
    from triage.selectors.rules import known_ids  # the rule packs are only read when somebody asks for rules

    named: list[str] = []
    for value in values:
        if value.endswith("*"):
            named += [rule for rule in known_ids() if rule.startswith(value[:-1])]
        else:
            named.append(value)
    return Q(matched__overlap=named) if named else Q(pk__in=[])


def _incident(values: Values) -> Q:
    numbers = [int(digits) for value in values if (digits := value.lower().removeprefix("inc-")[:18]).isdecimal()]
    return Q(Exists(Membership.objects.filter(attempt=OuterRef("pk"), incident__in=numbers)))


def _assignee(values: Values) -> Q:
    members = Membership.objects.filter(attempt=OuterRef("pk"))
    found = Q(Exists(members.filter(incident__assignee__username__in=[value for value in values if value != NOBODY])))
    if NOBODY in values:
        found |= ~Q(Exists(members.filter(incident__assignee__isnull=False)))
    return found


_CONDITIONS: dict[str, Callable[[Values], Q]] = {
    "domain": _in("domain"),
    "sub_domain": _in("sub_domain"),
    "outcome": _in("outcome"),
    "status": _in("triage_state"),
    "verdict": _in("verdict_status"),
    "cluster": _cluster,
    "user": _or_prefix("user"),
    "queue": _or_prefix("queue"),
    "workload": _workload,
    "node": _node,
    "on": lambda values: Q(nodes__overlap=values),
    "rule": _or_prefix("rule"),
    "matched": _matched,
    "missing": lambda values: Q(missing__overlap=values),
    "incident": _incident,
    "assignee": _assignee,
}


def _as_list(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else [str(item) for item in value]


def printable_value(value: str) -> str:
    """Without control characters (Postgres refuses NUL) and without surrounding space; at most 300 characters."""
    return "".join(character for character in str(value) if character.isprintable()).strip()[:300]


def read_moment(value: Any) -> datetime | None:
    """An ISO date or time; UTC where it names no zone. None when it is none."""
    if not value:
        return None
    try:
        moment = parse_datetime(str(value)) or datetime.fromisoformat(str(value))
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
