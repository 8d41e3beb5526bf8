"""Reading settings from the environment. Pure Python, no Django."""

from __future__ import annotations

import importlib
import os
import re
import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit


class SettingError(ValueError):
    """A setting can't be used; one line that names it."""


WRONG_SETTING = 3
"""Exit code of a process with a wrong setting. With this one gunicorn ends; with others it starts workers again."""


def load_settings(program: str, code: int = WRONG_SETTING) -> None:
    """Reads the settings now, before anything else needs them: what is wrong ends the process with one line. Each entry
    point begins with it.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "triage.settings")
    try:
        importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"])
    except SettingError as error:
        print(f"{program}: {error}", file=sys.stderr)
        raise SystemExit(code) from None


def flag(name: str, default: bool = False) -> bool:
    """A yes/no variable: 1, true, yes, on (any case) is yes."""
    value = os.environ.get(name)
    return default if value in (None, "") else str(value).strip().lower() in ("1", "true", "yes", "on")


def items(name: str, default: str = "", separator: str = ",") -> list[str]:
    """A list variable; empty parts are dropped."""
    return [part.strip() for part in os.environ.get(name, default).split(separator) if part.strip()]


def number(name: str, default: int, *, least: int = 0) -> int:
    """A whole-number variable."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", value) or int(value) < least:
        raise SettingError(f"{name}: {value!r} is not a whole number from {least} on")
    return int(value)


def one_of(name: str, default: str, known: Sequence[str], fold: Callable[[str], str] = str) -> str:
    """A variable that has one of a few values; `fold` writes it as they are written."""
    value = fold(os.environ.get(name, "").strip()) or default
    if value not in known:
        raise SettingError(f"{name}: {value!r} is not one of {', '.join(known)}")
    return value


def pairs(name: str, known: Sequence[str] = ()) -> dict[str, str]:
    """A variable like `gpu-oncall=responder, gpu-admins=admin`; values are of `known`, when that is given."""
    found = {}
    for part in items(name):
        key, equals, value = (piece.strip() for piece in part.rpartition("="))
        if not equals or not key or not value:
            raise SettingError(f"{name}: {part!r} is not written as group=value")
        if known and value not in known:
            raise SettingError(f"{name}: {value!r} of {key!r} is not one of {', '.join(known)}")
        found[key] = value
    return found


def oidc_apps() -> list[dict[str, Any]]:
    """The provider of FAULTLINE_OIDC_URL, as django-allauth takes it; none when no URL is set."""
    url = os.environ.get("FAULTLINE_OIDC_URL", "").strip().rstrip("/")
    if not url:
        return []
    parts = _address("FAULTLINE_OIDC_URL", url)
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise SettingError("FAULTLINE_OIDC_URL: begins with https://; http:// only on this machine")
    secret_file = os.environ.get("FAULTLINE_OIDC_CLIENT_SECRET_FILE", "").strip()
    secret = os.environ.get("FAULTLINE_OIDC_CLIENT_SECRET", "").strip()
    if secret_file:
        try:
            secret = Path(secret_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"FAULTLINE_OIDC_CLIENT_SECRET_FILE: {_said(error)}") from None
    client = os.environ.get("FAULTLINE_OIDC_CLIENT_ID", "").strip()
    if not client or not secret:
        raise SettingError("FAULTLINE_OIDC_URL needs FAULTLINE_OIDC_CLIENT_ID and FAULTLINE_OIDC_CLIENT_SECRET")
    how = one_of("FAULTLINE_OIDC_TOKEN_AUTH", "", ("", "client_secret_basic", "client_secret_post"))
    scope = os.environ.get("FAULTLINE_OIDC_SCOPE", "").split() or ["openid", "profile", "email", "groups"]
    name = os.environ.get("FAULTLINE_OIDC_NAME", "").strip() or "single sign-on"
    return [
        {
            "provider_id": "sso",
            "name": name,
            "client_id": client,
            "secret": secret,
            "settings": {"server_url": url, "scope": scope, **({"token_auth_method": how} if how else {})},
        }
    ]


def database(url: str) -> dict[str, Any]:
    """A `postgresql://user:password@host:port/name?option=value` URL as Django's DATABASES entry.

    A host that is a folder (a Unix socket) is given as `?host=/path`.
    """
    parts = _address("DATABASE_URL", url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise SettingError(f"DATABASE_URL: only postgresql:// is supported, not {parts.scheme or url.split(':')[0]!r}")
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    host = options.pop("host", None) or unquote(parts.hostname or "")
    port = options.pop("port", None) or parts.port or ""
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "faultline",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": str(port),
        "OPTIONS": options,
    }


def broker(url: str) -> str:
    """A `redis://` or `rediss://` URL: what kombu and redis-py both take."""
    parts = _address("REDIS_URL", url)
    if parts.scheme not in ("redis", "rediss"):
        raise SettingError(f"REDIS_URL: begins with redis:// or rediss://, not {parts.scheme or url.split(':')[0]!r}")
    if not re.fullmatch(r"/?[0-9]*", parts.path):
        raise SettingError(f"REDIS_URL: {parts.path!r} is not the number of a database, like /0")
    return url


def _address(name: str, url: str) -> SplitResult:
    """The parts of a URL. An error says nothing of it that might be a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # read only when it is asked for
    except ValueError:
        raise SettingError(f"{name}: is no URL: host or port can't be read; write : / @ of a password as %XX") from None
    return parts


def _said(error: OSError | UnicodeDecodeError) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else "is no text"


def keepalive(*, idle: int, interval: int, count: int) -> dict[int, int]:
    """TCP options, as far as this system has them: after so many seconds of silence a connection is probed, and after
    so many probes without an answer it is dead.
    """
    wanted = {"TCP_KEEPIDLE": idle, "TCP_KEEPINTVL": interval, "TCP_KEEPCNT": count}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


def secret_key(path: Path) -> str:
    """The key kept in `path`, made on first use; for development and the demo. Production sets SECRET_KEY."""
    try:
        return path.read_text().strip() if path.exists() else _new_secret_key(path)
    except OSError as error:
        raise SettingError(f"SECRET_KEY: is not set, and can't be kept in a file: {_said(error)}") from None


def _new_secret_key(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    draft.touch(mode=0o600)
    draft.write_text(secrets.token_urlsafe(64))
    try:
        os.link(draft, path)  # the first of several processes wins, the others read its key
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text().strip()
