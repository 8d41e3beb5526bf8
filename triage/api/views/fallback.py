"""An address of the API that there is not is a problem, not a page."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request

from triage.api.base import ApiView
from triage.api.permissions import INGEST_OR_READ
from triage.api.problems import Problem
from triage.models import Scope


class Fallback(ApiView):
    """404 for every method."""

    schema = None
    scopes = dict.fromkeys(("GET", "POST", "PUT", "PATCH", "DELETE"), (*INGEST_OR_READ, Scope.WRITE))

    def get(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raises Problem."""
        raise Problem(404, "There is no such address in this API; /api/docs tells which there are.")

    post = put = patch = delete = get
