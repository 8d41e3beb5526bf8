"""`/metrics`: for Prometheus with the token of FAULTLINE_METRICS_TOKEN, for administrators in their browser."""

from __future__ import annotations

import os
import secrets

import prometheus_client
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, multiprocess

from triage.access.rights import open_to_all
from triage.access.roles import Role
from triage.access.sight import all_seeing
from triage.access.viewer import viewer_of
from triage.metrics.standing import Standing


@open_to_all
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Everything, in the text format of Prometheus."""
    if not _may_read(request):
        answer = HttpResponse("A token is needed: see docs/monitoring.md\n", status=401, content_type="text/plain")
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer
    return HttpResponse(exposition(standing=True), content_type=prometheus_client.CONTENT_TYPE_LATEST)


@all_seeing
def exposition(*, standing: bool) -> bytes:
    """Counters of this process, or of all that share PROMETHEUS_MULTIPROC_DIR; with what stands, if asked for."""
    counted = prometheus_client.generate_latest(counters())
    if not standing:
        return counted
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Standing())
    return counted + prometheus_client.generate_latest(registry)


def counters() -> CollectorRegistry:
    """Where the counters are: shared, or this process's own."""
    if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        return prometheus_client.REGISTRY
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


def _may_read(request: HttpRequest) -> bool:
    token = settings.FAULTLINE_METRICS_TOKEN
    sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if token and secrets.compare_digest(sent.encode(), token.encode()):
        return True
    return viewer_of(request.user).may(Role.ADMIN)
