"""Log text made fit for a page: nothing that moves the cursor, turns the reading direction or hides gets through.

Escaping for HTML is the template's work and comes after this. Colour sequences are dropped, because they carry no
words; every other control, bidirectional or invisible character becomes a visible mark, because it may matter.
"""

from __future__ import annotations

import re
from typing import Any

ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]{0,2000}\x1b\\"  # DCS, SOS, PM, APC
    r"|\x9b[0-?]*[ -/]*[@-~]"  # the one-byte CSI
)
_HIDDEN = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff]"
)


def _mark(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"\u27e8U+{code:04X}\u27e9"


def printable(text: str) -> str:
    """`text` without colour sequences, with every invisible character shown as a mark. Tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(_mark, ANSI.sub("", text))


def readable(text: str) -> str:
    """The same for a text of several lines; line ends become line feeds."""
    return "\n".join(printable(line) for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def printable_tree(value: Any) -> Any:
    """The same for every string inside lists and dictionaries: a whole diagnosis at once. Keys too."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): printable_tree(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable_tree(item) for item in value]
    return value


def decode(raw: bytes) -> str:
    """Bytes of one line as text: UTF-8, with bytes that are none shown as `\\xff`; the line end is dropped."""
    return raw.rstrip(b"\r\n").decode("utf-8", "backslashreplace")


def cut(text: str, limit: int) -> tuple[str, int]:
    """The first `limit` characters and how many were left out."""
    return (text, 0) if len(text) <= limit else (text[:limit], len(text) - limit)
