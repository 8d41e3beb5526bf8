"""Where a server is and how one identifies oneself there, as an administrator configures it."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Mapping
from typing import Any

import msgspec

from connectors.base import ConfigError, ConnectorError
from connectors.reach import ANYWHERE, Reach
from connectors.secrets import Secret
from connectors.values import checked_url, number, text

REQUEST_SECONDS = 60.0


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is and how one identifies oneself there. Holds references to secrets, no secrets."""

    what: str
    """The server as people call it, e.g. Loki."""
    url: str
    headers: dict[str, str] = {}
    username: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    request_seconds: float = REQUEST_SECONDS
    reach: Reach = ANYWHERE
    """Where the server may be."""

    KEYS = (
        "url", "tenant", "username", "password", "token", "ca_file", "client_cert", "client_key", "request_seconds",
    )  # fmt: skip

    @classmethod
    def from_config(cls, what: str, name: str, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> Endpoint:
        """From a connector's plain values (KEYS). Raises ConfigError."""
        where = f"connector {name}"
        url = checked_url(config.get("url"), f"{where}: url")
        texts = {key: text(config, key, where) for key in ("username", "ca_file", "client_cert", "client_key")}
        secrets = {key: Secret.parse(config[key], f"{where}: {key}") for key in ("password", "token") if key in config}
        if ("password" in secrets) != (texts["username"] is not None):
            raise ConfigError(f"{where}: username and password belong together")
        if "token" in secrets and "password" in secrets:
            raise ConfigError(f"{where}: token and password exclude each other")
        if (texts["client_cert"] is None) != (texts["client_key"] is None):
            raise ConfigError(f"{where}: client_cert and client_key belong together")
        for key in ("ca_file", "client_cert", "client_key"):
            value = texts[key]
            texts[key] = value.removeprefix("file:") if value else None
            if value and not url.startswith("https:"):
                raise ConfigError(f"{where}: {key}: needs an https url")
        tenant = text(config, "tenant", where)
        if tenant and not re.fullmatch(r"[\x21-\x7e]+", tenant):
            raise ConfigError(f"{where}: tenant: must be printable ASCII without spaces")
        seconds = number(config, "request_seconds", REQUEST_SECONDS, where)
        headers = {"X-Scope-OrgID": tenant} if tenant else {}
        return cls(
            what=what,
            url=url,
            headers=headers,
            request_seconds=seconds,
            username=texts["username"],
            password=secrets.get("password"),
            token=secrets.get("token"),
            ca_file=texts["ca_file"],
            client_cert=texts["client_cert"],
            client_key=texts["client_key"],
            reach=reach,
        )

    def identity(self) -> dict[str, str]:
        """The Authorization header, with secrets as they are now. Raises ConnectorError."""
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token.reveal()}"}
        if self.password is not None:
            pair = f"{self.username}:{self.password.reveal()}".encode()
            return {"Authorization": "Basic " + base64.b64encode(pair).decode()}
        return {}

    def tls(self) -> ssl.SSLContext:
        """The system's authorities, or `ca_file`; with the client's certificate. Raises ConnectorError."""
        file = self.ca_file
        try:
            context = ssl.create_default_context(cafile=file)
            file = self.client_cert
            if self.client_cert and self.client_key:
                context.load_cert_chain(self.client_cert, self.client_key, password="")  # nosec B106: no prompt
        except (OSError, ssl.SSLError, ValueError) as error:
            why = getattr(error, "strerror", None) or getattr(error, "reason", None) or "not a certificate"
            raise ConnectorError(f"{self.what}: {file} (or its key) can not be used: {why}") from None
        return context
