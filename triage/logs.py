"""The log: what each line says besides its message, and how it is written. Pure Python, no Django.

A line names the request, the task and the attempt that it belongs to, wherever it is written. Nothing that anybody
sends makes a line of its own, in either format: line ends and everything invisible become visible marks.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from triage import env
from triage.text import printable, readable

FORMATS = ("line", "json")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
KEYS = ("request_id", "task", "task_id", "attempt", "source", "user", "method", "route", "status", "ms")
"""What a line may say besides, in this order."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:=@/+-]{0,127}")
_about: ContextVar[Mapping[str, Any]] = ContextVar("about", default={})  # noqa: B039 - never changed in place


def about(**facts: Any) -> None:
    """What follows is about this: in the lines of this request or task, and of tasks that it asks for."""
    _about.set({**_about.get(), **{key: value for key, value in facts.items() if value not in (None, "")}})


def begin(**facts: Any) -> None:
    """The same, with nothing of what was before."""
    _about.set({})
    about(**facts)


def current() -> Mapping[str, Any]:
    """What is done here is about."""
    return _about.get()


def request_id(sent: str | None) -> str:
    """The id that a proxy or client gave a request, when it can stand in headers and logs; else a new one."""
    return sent if sent and _REQUEST_ID.fullmatch(sent) else secrets.token_hex(16)


def config() -> dict[str, Any]:
    """For `logging.config.dictConfig`, from FAULTLINE_LOG_FORMAT and FAULTLINE_LOG_LEVEL. Raises SettingError."""
    shape = env.one_of("FAULTLINE_LOG_FORMAT", "line", FORMATS)
    level = env.one_of("FAULTLINE_LOG_LEVEL", "INFO", LEVELS, str.upper)
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"about": {"()": "triage.logs.About"}},
        "formatters": {"line": {"()": "triage.logs.Line"}, "json": {"()": "triage.logs.Json"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": shape, "filters": ["about"]}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": {"kombu": {"level": "WARNING"}, "gunicorn.error": {"level": level, "propagate": True}},
    }


class About(logging.Filter):
    """Gives each line what it is about, once, when it is written."""

    def filter(self, record: logging.LogRecord) -> bool:
        found = {**_about.get(), **{key: value for key in KEYS if (value := record.__dict__.get(key)) is not None}}
        task = record.__dict__.get("data")  # of Celery's own lines in a worker's main process
        if isinstance(task, dict) and "id" in task and "name" in task:
            found = {"task": task["name"], "task_id": task["id"], **found}
        record.about = {key: found[key] for key in KEYS if key in found}
        return True


def _message(record: logging.LogRecord) -> str:
    """Without the words that open a share link or a feed: whoever reads the log may not."""
    text = record.getMessage()
    match = getattr(getattr(record, "request", None), "resolver_match", None)
    token = str(match.kwargs.get("token", "")) if match is not None else ""
    return text.replace(token, "...") if token else text


class Line(logging.Formatter):
    """For people. Further lines, of errors, are indented, so that none can be taken for a line of the log."""

    def format(self, record: logging.LogRecord) -> str:
        facts = " ".join(f"{key}={printable(str(value))}" for key, value in getattr(record, "about", {}).items())
        text = f"{self.formatTime(record)} {record.levelname} {record.name}: {printable(_message(record))}"
        text += f" [{facts}]" if facts else ""
        return "\n    ".join([text, *readable(_error(self, record)).splitlines()])


class Json(logging.Formatter):
    """For programs: one object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
            "pid": record.process,
            **getattr(record, "about", {}),
        }
        error = _error(self, record)
        return json.dumps({**line, "error": error} if error else line, default=str)


def _error(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    parts += [formatter.formatStack(record.stack_info)] if record.stack_info else []
    return "\n".join(parts)
