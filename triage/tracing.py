"""Traces through web server, workers and engine, sent by OTLP when an endpoint is configured; nothing otherwise.

The variables are OpenTelemetry's own: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, OTEL_TRACES_SAMPLER,
OTEL_SERVICE_NAME (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from opentelemetry import trace
from opentelemetry.trace import Span

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def is_configured() -> bool:
    """Whether there is somewhere to send traces to."""
    return any(os.environ.get(name) for name in _ENDPOINTS)


@cache
def begin(service: str) -> bool:
    """Traces requests, tasks and queries of this process from now on. False, and nothing done, without an endpoint."""
    if not is_configured():
        return False
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.celery import CeleryInstrumentor
    from opentelemetry.instrumentation.django import DjangoInstrumentor
    from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    os.environ.setdefault("OTEL_SERVICE_NAME", service)
    provider = TracerProvider(resource=Resource.create())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    DjangoInstrumentor().instrument()
    CeleryInstrumentor().instrument()  # type: ignore[no-untyped-call]
    PsycopgInstrumentor().instrument()
    return True


@contextmanager
def span(name: str, **attributes: str | int | float) -> Iterator[Span]:
    """A part of the work worth seeing in a trace; costs next to nothing where nothing is traced."""
    with trace.get_tracer("faultline").start_as_current_span(name) as current:
        for key, value in attributes.items():
            current.set_attribute(f"faultline.{key}", value)
        yield current
