"""The routes of docs/compat.md at the root of a port of their own, and nothing else: those of the resiliency
extension's attribution service, and below /v2/ the sessions.

gunicorn triage.compat.wsgi:application --bind $FAULTLINE_NVRX_BIND
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from triage.wsgi import application as whole

PREFIX = "/compat/nvrx/"
SESSIONS = "/compat/attribution"


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Any path is one below the prefix; one that has it already is taken as it is."""
    path = environ.get("PATH_INFO") or "/"
    if path.startswith("/v2/"):
        environ["PATH_INFO"] = SESSIONS + path
    elif not path.startswith((PREFIX, f"{SESSIONS}/v2/")):
        environ["PATH_INFO"] = PREFIX + path.lstrip("/")
    return whole(environ, start_response)
