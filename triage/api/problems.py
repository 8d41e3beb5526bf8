"""Errors as application/problem+json (RFC 9457), with every field that is wrong named."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from django.db import InterfaceError, OperationalError
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler, set_rollback

from triage.room import IN_WORDS, RETRY_SECONDS, has_no_room

logger = logging.getLogger(__name__)
PROBLEM = "application/problem+json"


class Problem(exceptions.APIException):
    """An answer that is an error. `fields`: what is wrong with which field; `more`: further members of the answer."""

    def __init__(
        self, status: int, detail: str, fields: dict[str, str] | None = None, headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(detail)
        self.status_code = status
        self.fields, self.more, self.headers = fields or {}, more, headers or {}


class Invalid(Problem):
    """400: `Invalid(limit="a whole number from 1 to 200")`."""

    def __init__(self, **fields: str) -> None:
        super().__init__(400, _sentence(fields.items()), fields)


def problem(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler. None for what is no answer but a bug."""
    if isinstance(error, (OperationalError, InterfaceError)):
        set_rollback()
        logger.warning("the database was not reached: %s", error)
        error = Problem(503, "The database can't be reached at the moment.", headers={"Retry-After": "5"})
    elif has_no_room(error):
        set_rollback()
        logger.error("no room: %s", error)
        error = Problem(503, IN_WORDS, headers={"Retry-After": str(RETRY_SECONDS)})
    response = exception_handler(error, context)
    if response is None:
        return None
    status = response.status_code
    if isinstance(error, Problem):
        fields, more = list(error.fields.items()), error.more
        detail = str(error.detail)
        for name, value in error.headers.items():
            response[name] = value
    elif isinstance(error, exceptions.ValidationError):
        fields, more = list(_fields(error.detail)), {}
        detail = _sentence(fields)
    else:
        fields, more = [], {}
        detail = str(getattr(error, "detail", HTTPStatus(status).phrase))
    response.data = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **({"errors": [{"field": name, "message": message} for name, message in fields]} if fields else {}),
        **more,
    }
    response.content_type = PROBLEM
    return response


def _fields(detail: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(detail, dict):
        for name, part in detail.items():
            own = "" if name == "non_field_errors" else str(name)
            yield from _fields(part, ".".join(filter(None, [path, own])))
    elif isinstance(detail, list) and any(isinstance(part, (dict, list)) for part in detail):
        for index, part in enumerate(detail):
            if part:
                yield from _fields(part, f"{path}[{index}]")
    elif isinstance(detail, list):
        yield path or "body", " ".join(str(part) for part in detail)
    else:
        yield path or "body", str(detail)


def _sentence(fields: Any) -> str:
    return "; ".join(f"{name}: {message}" for name, message in fields)
