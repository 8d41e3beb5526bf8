"""Named decoders that add captures to a signal before a table is asked (`decode: NAME` in a rule)."""

from __future__ import annotations

import re
from collections.abc import Callable

_WORDS = re.compile(r"0x([0-9a-fA-F]{1,8})")


def nvlink5(text: str, captures: dict[str, str]) -> dict[str, str]:
    """NVLink 5 error words of Xid 144-150: `subcode` is bits 25..20 of the first word, `status` the second word.

    Source: NVIDIA Xid catalogue, NVLink 5 decoding. Only NETIR_LINK_EVT uses sub-codes other than 0.
    """
    words = _WORDS.findall(text)
    if len(words) < 2:
        return {}
    return {"subcode": str((int(words[0], 16) >> 20) & 0x3F), "status": f"0x{int(words[1], 16):08x}"}


DECODERS: dict[str, Callable[[str, dict[str, str]], dict[str, str]]] = {"nvlink5": nvlink5}
