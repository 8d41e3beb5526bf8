"""The attribution service of the NVIDIA resiliency extension: its routes, bodies, codes and answers.

docs/compat.md says what of it is known, followed and guessed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.utils import timezone
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from triage.access.sight import EVERYTHING, look_as
from triage.access.viewer import viewer_of
from triage.api.authentication import TokenAuthentication
from triage.compat.answers import in_words, pending, result_of
from triage.models import Attempt, Scope, SubmittedCycle, SubmittedLog, TriageState
from triage.selectors.attempts import get_attempt
from triage.services import submitted_logs as logs
from triage.services.observations import ask_for_diagnosis
from triage.services.submitted_logs import LogRefused
from triage.services.waiting import wait_for_triage

logger = logging.getLogger(__name__)
INTENTS = ("track_only", "progressive", "terminal")
STATUS = {
    "invalid_path": 400,
    "invalid_parameter": 400,
    "not_regular": 400,
    "empty_file": 400,
    "outside_root": 403,
    "not_readable": 403,
    "logs_dir_not_readable": 403,
    "not_found": 404,
    "job_limit_reached": 503,
    "internal_error": 500,
}
_MAX_LISTED = 10_000


class KnownClient(BasePermission):
    """A token of a user who sees everything, that may send and read; none where the network is said to be trusted."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not settings.FAULTLINE_NVRX_OPEN:
            scopes = set(getattr(request.auth, "scopes", ()))
            # any file below the root can be named, of whichever team
            if not {Scope.INGEST, Scope.READ} <= scopes or not viewer_of(request.user).sight.everything:
                return False
        look_as(EVERYTHING)
        return True


class NvrxView(APIView):
    """Errors have the other service's shape; its clients send no session."""

    authentication_classes = [TokenAuthentication]
    permission_classes = [KnownClient]
    parser_classes = [JSONParser]
    throttle_classes: list[Any] = []
    schema = None

    def handle_exception(self, exc: Exception) -> Any:
        if isinstance(exc, LogRefused):
            return _error(STATUS.get(exc.code, 400), exc.code, str(exc))
        if isinstance(exc, ParseError):
            return _error(422, "invalid_parameter", "the body is not valid JSON")
        if isinstance(exc, APIException):
            response = _error(exc.status_code, str(exc.status_code), str(exc.detail))
            if exc.status_code == 401:
                response["WWW-Authenticate"] = 'Basic realm="faultline"'
            return response
        logger.error("an attribution client's call failed", exc_info=exc)
        return _error(500, "internal_error", "internal server error")


class Health(NvrxView):
    """GET /healthz: open to everybody."""

    permission_classes = []
    authentication_classes = []

    def get(self, request: Request) -> HttpResponse:
        """Whether files can be read at all."""
        issues = [] if settings.FAULTLINE_NVRX_ROOT else ["FAULTLINE_NVRX_ROOT is not set: no log can be named"]
        return _json(request, {"status": "degraded" if issues else "ok", "backend": "faultline", "issues": issues})


class Logs(NvrxView):
    """POST and GET /logs."""

    def post(self, request: Request) -> HttpResponse:
        """Submits a log: tracked; read as far as it is; or, when the job is over, diagnosed."""
        body = _body(request)
        path = logs.checked_path(body["log_path"], must_exist=False)
        intent = body["analysis_intent"]
        log = logs.submit_log(
            path,
            user=body["user"],
            job_id=body["job_id"],
            cycle_id=body["cycle_id"],
            terminal=intent == "terminal",
        )
        reading = logs.read_log(log)
        analyzed = 0
        if intent != "track_only" and path.exists():
            for file in reading.files:
                for run in logs.runs_of(file):
                    if run.end > run.start:
                        attempt = logs.take_in(log, run, actor=_actor(request))
                        if intent == "terminal":
                            ask_for_diagnosis(attempt.pk, reason="the job is over", actor=_actor(request))
                analyzed += 1
        answer = {
            "submitted": True,
            "normalized_path": str(path),
            "mode": reading.mode,
            "logs_dir": reading.logs_dir,
            "sched_restarts": reading.sched_restarts,
            "files_analyzed": analyzed if reading.mode == "splitlog" else 0,
        }
        return _json(request, answer)

    def get(self, request: Request) -> HttpResponse:
        """The result of a log's last run, or of the one that `file` and `wl_restart` name."""
        query = request.query_params
        if not query.get("log_path"):
            raise _Unprocessable("log_path: field required")
        index, wait = _index(query.get("wl_restart")), _flag(query.get("wait", "true"))
        path = logs.checked_path(query["log_path"], must_exist=True)
        log = SubmittedLog.objects.filter(path=str(path)).first()
        if log is None:
            raise LogRefused("not_found", "attempt has not been submitted")
        if not path.stat().st_size:
            raise LogRefused("empty_file", "file is empty")
        SubmittedLog.objects.filter(pk=log.pk).update(asked_at=timezone.now())
        reading = logs.read_log(log)
        run, count = _chosen(reading, query.get("file"), index)
        if run is None:
            return _json(request, {**pending(""), **_place(reading, None, 0)})
        attempt = logs.take_in(log, run, actor=_actor(request))
        if wait:
            ask_for_diagnosis(attempt.pk, reason="asked by an attribution client", actor=_actor(request))
            wait_for_triage(attempt.pk, settings.FAULTLINE_NVRX_WAIT_SECONDS)
        return _json(request, {**_result(get_attempt(attempt.pk), waited=wait), **_place(reading, run, count)})


class Print(NvrxView):
    """GET /print."""

    def get(self, request: Request) -> HttpResponse:
        """The first 4 KiB of a file, as text."""
        if not request.query_params.get("log_path"):
            raise _Unprocessable("log_path: field required")
        path = logs.checked_path(request.query_params["log_path"], must_exist=True)
        return HttpResponse(logs.preview(path), content_type="text/plain; charset=utf-8")


class Stats(NvrxView):
    """GET /stats."""

    def get(self, request: Request) -> HttpResponse:
        """Counts."""
        states = _states()
        answer = {
            "backend": "faultline",
            "jobs": len(states),
            "jobs_terminated": SubmittedLog.objects.filter(terminal=True).count(),
            "files": {"tracked": len(states), "analyzed": sum(state == "completed" for state in states.values())},
        }
        return _json(request, answer)


class Jobs(NvrxView):
    """GET /jobs."""

    def get(self, request: Request) -> HttpResponse:
        """The logs of each job."""
        states = _states()
        jobs: dict[str, list[dict[str, Any]]] = {}
        for log in SubmittedLog.objects.order_by("job_id", "id")[:_MAX_LISTED]:
            row = {
                "cycle_id": log.cycle_id,
                "log_path": log.path,
                "user": log.user,
                "status": states.get(log.pk, "pending"),
            }
            jobs.setdefault(log.job_id or "unknown", []).append(row)
        return _json(request, jobs)


class Inflight(NvrxView):
    """GET /inflight."""

    def get(self, request: Request) -> HttpResponse:
        """Logs that are being diagnosed."""
        states = _states()
        busy = [pk for pk, state in states.items() if state == "in_flight"]
        paths = sorted(SubmittedLog.objects.filter(pk__in=busy).values_list("path", flat=True))
        return _json(request, {"count": len(paths), "paths": paths})


class Missing(NvrxView):
    """Any other address."""

    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """404 in the other service's shape."""
        return _error(404, "404", "not found")

    post = put = patch = delete = get


class _Unprocessable(APIException):
    status_code = 422


def _body(request: Request) -> dict[str, Any]:
    data = request.data
    if not isinstance(data, dict):
        raise _Unprocessable("the body must be a JSON object")
    checks: dict[str, tuple[Any, Callable[[Any], bool]]] = {
        "log_path": (None, lambda value: isinstance(value, str)),
        "user": ("unknown", lambda value: isinstance(value, str)),
        "job_id": (None, lambda value: value is None or isinstance(value, str)),
        "cycle_id": (None, lambda value: value is None or (type(value) is int and 0 <= value < 10**6)),
        "analysis_intent": ("track_only", lambda value: isinstance(value, str)),
    }
    body = {name: data.get(name, default) for name, (default, _) in checks.items()}
    for name, (_, holds) in checks.items():
        if not holds(body[name]):
            raise _Unprocessable(f"{name}: is missing or of the wrong kind")
    body["analysis_intent"] = body["analysis_intent"].strip().lower()
    if body["analysis_intent"] not in INTENTS:
        raise _Unprocessable(f"analysis_intent: must be one of {', '.join(INTENTS)}")
    for name in ("user", "job_id"):
        if body[name]:
            body[name] = "".join(c for c in body[name] if c.isprintable()).strip()
    return body


def _chosen(reading: logs.Reading, file: str | None, index: int | None) -> tuple[logs.Run | None, int]:
    """The run that is asked for, the last without a word, and how many its file has. Raises LogRefused."""
    files = reading.files
    if file is not None and reading.mode == "splitlog":
        files = tuple(path for path in files if path.name == file)
        if not files:
            raise LogRefused("not_found", f"no such file in LOGS_DIR: {file}")
    if not files:
        return None, 0
    if file is None and index is not None and reading.mode == "splitlog":
        # the client asks for cycle N of a job whose runs lie in files of their own
        for one in reversed(files):
            runs = logs.runs_of(one)
            named = next((run for run in runs if run.cycle == index), None)
            if named is not None:
                return named, len(runs)
    runs = logs.runs_of(files[-1])
    if index is None:
        return runs[-1], len(runs)
    chosen = next((run for run in runs if run.index == index), None)
    if chosen is None:
        raise LogRefused("invalid_parameter", f"wl_restart must be below {len(runs)}")
    return chosen, len(runs)


def _result(attempt: Attempt, *, waited: bool) -> dict[str, Any]:
    if attempt.diagnosis is None or attempt.triage_state != TriageState.DONE:
        if attempt.triage_state == TriageState.FAILED:
            return in_words(attempt)
        started = attempt.triage_requested_at is not None
        return pending("timeout" if waited else "", in_flight=started)
    return result_of(attempt)


def _place(reading: logs.Reading, run: logs.Run | None, count: int) -> dict[str, Any]:
    place: dict[str, Any] = {"mode": reading.mode, "wl_restart": run.index if run else 0, "wl_restart_count": count}
    place |= {"fr_dump_path": None, "fr_analysis": None, "llm_merged_summary": None}
    if reading.mode == "splitlog":
        place |= {"sched_restarts": reading.sched_restarts, "log_file": str(run.file) if run else ""}
    return place


def _states() -> dict[int, str]:
    """Log -> pending, in_flight or completed, by its last run."""
    states = dict.fromkeys(SubmittedLog.objects.order_by("pk").values_list("pk", flat=True)[:_MAX_LISTED], "pending")
    rows = SubmittedCycle.objects.filter(log__in=states).order_by("pk")
    for log, state, asked in rows.values_list("log", "attempt__triage_state", "attempt__triage_requested_at"):
        finished = state in (TriageState.DONE, TriageState.FAILED)
        states[log] = "completed" if finished else "in_flight" if asked else "pending"
    return states


def _actor(request: Request) -> Any:
    return request.user if request.user and request.user.is_authenticated else None


def _index(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise _Unprocessable("wl_restart: must be a whole number from 0")
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise _Unprocessable("wait: must be true or false")
    return text.lower() in ("true", "1", "yes", "on")


def _json(request: Request, answer: Any) -> HttpResponse:
    wanted = request.query_params.get("indent", "")
    indent = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < 3 else None
    if indent is None and request.query_params.get("pretty", "").lower() in ("1", "true"):
        indent = 2
    return HttpResponse(json.dumps(answer, indent=indent), content_type="application/json")


def _error(status: int, code: str, message: str) -> HttpResponse:
    body = {"error_code": code, "message": message.lower().rstrip("."), "details": None}
    return HttpResponse(json.dumps(body), status=status, content_type="application/json")
