"""Which rows of each model a sight holds: the one place that says so.

A model without an entry is the system's: only who sees everything sees its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db.models import BigIntegerField, Exists, F, Func, Model, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from triage.access.sight import Sight

Rule = Callable[[Sight], Q]

IN_SERVICE = ("node.drained", "node.returned")
"""What is told of a node to all who see something of its cluster."""
ABOUT_TWO = (
    "incident.merged", "incident.unmerged", "incident.split", "incident.not_same", "incident.may_be_same",
    "incident.added", "incident.put_back",
)  # fmt: skip
"""Events of an incident that name another one."""


def visible(model: type[Model], sight: Sight) -> Q:
    """The condition for rows of `model`."""
    rule = RULES.get(model._meta.model_name or "")
    return rule(sight) if rule is not None else Q(pk__in=[])


def narrowed(query: QuerySet[Any], sight: Sight) -> QuerySet[Any]:
    """The rows of `query` that are seen."""
    return query if sight.everything else query.filter(visible(query.model, sight))


# --- parts ------------------------------------------------------------------------------------------------------------


def place(sight: Sight, cluster: str = "cluster", queue: str = "queue") -> Q:
    """For rows that have a cluster and a queue of their own."""
    found = Q(**{f"{cluster}__in": sorted(sight.clusters)}) if sight.clusters else Q(pk__in=[])
    for number in sorted({cluster_id for cluster_id, _ in sight.queues}):
        names = {name for cluster_id, name in sight.queues if cluster_id == number}
        some = Q(**{f"{queue}__in": sorted(name for name in names if not name.endswith("*"))})
        for name in sorted(name for name in names if name.endswith("*")):
            some |= Q(**{f"{queue}__startswith": name[:-1]})
        found |= Q(**{cluster: number}) & some
    return found


def patterns(sight: Sight) -> list[str]:
    """The same for `Incident.places`, as patterns of LIKE: `3/%`, `3/pretrain`."""
    found = [f"{cluster}/%" for cluster in sorted(sight.clusters)]
    for cluster, name in sorted(sight.queues):
        begun = name.removesuffix("*")
        escaped = begun.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
        found.append(f"{cluster}/{escaped}" + ("%" if begun != name else ""))
    return found


class _EachLike(Func):
    """Whether each item of an array is like one of the patterns, and there is an item."""

    template = (
        "(%(places)s <> '{}' AND NOT EXISTS (SELECT FROM unnest(%(places)s) AS place "
        "WHERE NOT place LIKE ANY (%(patterns)s)))"
    )
    conditional = True

    def as_sql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:
        places, like = self.get_source_expressions()
        places_sql, places_params = compiler.compile(places)
        like_sql, like_params = compiler.compile(like)
        sql = self.template % {"places": places_sql, "patterns": like_sql}
        return sql, [*places_params, *places_params, *like_params]


def _model(name: str) -> Any:
    return apps.get_model("triage", name)


def _rows(name: str, sight: Sight, key: Any) -> Exists:
    """Whether the row of `name` with this key is seen."""
    return Exists(_model(name)._base_manager.order_by().filter(visible(_model(name), sight), pk=key))


def of(field: str, name: str) -> Rule:
    """For rows that belong to one of another model."""
    return lambda sight: Q(_rows(name, sight, OuterRef(f"{field}_id")))


def of_all(*fields: tuple[str, str]) -> Rule:
    """For rows that may belong to several: all that are there must be seen, and one must be there."""

    def rule(sight: Sight) -> Q:
        found, none = Q(), Q()
        for field, name in fields:
            missing = Q(**{f"{field}__isnull": True})
            found &= missing | Q(_rows(name, sight, OuterRef(f"{field}_id")))
            none &= missing
        return found & ~none

    return rule


def _incident(sight: Sight) -> Q:
    like = Value(patterns(sight), output_field=ArrayField(TextField()))
    return Q(_EachLike(F("places"), like)) if patterns(sight) else Q(pk__in=[])


def _event(sight: Sight) -> Q:
    of_subjects = of_all(("attempt", "attempt"), ("incident", "incident"))(sight)
    others = Q()
    for key in ("source", "target", "other"):
        number = Cast(KeyTextTransform(key, OuterRef("payload")), BigIntegerField())
        others &= ~Q(payload__has_key=key) | Q(_rows("incident", sight, number))
    of_nodes = Q(attempt__isnull=True, incident__isnull=True) & (
        Q(cluster__in=sorted(sight.clusters)) | Q(cluster__in=sorted(sight.some_clusters), kind__in=IN_SERVICE)
    )
    return (of_subjects & (~Q(kind__in=ABOUT_TWO) | others)) | of_nodes


def _discovery(sight: Sight) -> Q:
    """Who sees a whole cluster: what a search says may name any job of it."""
    clusters = _model("cluster")._base_manager.order_by().filter(pk__in=sorted(sight.clusters))
    return Q(Exists(clusters.filter(name=OuterRef("cluster"))))


RULES: dict[str, Rule] = {
    "attempt": place,
    "attemptnode": place,
    "workload": place,
    "cluster": lambda sight: Q(pk__in=sorted(sight.some_clusters)),
    "gpu": lambda sight: Q(cluster__in=sorted(sight.some_clusters)),
    "collection": of("attempt", "attempt"),
    "stream": of("attempt", "attempt"),
    "observation": of("attempt", "attempt"),
    "discovery": _discovery,
    "recollection": of("attempt", "attempt"),
    "diagnosis": of("attempt", "attempt"),
    "diagnosisnode": of("diagnosis", "diagnosis"),
    "verdict": of("attempt", "attempt"),
    "incident": _incident,
    "incidentkey": of("incident", "incident"),
    "ticket": of("incident", "incident"),
    "membership": of_all(("attempt", "attempt"), ("incident", "incident")),
    "notthesame": of_all(("low", "incident"), ("high", "incident")),
    "comment": of_all(("attempt", "attempt"), ("incident", "incident")),
    "commentrevision": of("comment", "comment"),
    "notification": of_all(("attempt", "attempt"), ("incident", "incident"), ("comment", "comment")),
    "sharelink": of_all(("attempt", "attempt"), ("incident", "incident")),
    "shareopening": of("share", "sharelink"),
    "timelineevent": _event,
    "announcement": of("event", "timelineevent"),
    "delivery": of_all(("attempt", "attempt"), ("incident", "incident")),
}


def rules_of(models: Iterable[type[Model]]) -> dict[str, bool]:
    """For each model whether it has a rule. For tests."""
    return {str(model._meta.model_name): str(model._meta.model_name) in RULES for model in models}
