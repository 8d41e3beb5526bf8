"""Secrets by reference: configuration names where a secret is, never the secret. It is read each time it is used."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from connectors.base import ConfigError, ConnectorError

MAX_BYTES = 64 * 1024
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+", re.DOTALL)


class Secret(msgspec.Struct, frozen=True):
    """`env:NAME` or `file:PATH`. Its repr and str hold the reference alone."""

    reference: str

    @classmethod
    def parse(cls, value: object, where: str) -> Secret:
        """From configuration; `where` names connector and key. Raises ConfigError, which never repeats the value."""
        if not isinstance(value, str) or not _REFERENCE.fullmatch(value):
            raise ConfigError(f"{where}: must be env:NAME or file:PATH, a reference and not the secret itself")
        return cls(value)

    def __str__(self) -> str:
        return self.reference

    def reveal(self) -> str:
        """The secret, as it is now. Raises ConnectorError that names the reference."""
        kind, _, place = self.reference.partition(":")
        if kind == "env":
            value = os.environ.get(place, "")
            if not value:
                raise ConnectorError(f"{self.reference}: the environment variable is not set in this process")
        else:
            try:
                with Path(place).open("rb") as file:
                    content = file.read(MAX_BYTES)
            except OSError as error:
                raise ConnectorError(f"{self.reference}: {error.strerror or 'can not be read'}") from None
            value = content.decode("utf-8", "replace").strip()
            if not value:
                raise ConnectorError(f"{self.reference}: the file is empty")
        if any(ord(letter) < 32 for letter in value):
            raise ConnectorError(f"{self.reference}: holds a line break or control character, so it is no password")
        return value
