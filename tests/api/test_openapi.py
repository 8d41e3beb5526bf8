"""The document that is checked in, the page that reads it out, and the server against the document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings as project
from django.test import Client

from triage.api.views.docs import document

DOCUMENT = Path(project.BASE_DIR) / "docs" / "openapi.yaml"


def test_the_document_that_is_checked_in_is_current(client: Client) -> None:
    """Renew it with: manage.py openapi > docs/openapi.yaml"""
    served = client.get("/api/schema")
    assert served.content.decode() == DOCUMENT.read_text(encoding="utf-8")
    assert yaml.safe_load(served.content)["openapi"] == "3.1.0"
    assert client.get("/api/schema?format=json").json() == yaml.safe_load(served.content)


def test_every_reference_leads_somewhere() -> None:
    known = set(document()["components"]["schemas"])

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            found = {value["$ref"].rsplit("/", 1)[-1]} if isinstance(value.get("$ref"), str) else set()
            return found.union(*map(references, value.values()))
        return set().union(*map(references, value)) if isinstance(value, list) else set()

    assert references(document()["paths"]) <= known
    assert references(document()["components"]) <= known


@pytest.mark.django_db
def test_the_page_has_every_operation_and_no_script_of_its_own(client: Client) -> None:
    page = client.get("/api/docs")
    assert page.status_code == 200
    text = page.content.decode()
    for path, operations in document()["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in text
    assert "<style" not in text and "onclick" not in text
    assert "script-src 'self'" in page["Content-Security-Policy"]
