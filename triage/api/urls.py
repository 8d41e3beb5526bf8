"""Addresses under /api/v1/."""

from django.urls import path, re_path

from triage.api.views import attempts, catalogue, diagnoses, fallback, observations, people

app_name = "api"
urlpatterns = [
    path("attempts", attempts.AttemptList.as_view(), name="attempts"),
    path("attempts/<int:attempt_id>", attempts.AttemptDetail.as_view(), name="attempt"),
    path("attempts/<int:attempt_id>/observations", observations.ObservationList.as_view(), name="observations"),
    path(
        "attempts/<int:attempt_id>/observations/<path:name>", observations.OneObservation.as_view(), name="observation"
    ),
    path("attempts/<int:attempt_id>/diagnosis", diagnoses.CurrentDiagnosis.as_view(), name="diagnosis"),
    path("attempts/<int:attempt_id>/diagnoses", diagnoses.DiagnosisList.as_view(), name="diagnoses"),
    path(
        "attempts/<int:attempt_id>/diagnoses/<int:diagnosis_id>", diagnoses.OneDiagnosis.as_view(), name="one-diagnosis"
    ),
    path("attempts/<int:attempt_id>/evidence", diagnoses.EvidenceList.as_view(), name="evidence"),
    path("attempts/<int:attempt_id>/evidence/<str:ref>", diagnoses.OneEvidence.as_view(), name="one-evidence"),
    path("attempts/<int:attempt_id>/coverage", diagnoses.Coverage.as_view(), name="coverage"),
    path("attempts/<int:attempt_id>/recommendation", diagnoses.Recommendation.as_view(), name="recommendation"),
    path("attempts/<int:attempt_id>/verdicts", people.Verdicts.as_view(), name="verdicts"),
    path("attempts/<int:attempt_id>/comments", people.AttemptComments.as_view(), name="attempt-comments"),
    path("incidents", people.IncidentList.as_view(), name="incidents"),
    path("incidents/<int:incident_id>", people.OneIncident.as_view(), name="incident"),
    path("incidents/<int:incident_id>/comments", people.IncidentComments.as_view(), name="incident-comments"),
    path("bundles", attempts.Bundles.as_view(), name="bundles"),
    path("nodes", catalogue.NodeList.as_view(), name="nodes"),
    path("rules", catalogue.RuleList.as_view(), name="rules"),
    path("rules/<str:rule_id>", catalogue.OneRule.as_view(), name="rule"),
    path("limits", observations.Limits.as_view(), name="limits"),
    re_path(r"^.*\Z", fallback.Fallback.as_view(), name="fallback"),
]
