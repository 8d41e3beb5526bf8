"""What there is: nodes that were blamed, rules in force."""

from __future__ import annotations

from typing import Any

import msgspec
from django.db.models import Count, Func, Max
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from engine.ruleset import Ruleset
from triage.api import schemas
from triage.api.base import ApiView, number_of
from triage.api.openapi import FILTERS, PROBLEMS
from triage.api.permissions import READ
from triage.api.problems import Invalid, Problem
from triage.api.serializers import time_text
from triage.selectors.attempts import filtered_attempts
from triage.selectors.query import read_query
from triage.selectors.rules import ruleset


class NodeList(ApiView):
    """Nodes."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="nodes_list",
        parameters=[p for p in FILTERS if p.name not in ("cursor", "order")],
        responses={200: schemas.NodePage, **PROBLEMS},
    )
    def get(self, request: Request) -> Response:
        """Nodes that the answers of the matching attempts blame, most often blamed first."""
        limit = number_of(request, "limit", 50, 1, 200)
        query = read_query(request.query_params)
        if query.errors:
            raise Invalid(q=" ".join(query.errors))
        found = filtered_attempts(query.to_filter(me=request.user.get_username())).exclude(blamed_nodes=[])
        rows = (
            found.annotate(name=Func("blamed_nodes", function="unnest"))
            .values("name", "cluster__name")
            .annotate(times=Count("pk"), last=Max("sort_at"))
            .order_by("-times", "name", "cluster__name")[:limit]
        )
        nodes = [
            {
                "node": row["name"],
                "cluster": row["cluster__name"],
                "blamed": row["times"],
                "last_at": time_text(row["last"]),
            }
            for row in rows
        ]
        return Response({"nodes": nodes})


class RuleList(ApiView):
    """Rules."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="rules_list",
        parameters=[OpenApiParameter("domain", str)],
        responses={200: schemas.RuleList, **PROBLEMS},
    )
    def get(self, request: Request) -> Response:
        """The rules in force, by id."""
        loaded, domain = _ruleset(), request.query_params.get("domain")
        rules = [
            {"id": r.id, "title": r.title, "role": str(r.role), "domain": r.domain, "sub_domain": r.sub_domain}
            for r in sorted(loaded.rules, key=lambda rule: rule.id)
            if not domain or r.domain == domain
        ]
        return Response({"ruleset": loaded.fingerprint, "rules": rules})


class OneRule(ApiView):
    """One rule."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="rule_read", responses={200: {"type": "object", "required": ["id", "title"]}, **PROBLEMS}
    )
    def get(self, request: Request, rule_id: str) -> Response:
        """The rule, whole."""
        found = next((rule for rule in _ruleset().rules if rule.id == rule_id), None)
        if found is None:
            raise Problem(404, f"There is no rule {rule_id}.")
        plain: dict[str, Any] = msgspec.to_builtins(found)
        return Response(plain)


def _ruleset() -> Ruleset:
    loaded = ruleset()
    if loaded is None:
        raise Problem(503, "The rule packs can't be read; the worker's log says why.")
    return loaded
