"""Traces reach a collector through request, task, engine and query, and nothing is sent without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from django.conf import settings as project
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.channels.receivers import Receiver, receiver
from tests.triage import cast
from tests.triage.conftest import Fleet, wait_until
from triage.services.bundles import import_bundle


def spans(collector: Receiver) -> list[tuple[str, Any]]:
    """Service and span of everything that was sent, as the protocol's own classes read it."""
    found = []
    for request in collector.requests:
        assert request.path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
            service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
            found += [(service, span) for scope in resource.scope_spans for span in scope.spans]
    return found


def test_a_worker_sends_its_tasks_with_the_engine_and_its_queries_below(
    transactional_db: None, broker: None, data_dir: Path, tmp_path: Path
) -> None:
    with receiver() as collector:
        fleet = Fleet(
            data_dir, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_BSP_SCHEDULE_DELAY="200",
            OTEL_EXPORTER_OTLP_COMPRESSION="none",
        )  # fmt: skip
        try:
            fleet.worker()
            attempt = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt
            engine = wait_until(
                lambda: next((span for _, span in spans(collector) if span.name == "engine.diagnose"), None),
                say=fleet.logs,
            )
            wait_until(lambda: "run/triage.work" in [span.name for _, span in spans(collector)], say=fleet.logs)
        finally:
            fleet.stop()
        sent = spans(collector)
    assert {service for service, _ in sent} == {"faultline-worker"}
    by_id = {span.span_id: span for _, span in sent}
    turn = by_id[engine.parent_span_id]
    assert turn.name == "triage.turn" and by_id[turn.parent_span_id].name == "run/triage.work"
    assert {a.key: a.value.int_value for a in turn.attributes} == {"faultline.attempt": attempt.pk}
    values = {a.key: a.value for a in engine.attributes}
    assert values["faultline.attempt"].int_value == attempt.pk and values["faultline.streams"].int_value == 2
    assert values["faultline.outcome"].string_value == "failed"
    assert any(span.name == "SELECT" and span.trace_id == engine.trace_id for _, span in sent)


def run(code: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.BASE_DIR,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


REQUEST = """
from triage.wsgi import application
from django.test import Client
assert Client(HTTP_HOST="localhost").get("/healthz").status_code == 200
from opentelemetry import trace
flush = getattr(trace.get_tracer_provider(), "force_flush", None)
print(flush and flush())
"""


def test_a_web_server_sends_its_requests() -> None:
    with receiver() as collector:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
        run(REQUEST, **endpoint)
        assert ("faultline-web", "GET healthz") in [(service, span.name) for service, span in spans(collector)]


def test_without_an_endpoint_nothing_is_traced() -> None:
    run("from triage.wsgi import application; from triage import tracing; assert tracing.begin('x') is False")
