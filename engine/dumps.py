"""Flight-recorder dumps (PyTorch NCCL): one rank's last collectives, from pickle or JSON of any version.

Dumps are written by anyone: only plain containers are admitted, and of these only what is looked at is kept, each
value bounded in type and size.
"""

from __future__ import annotations

import io
import json
import pickle  # nosec B403: a class of our own that finds no globals
import re
from typing import Any

import msgspec

from engine.lines import whole
from engine.model import Stream

MAX_DUMP = 256 * 2**20
MAX_ENTRIES = 200_000
MAX_RANKS = 1_000_000
_MAX_SIZES = 64
"""Numbers of a collective's input sizes that are kept."""
MAX_NUMBERS = 4_000_000
"""Sizes, and ranks of groups, that are kept of a dump: a pickle may name one list any number of times."""


class DumpError(ValueError):
    """A flight-recorder dump cannot be read."""


class Call(msgspec.Struct, gc=False):
    """A collective, or a point-to-point call, of one rank: a large job's dumps hold millions."""

    group: str
    op: str
    seq: int
    """-1 when it is not told."""
    p2p_seq: int
    is_p2p: bool
    state: str
    sizes: str
    """Its input sizes as JSON."""
    created_ns: int


class Dump(msgspec.Struct):
    """The last collectives of one rank."""

    rank: int
    stream: Stream
    entries: list[Call]
    groups: dict[str, list[int]]
    """process group name -> its global ranks"""
    last: dict[str, int]
    """process group name -> last enqueued sequence number"""
    issued: dict[str, dict[int, Call]]
    """process group name -> sequence number -> the collective that the rank issued under it last"""


_InPython: Any = pickle._Unpickler


def _refused(unpickler: Any) -> None:
    raise DumpError("holds what is not a plain container")


class _Plain(_InPython):  # type: ignore[misc]
    """Admits plain containers, numbers and strings only.

    The unpickler in Python, not the one in C: that one grows its memo to any index that the bytes name (gigabytes for a
    few bytes of LONG_BINPUT). It takes about twice the time.
    """

    _REFUSED = (pickle.BYTEARRAY8, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)
    """BYTEARRAY8 makes its buffer before it has read a byte; the members of sets are hashed, as a key is."""
    dispatch = _InPython.dispatch | {code[0]: _refused for code in _REFUSED}

    def load_setitem(self) -> None:
        _check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        _check_keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        _check_keys(self.stack[::2])
        super().load_dict()

    dispatch |= {pickle.SETITEM[0]: load_setitem, pickle.SETITEMS[0]: load_setitems, pickle.DICT[0]: load_dict}

    def find_class(self, module: str, name: str) -> Any:
        raise DumpError(f"holds {module}.{name}, which is not a plain container")

    def persistent_load(self, _pid: Any) -> Any:
        raise DumpError("holds a reference to something outside")

    def get_extension(self, code: int) -> Any:
        raise DumpError(f"holds extension {code}, which is not a plain container")


def _check_keys(keys: list[Any]) -> None:
    """Strings and usual numbers. To hash deep tuples takes the stack of C; large numbers may all have one hash."""
    for key in keys:
        if type(key) is not str and not (type(key) is int and -(2**63) <= key < 2**63):
            raise DumpError("holds a key that is neither a string nor a usual number")


def load_dump(content: bytes) -> Any:
    """A dump as plain containers. Raises DumpError."""
    if len(content) > MAX_DUMP:
        raise DumpError(f"{len(content)} bytes is more than {MAX_DUMP}")
    try:
        if content[:1] in (b"{", b"["):
            return json.loads(content)
        return _Plain(io.BytesIO(content)).load()
    except DumpError:
        raise
    except RecursionError:
        raise DumpError("nested too deeply") from None
    except Exception as error:
        raise DumpError(" ".join(str(error).split()) or type(error).__name__) from None


def read_dump(document: Any, stream: Stream) -> Dump:
    """What a dump says. Raises DumpError."""
    if isinstance(document, list):  # the first version was the bare list of entries
        document = {"entries": document}
    if not isinstance(document, dict):
        raise DumpError("is not a mapping")
    rank = document.get("rank", stream.rank)
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < MAX_RANKS:
        raise DumpError("tells no rank, neither inside nor in its name")
    listed = document.get("entries")
    allowed = _Allowance()
    raw = [e for e in (listed if isinstance(listed, list) else [])[-MAX_ENTRIES:] if isinstance(e, dict)]
    entries = [_call(entry, allowed) for entry in raw]
    groups = _groups(document.get("pg_config"), allowed)
    last: dict[str, int] = {}
    issued: dict[str, dict[int, Call]] = {}
    for call in entries:
        if not call.is_p2p:
            last[call.group] = max(last.get(call.group, 0), call.seq)
            issued.setdefault(call.group, {})[call.seq] = call
    named = {name.split("/")[0]: name for name in reversed(groups)}
    status = document.get("pg_status")
    for key, state in status.items() if isinstance(status, dict) else []:
        enqueued = number(state.get("last_enqueued_collective")) if isinstance(state, dict) else -1
        name = named.get(_said(key))
        if name and enqueued >= 0:
            last[name] = max(last.get(name, 0), enqueued)
    return Dump(rank, stream, entries, groups, last, issued)


class _Allowance:
    """How many numbers a dump may still hold, and each text of it once."""

    def __init__(self) -> None:
        self._left = MAX_NUMBERS
        self._said: dict[str, str] = {}

    def take(self, numbers: int) -> None:
        self._left -= numbers
        if self._left < 0:
            raise DumpError(f"holds more than {MAX_NUMBERS} sizes and ranks")

    def once(self, text: str) -> str:
        return self._said.setdefault(text, text)


def _call(raw: dict[Any, Any], allowed: _Allowance) -> Call:
    """One entry of the dump. Its sequence number was called `seq_id` in version 1."""
    group = raw.get("process_group")
    parts = [_said(part) for part in group[:2]] if isinstance(group, (list, tuple)) else []
    parts = parts or [_said(raw.get("pg_id", 0))]
    sizes = _sizes(raw.get("input_sizes"))
    allowed.take(sum(len(part) + 1 if isinstance(part, list) else 1 for part in sizes))
    return Call(
        group=allowed.once(_group_name(parts[0], parts[1] if len(parts) > 1 else "")),
        op=allowed.once(_said(raw.get("profiling_name"))),
        seq=number(raw.get("collective_seq_id", raw.get("seq_id"))),
        p2p_seq=number(raw.get("p2p_seq_id")),
        is_p2p=raw.get("is_p2p") is True,
        state=allowed.once(_said(raw.get("state"))),
        sizes=allowed.once(json.dumps(sizes, separators=(",", ":"))),
        created_ns=number(raw.get("time_created_ns")),
    )


def _groups(config: Any, allowed: _Allowance) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for key, group in config.items() if isinstance(config, dict) else []:
        if isinstance(group, dict):
            ranks = group.get("ranks")
            allowed.take(len(ranks) // 8 if isinstance(ranks, str) else 0)  # it must be searched, whatever it holds
            listed = re.findall(r"\d+", ranks) if isinstance(ranks, str) else ranks if isinstance(ranks, list) else []
            allowed.take(len(listed))
            numbers = [rank for one in listed[:MAX_RANKS] if (rank := whole(one)) is not None]
            found[_group_name(_said(group.get("name", key)), _said(group.get("desc", "")))] = numbers
    return found


def number(value: Any) -> int:
    """A counter as it can be; -1 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else -1


def _said(value: Any) -> str:
    return (
        value[:200] if isinstance(value, str) else str(value) if isinstance(value, int) and number(value) >= 0 else ""
    )


def _sizes(value: Any) -> list[Any]:
    """``[[65536], [3, 4]]``: lists of numbers, no deeper."""
    found: list[Any] = []
    for part in value[:_MAX_SIZES] if isinstance(value, (list, tuple)) else []:
        found.append([number(n) for n in part[:_MAX_SIZES]] if isinstance(part, (list, tuple)) else number(part))
    return found


def _group_name(name: str, desc: str) -> str:
    return f"{name}/{desc}" if desc and desc not in ("undefined", name) else name
