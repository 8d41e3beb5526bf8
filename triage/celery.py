"""The Celery application: `celery -A triage.celery worker`, `celery -A triage.celery beat`."""

from __future__ import annotations

import logging.config
from typing import Any

from celery import Celery, signals
from django.conf import settings

from triage import broker, env, logs

env.load_settings("celery")
broker.use()
app = Celery("faultline")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["triage"])

_ASKED_FOR = "faultline_request"
"""Header of a message: the request that a task was asked for in."""


@signals.setup_logging.connect
def _set_up_logging(**_: Any) -> None:
    """As settings say; with a receiver Celery sets nothing up itself."""
    logging.config.dictConfig(settings.LOGGING)
    logging.captureWarnings(True)


@signals.before_task_publish.connect
def _pass_request_on(headers: dict[str, Any], **_: Any) -> None:
    if "request_id" in logs.current():
        headers[_ASKED_FOR] = logs.current()["request_id"]


@signals.task_prerun.connect
def _begin_task(task: Any, task_id: str, **_: Any) -> None:
    logs.begin(request_id=task.request.get(_ASKED_FOR), task=task.name, task_id=task_id)


@signals.task_postrun.connect
def _end_task(**_: Any) -> None:
    logs.begin()
