"""What every template knows."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from triage.access.roles import Role
from triage.access.viewer import NOBODY, viewer_of
from triage.selectors.notifications import unread_count
from triage.web.undo import offered
from triage.web.zones import Zone

THEMES = ("light", "dark")
THEME_COOKIE = "faultline_theme"
KEYS_COOKIE = "faultline_keys"


def _version() -> str:
    try:
        return version("faultline")
    except PackageNotFoundError:
        return ""


VERSION = _version()


def page(request: HttpRequest) -> dict[str, Any]:
    """Theme and shortcuts as saved, version, time of the page, the initials for the menu, what can be undone."""
    theme = request.COOKIES.get(THEME_COOKIE, "")
    user = getattr(request, "user", None)
    initials = ""
    viewer = viewer_of(user) if user is not None else NOBODY
    if user is not None and user.is_authenticated:
        names = (user.get_full_name() or user.get_username()).split()
        initials = "".join(name[0] for name in names[:2]).upper()
    return {
        "theme": theme if theme in THEMES else "",
        "keys": request.COOKIES.get(KEYS_COOKIE, "on") != "off",
        "version": VERSION,
        "now": timezone.now(),
        "zone": getattr(request, "zone", None) or Zone(),
        "initials": initials,
        "may": {"respond": viewer.may(Role.RESPONDER), "administer": viewer.may(Role.ADMIN)},
        "undo": SimpleLazyObject(lambda: offered(request)),
        "unread": SimpleLazyObject(lambda: unread_count(user)) if initials else 0,
    }
