"""What people say, also through programs: verdicts, comments, incidents."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from triage.api import schemas
from triage.api.base import MAX_ID, ApiView, attempt_or_404, body_of, incident_or_404
from triage.api.openapi import PROBLEMS
from triage.api.permissions import READ, WRITE
from triage.api.problems import Invalid, Problem
from triage.api.serializers import comment_row, incident_row, time_text, verdict_row
from triage.models import Attempt, Comment, Incident, VerdictKind
from triage.selectors import incident_lists as lists
from triage.selectors import incidents as select
from triage.selectors.attempts import CursorError
from triage.selectors.verdicts import history
from triage.services import comments, incidents, verdicts
from triage.services.quotes import QuoteRefused, read_quote

_FIELDS = {"cause": "sub_domain"}
"""What the page's form calls it -> what the API does."""


class Verdicts(ApiView):
    """What people said of an attempt's diagnoses."""

    scopes = {"GET": READ, "POST": WRITE, "DELETE": WRITE}

    @extend_schema(operation_id="verdicts_list", responses={200: schemas.VerdictList, **PROBLEMS})
    def get(self, request: Request, attempt_id: int) -> Response:
        """Newest first, at most 50."""
        return Response(_verdicts(attempt_id))

    @extend_schema(
        operation_id="verdict_say", request=schemas.NewVerdict, responses={201: schemas.VerdictList, **PROBLEMS}
    )
    def post(self, request: Request, attempt_id: int) -> Response:
        """Confirms or corrects a diagnosis. 409 when somebody else, or a newer diagnosis, came in between."""
        attempt_or_404(attempt_id)
        sent = schemas.NewVerdict(data=request.data)
        sent.is_valid(raise_exception=True)
        return self.once(request, body_of(request), lambda: self._say(request, attempt_id, sent.validated_data))

    def _say(self, request: Request, attempt_id: int, said: dict[str, Any]) -> Response:
        try:
            if said["kind"] == VerdictKind.CONFIRMED:
                verdicts.confirm(attempt_id, request.user, diagnosis_id=said["diagnosis"], seen=said["seen"])
            else:
                if "domain" not in said:
                    raise Invalid(domain="is needed for a correction")
                answer = verdicts.Answer(
                    **{name: said[name] for name in ("domain", "sub_domain", "title", "nodes", "evidence")}
                )
                verdicts.correct(
                    attempt_id, request.user, diagnosis_id=said["diagnosis"], seen=said["seen"], kind=said["kind"],
                    reason=said["reason"], answer=answer,
                )  # fmt: skip
        except verdicts.VerdictRefused as error:
            raise Invalid(**{_FIELDS.get(error.field, error.field): str(error)}) from None
        except verdicts.VerdictConflict as error:
            standing = error.standing.pk if error.standing else None
            raise Problem(409, str(error), {"seen": str(error)}, standing=standing) from None
        return Response(_verdicts(attempt_id), status=201)

    @extend_schema(
        operation_id="verdict_withdraw",
        parameters=[OpenApiParameter("verdict", int, required=True, description="Number of the verdict that stands.")],
        responses={200: schemas.VerdictList, **PROBLEMS},
    )
    def delete(self, request: Request, attempt_id: int) -> Response:
        """Takes the standing verdict back: the diagnosis counts again."""
        attempt_or_404(attempt_id)
        sent = schemas.Withdrawal(data={"verdict": request.query_params.get("verdict")})
        sent.is_valid(raise_exception=True)
        if not verdicts.withdraw(attempt_id, request.user, verdict_id=sent.validated_data["verdict"]):
            raise Problem(409, "That verdict does not stand.", {"verdict": "does not stand"})
        return Response(_verdicts(attempt_id))


class _Comments(ApiView):
    scopes = {"GET": READ, "POST": WRITE}

    def _list(self, subject: Attempt | Incident) -> Response:
        rows = Comment.objects.filter(**_where(subject)).select_related("author").order_by("created_at", "id")[:1000]
        return Response({"comments": [comment_row(row) for row in rows]})

    def _add(self, request: Request, subject: Attempt | Incident) -> Response:
        sent = schemas.NewComment(data=request.data)
        sent.is_valid(raise_exception=True)
        return self.once(request, body_of(request), lambda: self._keep(request, subject, sent.validated_data))

    def _keep(self, request: Request, subject: Attempt | Incident, said: dict[str, Any]) -> Response:
        try:
            own = subject.pk if isinstance(subject, Attempt) else None
            quotes = [read_quote(form, own) for form in said["quotes"]]
            comment = comments.add_comment(subject, request.user, said["text"], quotes=quotes)
        except QuoteRefused as error:
            raise Invalid(quotes=str(error)) from None
        except comments.CommentRefused as error:
            raise Invalid(text=str(error)) from None
        return Response(comment_row(comment), status=201)


class AttemptComments(_Comments):
    """Comments on an attempt."""

    @extend_schema(operation_id="attempt_comments_list", responses={200: schemas.CommentList, **PROBLEMS})
    def get(self, request: Request, attempt_id: int) -> Response:
        """Oldest first."""
        return self._list(attempt_or_404(attempt_id))

    @extend_schema(
        operation_id="attempt_comment_add", request=schemas.NewComment, responses={201: schemas.CommentRow, **PROBLEMS}
    )
    def post(self, request: Request, attempt_id: int) -> Response:
        """Says something, in the name of the token's user."""
        return self._add(request, attempt_or_404(attempt_id))


class IncidentComments(_Comments):
    """Comments on an incident."""

    @extend_schema(operation_id="incident_comments_list", responses={200: schemas.CommentList, **PROBLEMS})
    def get(self, request: Request, incident_id: int) -> Response:
        """Oldest first."""
        return self._list(incident_or_404(incident_id))

    @extend_schema(
        operation_id="incident_comment_add", request=schemas.NewComment, responses={201: schemas.CommentRow, **PROBLEMS}
    )
    def post(self, request: Request, incident_id: int) -> Response:
        """Says something, in the name of the token's user."""
        return self._add(request, incident_or_404(incident_id))


class IncidentList(ApiView):
    """Incidents."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="incidents_list",
        parameters=[
            OpenApiParameter("state", str, enum=list(lists.STATES)),
            OpenApiParameter("domain", str),
            OpenApiParameter("assignee", int, description="Number of the user."),
            OpenApiParameter("cursor", str),
        ],
        responses={200: schemas.IncidentPage, **PROBLEMS},
    )
    def get(self, request: Request) -> Response:
        """The last to fail first."""
        params = request.query_params
        state = params.get("state", "open")
        if state not in lists.STATES:
            raise Invalid(state=f"must be one of {', '.join(lists.STATES)}")
        assignee = params.get("assignee")
        if assignee is not None and not (assignee.isascii() and assignee.isdigit() and int(assignee[:20]) <= MAX_ID):
            raise Invalid(assignee="must be the number of a user")
        domain = params.get("domain", "").replace("\x00", "")
        try:
            narrowed = lists.IncidentFilter(state=state, assignee=int(assignee) if assignee else None, domain=domain)
            page = lists.list_incidents(narrowed, cursor=params.get("cursor"))
        except (CursorError, OverflowError):
            raise Invalid(cursor="not one that this API gave") from None
        return Response({"incidents": [incident_row(row) for row in page.incidents], "older": page.older})


class OneIncident(ApiView):
    """One incident."""

    scopes = {"GET": READ, "PATCH": WRITE}

    @extend_schema(operation_id="incident_read", responses={200: schemas.IncidentDetail, **PROBLEMS})
    def get(self, request: Request, incident_id: int) -> Response:
        """With its nodes and newest attempts."""
        incident_or_404(incident_id)
        return Response(_incident(incident_id))

    @extend_schema(
        operation_id="incident_change",
        request=schemas.IncidentChange,
        responses={200: schemas.IncidentDetail, **PROBLEMS},
    )
    def patch(self, request: Request, incident_id: int) -> Response:
        """Sets the status or the title. 409 when the status is no longer `seen_status`."""
        incident_or_404(incident_id)
        sent = schemas.IncidentChange(data=request.data)
        sent.is_valid(raise_exception=True)
        wanted = sent.validated_data
        if "status" in wanted and "seen_status" not in wanted:
            raise Invalid(seen_status="is needed with status")
        try:
            if "status" in wanted:
                incidents.set_status(incident_id, request.user, wanted["status"], seen=wanted["seen_status"])
            if "title" in wanted:
                incidents.rename(incident_id, request.user, wanted["title"])
        except incidents.IncidentConflict as error:
            raise Problem(409, str(error), {"seen_status": str(error)}) from None
        except incidents.IncidentRefused as error:
            raise Problem(400, str(error)) from None
        return Response(_incident(incident_id))


def _verdicts(attempt_id: int) -> dict[str, Any]:
    attempt = attempt_or_404(attempt_id)
    return {"status": attempt.verdict_status, "verdicts": [verdict_row(verdict) for verdict in history(attempt)]}


def _where(subject: Attempt | Incident) -> dict[str, Any]:
    return {"attempt": subject} if isinstance(subject, Attempt) else {"incident": subject}


def _incident(incident_id: int) -> dict[str, Any]:
    detail = select.incident_detail(incident_id)
    nodes = [{"node": row.node, "times": row.times, "last_at": time_text(row.last_at)} for row in detail.nodes]
    return {
        **incident_row(detail.incident),
        "merged_into": detail.incident.merged_into.pk if detail.incident.merged_into else None,
        "nodes": nodes,
        "newest_attempts": [attempt.pk for attempt in detail.attempts],
    }
