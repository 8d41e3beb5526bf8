"""Addresses under /compat/attribution/v2/; the same below /v2/ on the port that `triage.compat.wsgi` serves."""

from django.urls import path

from triage.compat import sessions

app_name = "sessions"
urlpatterns = [
    path("healthz", sessions.healthz, name="healthz"),
    path("sessions", sessions.Sessions.as_view(), name="sessions"),
    path("sessions/<int:attempt_id>", sessions.OneSession.as_view(), name="session"),
    path("sessions/<int:attempt_id>/observations", sessions.Observations.as_view(), name="observations"),
    path("sessions/<int:attempt_id>/attribute", sessions.Attribute.as_view(), name="attribute"),
    path("sessions/<int:attempt_id>/verdict", sessions.OneVerdict.as_view(), name="verdict"),
]
