"""All addresses: health, API, admin, pages."""

from django.contrib import admin
from django.urls import include, path

from triage import health
from triage.api.views import docs
from triage.metrics.views import metrics

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("api/v1/", include("triage.api.urls")),
    path("compat/nvrx/", include("triage.compat.urls")),
    path("compat/attribution/v2/", include("triage.compat.session_urls")),
    path("api/schema", docs.schema, name="api-schema"),
    path("api/docs", docs.docs, name="api-docs"),
    path("admin/", admin.site.urls),
    path("", include("triage.web.urls")),
]
