"""SQL written by hand that reads attempts. Selectors, pages and API have no cursor of their own: a test says so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from triage.access import sight

_SEEN = re.compile(r"\{seen:(\w+)\}")


def seen_rows(sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Runs a SELECT. `{seen:alias}` stands for the condition that a row of triage_attempt under this alias is seen; an
    SQL without one is refused.
    """
    if not _SEEN.search(sql):
        raise ValueError("the SQL doesn't say {seen:alias} of the attempts that it reads")
    seen = sight.current()
    values = dict(params)
    if not seen.everything:
        values |= {"seen_clusters": sorted(seen.clusters)}
        for index, (cluster, queue) in enumerate(sorted(seen.queues)):
            values |= {f"seen_cluster_{index}": cluster, f"seen_queue_{index}": queue.removesuffix("*")}
    with connection.cursor() as cursor:
        cursor.execute(_SEEN.sub(lambda found: _condition(found[1], seen), sql), values)
        return list(cursor.fetchall())


def rows_over(sql: str, queries: Sequence[QuerySet[Any]], params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Runs a SELECT over queries of models, which know what is seen: `{0}` and so on stand for them, in this order and
    before any other parameter.
    """
    if not queries:
        raise ValueError("an SQL over no query reads what nobody has checked")
    found = [query.query.get_compiler(query.db, elide_empty=False).as_sql() for query in queries]
    values = [value for _, own in found for value in own]
    with connection.cursor() as cursor:
        cursor.execute(sql.format(*(own for own, _ in found)), [*values, *params])
        return list(cursor.fetchall())


def _condition(alias: str, seen: sight.Sight) -> str:
    if seen.everything:
        return "TRUE"
    parts = [f"{alias}.cluster_id = ANY(%(seen_clusters)s)"]
    for index, (_, queue) in enumerate(sorted(seen.queues)):
        same = f"{alias}.queue = %(seen_queue_{index})s"
        if queue.endswith("*"):
            same = f"starts_with({alias}.queue, %(seen_queue_{index})s)"
        parts.append(f"({alias}.cluster_id = %(seen_cluster_{index})s AND {same})")
    return f"({' OR '.join(parts)})"
