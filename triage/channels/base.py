"""What every channel takes and gives. Pure Python: no database, no settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from connectors.reach import Place, Reach, reach_of


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is told. It holds no line of any log: channels reach people who may not read logs."""

    news: str
    """opened, repeated, regressed, settled, unattributed or test."""
    thread: str
    """What belongs together: incident-118."""
    title: str
    """One line."""
    lines: tuple[str, ...] = ()
    """Plain sentences, the most important first."""
    url: str = ""
    """Where to read on; empty when the site's own address is not configured."""
    at: str
    """When it happened; RFC 3339, UTC."""
    since: str = ""
    """When the thread's first failure ended; RFC 3339, UTC."""
    settled: bool = False
    """Whether nothing of this thread is wrong any more."""
    facts: Mapping[str, str | int | float | Sequence[str] | None] = {}
    """For programs: domain, sub_domain, rule, outcome, nodes, clusters, workload, attempts, severity, status ..."""

    def text(self) -> str:
        """Title, sentences and address as plain text."""
        return "\n".join(filter(None, (self.title, *self.lines, self.url)))


class Receipt(msgspec.Struct, frozen=True):
    """That the receiver took a message; `name` is the receiver's own for it, by which later ones join its thread."""

    name: str = ""


class ChannelError(Exception):
    """A message was not taken. One line that says what to change, without secrets."""

    def __init__(self, message: str, *, permanent: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.permanent = permanent
        """Trying again can't help."""
        self.retry_after = retry_after
        """Seconds that the receiver asks to wait."""


class ChannelConfigError(ValueError):
    """A channel's configuration can't be used; `key` names what is wrong with it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Channel(Protocol):
    """A way out."""

    def send(self, message: Message, delivery: str, first: str) -> Receipt:
        """Delivers a message. `delivery` is its id, the same at every try; `first` the receipt of the thread's first
        message, or empty. Raises ChannelError.
        """


def receivers_reach(private_hosts: Sequence[str]) -> Reach:
    """Where receivers may be: public hosts, and these."""
    return reach_of(private_hosts, "FAULTLINE_PRIVATE_HOSTS", frozenset({Place.PUBLIC}))


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What the installation gives every channel."""

    sender: str = "faultline@localhost"
    """E-mail address that mail comes from."""
    site: str = ""
    """The site's own address, for names that must be unique in the world."""
    seconds: float = 20.0
    """Time limit of one delivery."""
    reach: Reach = receivers_reach(())
    """Where receivers may be."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a channel's configuration says, as its form shows it."""

    name: str
    label: str
    hint: str = ""
    required: bool = False
    secret: bool = False
    """A reference: env:NAME or file:PATH."""
    many: bool = False
    """A list; in the form parted by commas or new lines."""


def read_config(keys: Sequence[Key], config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with every key, checked: texts, lists of texts, Secret for references.

    Raises ChannelConfigError, which never repeats a value that may be a secret.
    """
    from connectors.base import ConfigError
    from connectors.secrets import Secret

    unknown = sorted(set(config) - {key.name for key in keys})
    if unknown:
        raise ChannelConfigError(unknown[0], "This key is not known.")
    values: dict[str, Any] = {}
    for key in keys:
        value = config.get(key.name) or ([] if key.many else "")
        if key.many:
            if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
                raise ChannelConfigError(key.name, f"{key.label}: must be a list of texts.")
        elif not isinstance(value, str) or any(ord(letter) < 32 for letter in value):
            raise ChannelConfigError(key.name, f"{key.label}: must be one line of text.")
        if key.required and not value:
            raise ChannelConfigError(key.name, f"{key.label}: is missing.")
        if key.secret and value:
            try:
                value = Secret.parse(value, key.label)
            except ConfigError as error:
                raise ChannelConfigError(key.name, f"{error}.") from None
        values[key.name] = value
    return values
