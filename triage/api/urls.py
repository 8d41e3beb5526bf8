"""Addresses under /api/v1/."""

from django.urls import path

from triage.api import views

app_name = "api"
urlpatterns = [
    path("attempts", views.AttemptList.as_view(), name="attempts"),
    path("attempts/<int:attempt_id>", views.AttemptDetail.as_view(), name="attempt"),
    path("attempts/<int:attempt_id>/diagnosis", views.AttemptDiagnosis.as_view(), name="diagnosis"),
    path("bundles", views.Bundles.as_view(), name="bundles"),
]
