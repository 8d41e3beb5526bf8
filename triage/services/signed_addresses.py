"""The last part of an address that whoever has it may open: `id.signature`. The signature covers the row's nonce and
the site's secret key, so that neither the database nor the key alone gives it away.
"""

from __future__ import annotations

import hmac
import re

from django.core import signing
from django.utils.crypto import salted_hmac

_WORD = re.compile(r"([0-9a-z]{1,13})\.([A-Za-z0-9_-]{32})")


def word_of(salt: str, pk: int, nonce: str) -> str:
    """The word for a row; `salt` tells kinds of addresses apart."""
    return f"{_base36(pk)}.{_sign(salt, _base36(pk), nonce)}"


def pk_of(word: str) -> int | None:
    """Which row a word claims to be of; whether it is, `is_genuine` says."""
    match = _WORD.fullmatch(word)
    pk = int(match[1], 36) if match else None
    return pk if pk is not None and pk < 2**63 else None


def is_genuine(salt: str, word: str, pk: int | None, nonce: str | None) -> bool:
    """Whether a word was given out for a row. Takes as long for a row that isn't there."""
    made = word_of(salt, pk or 0, nonce or "")
    return hmac.compare_digest(made.encode(), word.encode("utf-8", "replace")) and nonce is not None


def _sign(salt: str, pk: str, nonce: str) -> str:
    digest = salted_hmac(salt, f"{pk}:{nonce}", algorithm="sha256").digest()[:24]
    return signing.b64_encode(digest).decode()


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits or "0"
