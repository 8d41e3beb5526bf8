"""Addresses of the pages. Fragments have addresses of their own, which never get into the history."""

from django.urls import path

from triage.web.views import account, attempts, evidence, failures, upload

urlpatterns = [
    path("", failures.failures, name="failures"),
    path("failures/news/", failures.news, name="failures-news"),
    path("attempts/<int:pk>/", attempts.attempt, name="attempt"),
    path("attempts/<int:pk>/progress/", attempts.progress, name="attempt-progress"),
    path("attempts/<int:pk>/retry/", attempts.retry, name="attempt-retry"),
    path("attempts/<int:pk>/diagnosis.json", attempts.as_json, name="attempt-json"),
    path("attempts/<int:pk>/diagnosis.md", attempts.as_markdown, name="attempt-markdown"),
    path("attempts/<int:pk>/evidence/", evidence.first, name="evidence-first"),
    path("attempts/<int:pk>/evidence/<str:ref>/", evidence.item, name="evidence"),
    path("attempts/<int:pk>/evidence/<str:ref>/moment/", evidence.moment, name="evidence-moment"),
    path("attempts/<int:pk>/streams/<path:name>", evidence.stream, name="stream"),
    path("attempts/<int:pk>/lines/<path:name>", evidence.lines, name="stream-lines"),
    path("attempts/<int:pk>/raw/<path:name>", evidence.raw, name="stream-raw"),
    path("upload/", upload.upload, name="upload"),
    path("preferences/", account.preferences, name="preferences"),
    path("sign-in/", account.SignIn.as_view(), name="login"),
    path("sign-out/", account.SignOut.as_view(), name="logout"),
]
