"""The OpenAPI document: what drf-spectacular can't know by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from engine.model import json_schema
from triage.api import schemas
from triage.selectors.attempts import Order
from triage.selectors.query import FIELDS

_BINARY = {"type": "string", "format": "binary"}
RAW_BODY: dict[str, Any] = {"application/octet-stream": _BINARY, "text/plain": {"type": "string"}}
CONTRACT = OpenApiResponse({"$ref": "#/components/schemas/Diagnosis"}, "The contract `faultline.diagnosis/1`.")
WAIT = OpenApiParameter("wait", int, description="Seconds to wait for a triage that is going on, at most 60.")
_STATUSES = {
    400: "Something sent is wrong; `errors` names the fields.",
    401: "No valid token.",
    403: "The token has not the scope, or the CSRF token is missing.",
    404: "There is no such thing.",
    405: "Not with this method.",
    409: "It conflicts with what is there by now.",
    410: "It takes no more parts.",
    411: "This server needs a Content-Length.",
    413: "Too large; the limit is told.",
    415: "Not this content type or encoding.",
    422: "The Idempotency-Key was used for another call.",
    429: "Too many calls; Retry-After tells when.",
    503: "The database or the rules can't be read at the moment.",
}
PROBLEMS: dict[Any, Any] = {
    (status, "application/problem+json"): OpenApiResponse(schemas.ProblemDetails, about)
    for status, about in _STATUSES.items()
}
FILTERS = [
    OpenApiParameter("q", str, description="The search language of the page: `domain:hardware -user:ada xid:79`."),
    *(
        OpenApiParameter(field.name, str, many=True, explode=True, description=f"{field.about}; can be repeated.")
        for field in FIELDS.values()
    ),
    OpenApiParameter("text", str, description="Words that must all occur."),
    OpenApiParameter("order", str, enum=[order.value for order in Order]),
    OpenApiParameter("limit", int, description="At most 200."),
    OpenApiParameter("cursor", str, description="`older` or `newer` of another page."),
]


class Schema(AutoSchema):
    """Tags by the first word of the path; parameters in the path are whole numbers from 0."""

    def get_tags(self) -> list[str]:
        words = [word for word in self.path.removeprefix("/api/v1/").split("/") if not word.startswith("{")]
        return [words[-1] if words else "api"]


class TokenScheme(OpenApiAuthenticationExtension):
    target_class = "triage.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": "manage.py api_token create USER NAME --scope read"}


class SessionScheme(OpenApiAuthenticationExtension):
    target_class = "triage.api.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}


def only_v1(endpoints: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Leaves out what isn't the API proper."""
    return [endpoint for endpoint in endpoints if endpoint[0].startswith("/api/v1/")]


def complete(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Adds the contract's own JSON Schema, and the operations' scopes."""
    contract = json_schema()
    components = result["components"]["schemas"]
    definitions = contract["$defs"]
    for name, definition in definitions.items():
        components[_own(name)] = _moved(definition)
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            scopes = _scopes(path, method)
            if scopes:
                operation["description"] = f"{operation.get('description', '')}\n\nToken scope: {scopes}.".strip()
    result["components"]["schemas"] = dict(sorted(components.items()))
    return result


def _own(name: str) -> str:
    return name if name == "Diagnosis" else f"Contract{name}"


def _moved(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reference(item) if key == "$ref" else _moved(item) for key, item in value.items()}
    return [_moved(item) for item in value] if isinstance(value, list) else value


def _reference(ref: str) -> str:
    return "#/components/schemas/" + _own(ref.rsplit("/", 1)[-1])


def _scopes(path: str, method: str) -> str:
    from django.urls import resolve

    concrete = re.sub(
        r"\{(\w+)\}", lambda found: "1" if found[1].endswith("_id") and found[1] != "rule_id" else "x", path
    )
    view = getattr(resolve(concrete).func, "view_class", None)
    return " or ".join(getattr(view, "scopes", {}).get(method.upper(), ()))
