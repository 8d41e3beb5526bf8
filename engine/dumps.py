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


class DumpError(ValueError):
    """A flight-recorder dump cannot be read."""


class Dump(msgspec.Struct):
    """The last collectives of one rank."""

    rank: int
    stream: Stream
    entries: list[dict[str, Any]]
    """The dump's own keys, as far as they are looked at: see `_entry`."""
    groups: dict[str, list[int]]
    """process group name -> its global ranks"""
    last: dict[str, int]
    """process group name -> last enqueued sequence number"""


class _Plain(pickle._Unpickler):
    """Admits plain containers, numbers and strings only.

    The unpickler in Python, not the one in C: that one grows its memo to any index that the bytes name (gigabytes for a
    few bytes of LONG_BINPUT). It takes about twice the time.
    """

    dispatch = {code: load for code, load in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]}
    """BYTEARRAY8 makes its buffer before it has read a byte."""

    def find_class(self, module: str, name: str) -> Any:
        raise DumpError(f"holds {module}.{name}, which is not a plain container")

    def persistent_load(self, _pid: Any) -> Any:
        raise DumpError("holds a reference to something outside")

    def get_extension(self, code: int) -> Any:
        raise DumpError(f"holds extension {code}, which is not a plain container")


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
    entries = [_entry(e) for e in (listed if isinstance(listed, list) else [])[-MAX_ENTRIES:] if isinstance(e, dict)]
    groups = _groups(document.get("pg_config"))
    last: dict[str, int] = {}
    for entry in entries:
        if not entry["is_p2p"]:
            name = entry_group(entry)
            last[name] = max(last.get(name, 0), entry["collective_seq_id"])
    status = document.get("pg_status")
    for key, state in status.items() if isinstance(status, dict) else []:
        enqueued = number(state.get("last_enqueued_collective")) if isinstance(state, dict) else -1
        named = next((n for n in groups if n.split("/")[0] == _said(key)), None)
        if named and enqueued >= 0:
            last[named] = max(last.get(named, 0), enqueued)
    return Dump(rank, stream, entries, groups, last)


def _entry(raw: dict[Any, Any]) -> dict[str, Any]:
    """One collective. Its sequence number was called `seq_id` in version 1."""
    group = raw.get("process_group")
    parts = [_said(part) for part in group[:2]] if isinstance(group, (list, tuple)) else []
    return {
        "process_group": parts or [_said(raw.get("pg_id", 0))],
        "profiling_name": _said(raw.get("profiling_name")),
        "collective_seq_id": number(raw.get("collective_seq_id", raw.get("seq_id"))),
        "p2p_seq_id": number(raw.get("p2p_seq_id")),
        "is_p2p": raw.get("is_p2p") is True,
        "state": _said(raw.get("state")),
        "input_sizes": _sizes(raw.get("input_sizes")),
        "time_created_ns": number(raw.get("time_created_ns")),
    }


def _groups(config: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for key, group in config.items() if isinstance(config, dict) else []:
        if isinstance(group, dict):
            ranks = group.get("ranks")
            listed = re.findall(r"\d+", ranks) if isinstance(ranks, str) else ranks if isinstance(ranks, list) else []
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


def entry_group(entry: dict[str, Any]) -> str:
    """Name of the process group of an entry."""
    group = entry["process_group"]
    return _group_name(group[0], group[1] if len(group) > 1 else "")
