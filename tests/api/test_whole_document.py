"""schemathesis over the whole document against the running server with a real database: no 5xx, nothing undocumented.

A few hundred examples; EXAMPLES=200 tries so many on each operation.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import schemathesis
from django.contrib.auth.models import User
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.triage.conftest import MakeAttempt
from triage.api.views.docs import document
from triage.services.tokens import create_token

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = int(os.environ.get("EXAMPLES", "10"))
OPERATIONS = sorted(
    operation["operationId"] for operations in document()["paths"].values() for operation in operations.values()
)


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_no_call_has_an_answer_that_the_document_doesnt_tell(
    live_server: Any, transactional_db: None, diagnosed: MakeAttempt, settings: Any, operation_id: str
) -> None:
    settings.FAULTLINE_API_RATE = 0
    _, secret = create_token(User.objects.create_user("ada"), "fuzz", ["read", "ingest", "write"])
    known = diagnosed().pk
    schema = schemathesis.openapi.from_dict(document())
    schema.config.update(base_url=live_server.url)
    operation = schema.find_operation_by_id(operation_id)

    @given(case=operation.as_strategy())
    @hypothesis_settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def run(case: Any) -> None:
        for name, value in case.path_parameters.items():
            if name in ("attempt_id", "incident_id") and isinstance(value, int) and value % 2 == 0:
                case.path_parameters[name] = known
        if "wait" in (case.query or {}):
            case.query.pop("wait")
        response = case.call(headers={"Authorization": f"Bearer {secret}"})
        case.validate_response(response, checks=CHECKS)

    run()
