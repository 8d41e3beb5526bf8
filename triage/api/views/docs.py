"""The document, and a page that reads it out: no script, nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer

from triage.access.rights import open_to_all


@cache
def document() -> dict[str, Any]:
    """OpenAPI 3.1; the same for everybody."""
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return found


@open_to_all
@require_safe
def schema(request: HttpRequest) -> HttpResponse:
    """As YAML; as JSON with `?format=json` or when JSON is asked for."""
    as_json = request.GET.get("format") == "json" or "json" in request.headers.get("Accept", "")
    renderer = OpenApiJsonRenderer() if as_json else OpenApiYamlRenderer()
    kind = "application/vnd.oai.openapi+json" if as_json else "application/vnd.oai.openapi"
    return HttpResponse(renderer.render(document(), renderer_context={}), content_type=f"{kind}; charset=utf-8")


@open_to_all
@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """Every operation with its parameters, bodies and answers."""
    found = document()
    operations = [
        _operation(path, method, operation)
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for operation in operations:
        groups.setdefault(operation["tag"], []).append(operation)
    return render(request, "api/docs.html", {"groups": groups, "about": found["info"], "section": "api"})


def _operation(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    words, _, scope = operation.get("description", "").rpartition("Token scope: ")
    return {
        "tag": operation["tags"][0],
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "words": words.strip(),
        "scope": scope.strip("."),
        "parameters": [
            {
                "name": p["name"],
                "place": p["in"],
                "about": p.get("description", ""),
                "values": p["schema"].get("enum", []),
            }
            for p in operation.get("parameters", [])
        ],
        "bodies": sorted(operation.get("requestBody", {}).get("content", {})),
        "answers": [
            {"status": status, "about": answer.get("description", ""), "shape": _shape(answer)}
            for status, answer in operation["responses"].items()
        ],
    }


def _shape(answer: dict[str, Any]) -> str:
    for content in answer.get("content", {}).values():
        return str(content.get("schema", {}).get("$ref", "")).rsplit("/", 1)[-1]
    return ""
