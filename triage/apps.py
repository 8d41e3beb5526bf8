"""The one Django application of Faultline."""

from django.apps import AppConfig


class TriageConfig(AppConfig):
    name = "triage"
    verbose_name = "Faultline"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from triage import checks  # noqa: F401 - registers them
        from triage.access import audit, single_sign_on  # noqa: F401 - they listen
