"""Bytes of one line -> the message and what its envelopes tell: time, host, pod, rank.

Envelopes are taken off from the outside in, in any nesting: CRI, JSON objects, journal export, syslog RFC 3164 and
5424, dmesg, `srun -l`, torchrun, mpirun, Ray, glog, Python logging, NCCL, kubectl --prefix, docker-compose, Loki.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from engine.clock import Stamp, parse_time, read_stamp

SHOWN = 4_000
"""Characters of a line that are looked at and kept; longer ones are cut."""

_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_HOST = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"

_CRI = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) (?:stdout|stderr) ([FP])(?: |$)")
_SRUN = re.compile(r" {0,6}(\d{1,6}):(?: |(?!\d\d:\d\d))")
"""Never the hour of a time of day."""
_TORCHRUN = re.compile(r"\[(rank|default|node|Rank|trainer)[ _:]?(\d{1,6})\]:? ?")
_MPIRUN = re.compile(r"\[\d+,(\d+)\]<std(?:out|err)>:? ?")
_PREPENDED = re.compile(r"\[(\d{1,5})\] (?=\S)")
"""``mpirun -prepend-rank`` and its like."""
_RAY = re.compile(r"\((?:([\w.:-]+) )?(?:(?:rank|TP|DP|PP)=?(\d+) )?pid=(\d+)(?:, ip=([\d.]+))?\) ?")
_KUBECTL = re.compile(r"\[(?:pod/)?([a-z0-9][a-z0-9.-]*)/([\w.-]+)\] ")
_COMPOSE = re.compile(r"([A-Za-z0-9][\w.-]*?) +\| ")
_LEVEL = r"(?i:trace|debug|info|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|fatal|alert|emerg)"
_FACILITY = r"(?:(?:kern|user|daemon|auth|authpriv|syslog|cron|local\d)\.[a-z]{3,7} )?"
_SYSLOG_HOST = re.compile(rf" ?(?!{_LEVEL} )({_HOST}) {_FACILITY}(?=[\w./@-]+(?:\([\w.-]+\))?(?:\[\d+\])?:(?: |$))")
_DAEMON_HOST = re.compile(rf" ?({_HOST}) (?=kernel:|[\w./@-]+\[\d+\]:)")
"""The same behind a stamp of dmesg, where a driver and its device stand in the same way (``nvme nvme0: I/O error``)."""
_KERNEL = re.compile(rf" ?(?:({_HOST}) )?kernel:? (?=\S)")
"""The kernel's lines where a part of their usual head is missing: the host, the colon or the time."""
_SYSLOG_TAG = re.compile(r"([\w./@-]+(?:\([\w.-]+\))?)(?:\[(\d+)\])?: ?")
_RFC5424 = re.compile(rf" ?({_HOST}) ([\w./@-]+) (\S+) (\S+) (?:-|(?:\[(?:[^\]\\]|\\.)*\])+) ?")
_PRI = re.compile(r"<\d{1,3}>(?:1 )?|1 (?=\d{4}-\d\d-\d\dT)")
_NCCL = re.compile(rf"({_HOST}):(\d+):(\d+) \[(\d+)\] ")
_LOKI = re.compile(r"\{((?:[a-z_][\w]*=\"[^\"]*\",? ?)+)\} ?")
_LOKI_LABEL = re.compile(r"([a-z_]\w*)=\"([^\"]*)\"")
_GLOG_TAIL = re.compile(r"\s+(?:\d+ )?[\w./-]+:\d+\] ?")
_TQDM = re.compile(r".{0,80}?\d{1,3}%\|[^|]{0,200}\| *[\d.,kMG]+/[\d.,kMG?]+ \[[^\]]{0,120}\]")
_RANK_WORD = re.compile(r"(?:^|[\s|\[(<])(?:global[ _])?[Rr]ank[ _:=]{1,2}(\d{1,6})(?=[\s|\])>,:]|$)")
_INNER = re.compile(
    r"(?:(?:\[[^\]]{1,48}\]|\([^)]{1,32}\)|[A-Z]{4,8}:?|[\w.-]{1,24}[:>]|[a-z_]{1,16}=\S{1,32})[ :|-]*){1,3}"
    r"(?=[\[(]?20\d\d[-/]|(?:ts|time)=)"
)
"""Tags that stand before the time: ``[titan] 2026-05-03 11:31:38,344``, ``[INFO|trainer.py:811] 2026-05-03 ...``."""
_CALLER = re.compile(r" ?\[ *[TC]\d+\] ?")
"""The kernel's mark of the thread or processor that printed a line."""
_DMESG_LEVEL = re.compile(r"(?:kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|local\d) *:[a-z]+ *: ")
"""``dmesg --decode`` writes facility and level before the time."""
_JOURNAL = re.compile(r"(MESSAGE|_HOSTNAME|SYSLOG_IDENTIFIER|(?:__|_SOURCE_)REALTIME_TIMESTAMP)=")
"""Fields of ``journalctl -o export`` and ``-o verbose``."""
_LAUNCHED = re.compile(
    rf"({_HOST}): (?=\[(?:rank|default)\d|{_HOST}:\d+:\d+ \[|\[?20\d\d-\d\d-|Traceback \(most recent)"
)
"""``pdsh``, ``clush`` and the launchers on top of them."""

_BEFORE = re.compile(
    rf"(?:\[({_HOST})(?: [\w-]{{1,63}})?\]:?|({_HOST})(?::| ?\||(?= (?:\[?20\d\d-|kernel: |[A-Z][a-z]{{2}} [ \d]\d ))))"
    rf" ?|({_HOST}) [a-z0-9][\w-]{{0,62}} "
)
"""A node or a pod (with its container) before the line, as ``pdsh``, ``stern`` and their like write it: taken off only
where the attempt has one of that name.
"""

_MESSAGE_KEYS = (
    "log", "msg", "message", "text", "MESSAGE", "event", "body", "line", "textPayload", "Body", "@message",
    "short_message", "content",
)  # fmt: skip
_NESTED_KEYS = (*_MESSAGE_KEYS, "jsonPayload", "fields", "record", "data")
"""Under which a log shipper puts the whole object that the application wrote."""
_BREAK = re.compile("[\r\n]")
LONGEST_JSON = 1 << 20
"""Bytes of one JSON line up to which it is read whole."""
_TIME_KEYS = (
    "time",
    "ts",
    "timestamp",
    "@timestamp",
    "asctime",
    "_SOURCE_REALTIME_TIMESTAMP",
    "__REALTIME_TIMESTAMP",
    "datetime",
    "t",
    "Timestamp",
    "@t",
    "created",
)
_HOST_KEYS = (
    "host", "hostname", "_HOSTNAME", "node", "node_name", "nodename", "host.name", "k8s.node.name", "kubernetes.host",
)  # fmt: skip
_POD_KEYS = ("pod", "pod_name", "k8s.pod.name", "kubernetes.pod_name")
_RANK_KEYS = ("rank", "global_rank", "RANK", "process_rank")
_NO_COUNTS = frozenset({*_TIME_KEYS, *_RANK_KEYS, "pid", "tid", "lineno", "line", "thread", "process", "levelno"})
_TRACE_KEYS = ("exc_info", "exception", "stack_trace", "stacktrace", "traceback", "stack", "exc_text", "error")


ZONE_GRID = 1800.0
"""Seconds of which every zone is a multiple: two clocks' difference says no more than what is left of it by these."""
FARTHEST_ZONE = 14.5 * 3600.0
SHIPPED_LATE, SHIPPED_LATEST = 60.0, ZONE_GRID / 2 - 60.0
"""Seconds between which a line was held back before it was shipped. Few zones are a quarter of an hour off the grid."""
_FOLDED = re.compile(r'Traceback \(most recent call last\):(\s?[^\s\w"]\S{0,5}\s?)  File "')
"""A traceback written as one line, with what stands for its line breaks: ``\\n``, ``#012``, `` | ``."""
_RAISED = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:: |(?:Error|Exception|Interrupt|Exit|Iteration)\s*$)")
"""The last line of one."""


class Line(msgspec.Struct, gc=False):
    """A line without its envelopes."""

    texts: list[str]
    """The message; several when a carriage return or an embedded line break parted it."""
    stamps: list[Stamp]
    host: str | None = None
    pod: str | None = None
    named: str | None = None
    """What a launcher wrote before the line: the host, if the attempt has one of that name."""
    node: str | None = None
    """One of the attempt's nodes or pods, by its name before the line."""
    rank: int | None = None
    local_rank: int | None = None
    gpu: int | None = None
    ip: str | None = None
    pid: str | None = None
    tag: str | None = None
    mentioned_rank: int | None = None
    """A rank that the message itself names; weaker than `rank`, which an envelope gives."""
    partial: bool = False
    shipped: bool = False
    """The outermost envelope is a collector's: what is inside may begin with a launcher's mark all the same."""

    @property
    def stamp(self) -> Stamp | None:
        """The most telling time stamp: one with zone and date before one without."""
        best = None
        for stamp in self.stamps:
            if stamp.kind == "epoch" or (stamp.kind == "full" and stamp.offset is not None):
                return self._when_said(stamp) if self.shipped and len(self.stamps) > 1 else stamp
            if best is None or (best.kind in ("no_date", "uptime") and stamp.kind in ("full", "no_year")):
                best = stamp
        return best

    def _when_said(self, shipped: Stamp) -> Stamp:
        """A program's own full stamp inside a collector's tells how long the line was held back, whatever its zone."""
        own = next((stamp for stamp in self.stamps if stamp.kind == "full" and stamp.offset is None), None)
        apart = shipped.naive - (shipped.offset or 0) - own.naive if own is not None else 0.0
        late = apart % ZONE_GRID if abs(apart) < FARTHEST_ZONE else 0.0  # else it is the date of something else
        return shipped._replace(naive=shipped.naive - late) if SHIPPED_LATE <= late < SHIPPED_LATEST else shipped

    @property
    def text(self) -> str:
        return self.texts[-1] if self.texts else ""

    @property
    def lane(self) -> tuple[Any, ...]:
        """Who wrote the line, for putting a traceback together out of interleaved lines."""
        return (self.pod, self.node, self.rank, self.local_rank, self.ip, self.pid)


RANK = 2
"""Of a line's lane."""


def strip_ansi(raw: bytes) -> bytes:
    return _ANSI.sub(b"", raw) if b"\x1b" in raw else raw


def printable(text: str) -> str:
    """`text` with control, zero-width and bidirectional characters made visible, cut to SHOWN characters."""
    cut = text if len(text) <= SHOWN else text[:SHOWN] + f" ... [{len(text) - SHOWN} more characters]"
    return cut if cut.isprintable() else _UNPRINTABLE.sub(lambda found: f"<U+{ord(found[0]):04X}>", cut)


def clean(raw: bytes, nodes: frozenset[str] = frozenset()) -> Line:
    """Take the envelopes off one raw line (without its line end).

    `nodes`: names of nodes and pods that may stand before it.
    """
    if len(raw) > 4 * SHOWN and (len(raw) > LONGEST_JSON or b'{"' not in raw[:256]):
        raw = raw[: 3 * SHOWN] + raw[-SHOWN:]
    text = strip_ansi(raw).replace(b"\x00", b"").decode("utf-8", "replace").rstrip("\r\n").removeprefix("\ufeff")
    if "\r" in text:
        first, *more = [part for part in text.split("\r") if part.strip()] or [""]
        line = Line([first], [])
        _peel(line, nodes)
        line.texts += [_after_bar(part) for part in more]
        return line
    line = Line([text], [])
    _peel(line, nodes)
    if "Traceback (most" in text:
        line.texts = [part for said in line.texts for part in unfolded(said)]
    if not line.stamps and line.texts:
        inner = _INNER.match(line.texts[0])
        found = read_stamp(line.texts[0][inner.end() :]) if inner else None
        if inner and found and found[0].kind == "full":
            line.stamps.append(found[0])
    return line


def unfolded(text: str) -> list[str]:
    """The lines of a traceback that was written as one; anything else as it is."""
    fold = _FOLDED.search(text)
    if fold is None:
        return [text]
    lines: list[str] = []
    for part in text.split(fold[1]):
        if not lines or part.startswith(("  ", "Traceback (")) or _RAISED.match(part):
            lines.append(part)
        else:
            lines[-1] += fold[1] + part  # the mark is part of the program's own text
    return lines


def window(raw: bytes, end: int) -> bytes:
    """A very long line cut down to its beginning and what stands around `end`; a JSON line stays whole."""
    if len(raw) <= 4 * SHOWN or (len(raw) <= LONGEST_JSON and b'{"' in raw[:256]):
        return raw
    raw = strip_ansi(raw).replace(b"\x00", b"")
    return raw[: SHOWN // 4] + b" ... " + raw[max(end - SHOWN // 2, SHOWN // 4) : end + SHOWN]


def _after_bar(text: str) -> str:
    bar = _TQDM.match(text)
    return text[bar.end() :].lstrip() or text if bar else text


def _peel(line: Line, nodes: frozenset[str] = frozenset()) -> None:
    for _ in range(12):
        before = line.texts[0]
        if not before:
            return
        _peel_once(line, before)
        if nodes and line.node is None and line.texts[0] == before:
            _peel_node(line, before, nodes)
        if line.texts[0] == before or len(line.texts) > 1:
            break
    if line.texts[0].startswith((" ", "\t")) and line.texts[0].strip().startswith("{"):
        return
    _mentioned_rank(line)


def _peel_node(line: Line, text: str, nodes: frozenset[str]) -> None:
    found = _BEFORE.match(text)
    if found and (name := found[1] or found[2] or found[3]) in nodes:
        line.node, line.texts[0] = name, text[found.end() :]


def _mentioned_rank(line: Line) -> None:
    head = line.texts[0][:160]
    found = _RANK_WORD.search(head) if "ank" in head else None
    if found:
        line.mentioned_rank = int(found[1])


def _peel_once(line: Line, text: str) -> None:
    head = text[0]
    if head == "{":
        _peel_braces(line, text)
        return
    if head in "_MS" and (field := _JOURNAL.match(text)):
        _peel_journal(line, field[1], text[field.end() :])
        return
    if head in "kumdaslnc" and (level := _DMESG_LEVEL.match(text)):
        line.texts[0] = text[level.end() :]
        return
    if head in "<1" and (found := _PRI.match(text)):
        stamped = read_stamp(text[found.end() :])
        tail = stamped and _RFC5424.match(text[found.end() :], stamped[1])
        if head == "<" or tail:
            line.texts[0] = text[found.end() :]
            if stamped and tail and text[: found.end()].endswith("1 "):
                line.stamps.append(stamped[0])
                line.host, line.tag = line.host or tail[1], tail[2]
                line.texts[0] = line.texts[0][tail.end() :]
            return
    if head == "[":
        if _peel_bracket(line, text):
            return
    elif head == "(":
        found = _RAY.match(text)
        if found:
            line.rank = whole(found[2]) if found[2] else line.rank
            line.pid = found[3]
            line.ip = found[4] or line.ip
            line.texts[0] = text[found.end() :]
            return
    elif head.isdigit() or head == " ":
        found = _CRI.match(text) if text[10:11] == "T" else None
        if found:
            stamp = parse_time(found[1])
            if stamp:
                line.stamps.append(stamp)
            line.partial = found[2] == "P"
            line.shipped = True
            line.texts[0] = text[found.end() :]
            return
        is_first = line.rank is None and (not line.stamps or (line.shipped and len(line.stamps) == 1))
        found = _SRUN.match(text) if is_first else None
        if found:
            line.rank = int(found[1])
            line.texts[0] = text[found.end() :]
            return
        if head == " ":
            text = text.lstrip()
            if not text.startswith("["):  # Megatron writes " [2026-11-03 02:00:00] iteration ..."
                return
    if _peel_stamp(line, text):
        return
    if line.node is not None and line.tag is None and text.startswith("kernel: "):
        line.tag, line.texts[0] = "kernel", text[len("kernel: ") :]
        return
    if not text[0].isalnum():
        return
    found = _NCCL.match(text)
    if found:
        line.host, line.gpu = line.host or found[1], whole(found[4])
        line.texts[0] = text[found.end() :]
        return
    found = None if line.stamps else _COMPOSE.match(text)
    if found and "-" in found[1]:
        line.pod = line.pod or found[1]
        line.texts[0] = text[found.end() :]
        return
    found = _LAUNCHED.match(text) if line.rank is None and line.host is None else None
    if found:
        line.named = line.named or found[1]
        line.texts[0] = text[found.end() :]


def _peel_journal(line: Line, name: str, value: str) -> None:
    """One field of a journal entry that has a line for each."""
    if name == "MESSAGE":
        line.texts[0] = value
        return
    _take_field(line, name, value)
    line.texts[0] = ""


def _peel_bracket(line: Line, text: str) -> bool:
    inside = text[1:2]
    found = _TORCHRUN.match(text) if inside in "rdnRt" else None
    if found:
        number = int(found[2])
        kind = found[1].lower()
        if kind == "rank":
            # PyTorch's `[Rank 2]` counts within the process group; `[rank45]:` before it is the rank of the job.
            line.rank = number if found[1] == "rank" or line.rank is None else line.rank
        elif kind == "default" or kind == "trainer":
            line.local_rank = number
        line.texts[0] = text[found.end() :]
        return True
    if inside.isdigit():
        found = _MPIRUN.match(text) or (_PREPENDED.match(text) if line.rank is None and not line.stamps else None)
    if found:
        line.rank = whole(found[1])
        line.texts[0] = text[found.end() :]
        return True
    found = None if inside.isupper() else _KUBECTL.match(text)
    if found:
        line.pod = found[1]
        line.texts[0] = text[found.end() :]
        return True
    return False


def _peel_stamp(line: Line, text: str) -> bool:
    found = read_stamp(text)
    if not found:
        return False
    stamp, end = found
    line.stamps.append(stamp)
    rest = text[end:]
    glog = _GLOG_TAIL.match(rest) if text[0] in "[IWEF" and text.lstrip("[")[:1] in "IWEF" else None
    if glog:
        line.texts[0] = rest[glog.end() :]
        return True
    of_dmesg = stamp.kind == "uptime" or text.startswith("[")
    named = _DAEMON_HOST if of_dmesg else _SYSLOG_HOST
    is_named = line.tag is None and rest.startswith(" ") and rest[1:2].isalnum()
    host = named.match(rest) if is_named else None
    if host:
        line.host = host[1]
        rest = rest[host.end() :]
        tag = _SYSLOG_TAG.match(rest)
        if tag:
            line.tag = tag[1]
            rest = rest[tag.end() :]
        line.texts[0] = rest
        return True
    kernel = _KERNEL.match(rest) if is_named and "kernel" in rest else None
    if kernel:
        line.host, line.tag, line.texts[0] = line.host or kernel[1], "kernel", rest[kernel.end() :]
        return True
    if stamp.kind == "uptime":
        rest = _DMESG_LEVEL.sub("", rest.lstrip(), count=1)
        rest = _CALLER.sub("", rest, count=1) if rest.startswith("[") else rest
    line.texts[0] = rest[1:] if rest.startswith(" ") and not rest.startswith("  ") else rest.lstrip()
    return True


def _peel_braces(line: Line, text: str) -> None:
    labels = _LOKI.match(text)
    if labels:
        for name, value in _LOKI_LABEL.findall(labels[1]):
            _take_field(line, name, value)
        line.texts[0], line.shipped = text[labels.end() :], True
        return
    if not text.rstrip().endswith("}"):
        return
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    if not isinstance(fields, dict):
        return
    message, holders = _message(fields)
    if message is None:
        if not any(key in fields for key in _TIME_KEYS):
            return
        # A record without words, as trainers log their steps: its fields are the message.
        message = " ".join(f"{k}={v}" for k, v in fields.items() if isinstance(v, str) and k not in _NO_COUNTS)[:500]
    line.shipped = True
    for holder in holders:
        for name, value in (*holder.items(), *_record(holder)):
            _take_field(line, name, value)
        fields = holder
    counted = [
        f"{k}={v}"
        for k, v in fields.items()
        if isinstance(v, (int, float)) and not isinstance(v, bool) and k not in _NO_COUNTS
    ]
    if counted and "\n" not in message:
        message = f"{message} {' '.join(counted[:8])}"
    for name, trace in fields.items():
        # A traceback is told by its looks, whatever a program calls the field.
        is_trace = isinstance(trace, str) and (name in _TRACE_KEYS or "Traceback (most recent call last)" in trace)
        if is_trace and trace.strip() and trace not in message:
            message = f"{message}\n{trace}"
    line.texts = [_cut(part) for part in _BREAK.split(message.rstrip("\r\n"))]
    if len(line.texts) > 1:
        head = Line([line.texts[0]], [])
        _peel(head)
        line.texts[0] = head.texts[0]
        line.rank = head.rank if line.rank is None else line.rank
        line.stamps += head.stamps


def _message(fields: dict[str, Any]) -> tuple[str | None, list[dict[str, Any]]]:
    """What a JSON line says, and the objects around it from the outside in (a shipper's, the application's)."""
    holders = [fields]
    for _ in range(4):
        fields = holders[-1]
        for key in _MESSAGE_KEYS:
            if isinstance(fields.get(key), str):
                return fields[key], holders
        said = fields.get("MESSAGE")
        if isinstance(said, list):  # the journal's way to write bytes that are not UTF-8
            return bytes(b & 0xFF for b in said if isinstance(b, int)).decode("utf-8", "replace"), holders
        inner = next((fields[key] for key in _NESTED_KEYS if isinstance(fields.get(key), dict)), None)
        if inner is None:
            break
        holders.append(inner)
    return None, holders


def _record(fields: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """loguru's own fields, beside the text that it made of them."""
    record = fields.get("record")
    return record.items() if isinstance(record, dict) else ()


def _cut(text: str) -> str:
    return text if len(text) <= 4 * SHOWN else text[: 3 * SHOWN] + text[-SHOWN:]


def _take_field(line: Line, name: str, value: Any) -> None:
    if name in _TIME_KEYS:
        stamp = parse_time(value)
        if stamp:
            line.stamps.append(stamp)
    elif name in _HOST_KEYS and isinstance(value, str) and value:
        line.host = line.host or value
    elif name in _RANK_KEYS and (rank := whole(value)) is not None:
        line.rank = rank
    elif name in _POD_KEYS and isinstance(value, str):
        line.pod = value
    elif name == "host" and isinstance(value, dict):
        line.host = line.host or _text(value.get("name") or value.get("hostname"))
    elif name == "kubernetes" and isinstance(value, dict):
        line.host = line.host or _text(value.get("host") or value.get("node_name"))
        line.pod = line.pod or _text(value.get("pod_name"))
    elif name in ("labels", "resource", "stream", "attributes", "Resource", "Attributes") and isinstance(value, dict):
        for inner, said in value.items():
            if isinstance(said, (str, dict)) and inner not in _TIME_KEYS:
                _take_field(line, inner, said)
    elif name in ("SYSLOG_IDENTIFIER", "_COMM") and isinstance(value, str):
        line.tag = line.tag or value


def whole(value: Any) -> int | None:
    """A rank or another small number as an int; None for anything else."""
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return int(text) if text.isdecimal() and len(text) <= 9 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
