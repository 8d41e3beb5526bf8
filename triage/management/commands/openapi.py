"""`manage.py openapi > docs/openapi.yaml`: the API's document as it is checked in."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from drf_spectacular.renderers import OpenApiYamlRenderer

from triage.api.views.docs import document


class Command(BaseCommand):
    help = "Prints the OpenAPI document."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(OpenApiYamlRenderer().render(document(), renderer_context={}).decode(), ending="")
