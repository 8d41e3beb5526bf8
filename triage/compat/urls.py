"""Addresses under /compat/nvrx/; the same at the root of the port that `triage.compat.wsgi` serves."""

from django.urls import path, re_path

from triage.compat import nvrx

app_name = "compat"
urlpatterns = [
    path("healthz", nvrx.Health.as_view(), name="healthz"),
    path("logs", nvrx.Logs.as_view(), name="logs"),
    path("stats", nvrx.Stats.as_view(), name="stats"),
    path("jobs", nvrx.Jobs.as_view(), name="jobs"),
    path("inflight", nvrx.Inflight.as_view(), name="inflight"),
    path("print", nvrx.Print.as_view(), name="print"),
    re_path(r"^.*\Z", nvrx.Missing.as_view(), name="missing"),
]
