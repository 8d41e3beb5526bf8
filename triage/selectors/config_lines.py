"""Settings that a job's log tells at its beginning: arguments, variables, versions, the image. For comparing two runs.

No more than a guess by shape, made on purpose narrow: a line that only looks like a setting would show up as a false
difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.lines import clean
from triage.models import Stream
from triage.selectors.streams import opened

HEAD_LINES = 800
HEAD_BYTES = 4096
"""Bytes of a line that are looked at."""
MAX_SETTINGS = 2_000
MAX_VALUE = 300

_DOTTED = re.compile(r"\s*([A-Za-z_][\w./-]{1,60}) \.{3,} ?(\S.{0,300})$")
_OPTION = re.compile(r"(?<!\S)--([a-z][\w-]{1,60})(?:=(\S{1,300})|[ \t]+(?!-)(\S{1,300}))")
_PAIR = re.compile(r"[\s{\[(,\"']{0,12}([A-Za-z][\w.-]{1,60})[\"']?\s{0,4}[:=]\s{0,4}(\S.{0,300})$")
_VERSION = re.compile(r"\b([A-Za-z][\w+.-]{1,30}) version[: =]{1,3}v?(\d[\w.+-]{0,60})", re.IGNORECASE)
_COMPOUND = re.compile(r"[a-z][a-z0-9]*(?:[_.-][a-z0-9]+)+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_KNOWN = frozenset(
    [
        "image",
        "container",
        "seed",
        "epochs",
        "lr",
        "optimizer",
        "model",
        "dataset",
        "precision",
        "dtype",
        "bf16",
        "fp16",
        "dp",
        "tp",
        "pp",
        "ep",
        "cp",
        "world",
    ]
)
_BY_NATURE = re.compile(
    r"(?i)(?:^|[_.-])(?:time|date|timestamp|pid|port|uuid|id|jobid|host|hostname|nodename|addr|address|ip|rank|nodelist"
    r"|started|elapsed|ms|token|key|secret|password|stamp|loss|step|iteration|throughput|mem|memory[_-]used)s?$"
)
"""Names whose values differ from run to run anyway, or are no settings."""
_STAMPED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


def settings_of(streams: Iterable[Stream]) -> dict[str, str]:
    """What the first lines of these streams set; of several values of one name the first. Raises StreamGone."""
    found: dict[str, str] = {}
    for stream in streams:
        with opened(stream) as reader:
            lines = reader.read_lines(1, HEAD_LINES, max_line_bytes=HEAD_BYTES)
        for line in lines:
            for name, value in settings_in(clean(line.raw).text):
                if len(found) < MAX_SETTINGS:
                    found.setdefault(name, value)
    return found


def settings_in(text: str) -> list[tuple[str, str]]:
    """Names and values that one line sets, its time stamp and other envelopes taken off before."""
    found: list[tuple[str, str]] = []
    dotted = _DOTTED.match(text)
    if dotted:
        found.append((dotted[1], dotted[2]))
    elif "--" in text and (options := _OPTION.findall(text)):
        found += [(f"--{name}", given or following) for name, given, following in options]
    elif (pair := _PAIR.match(text)) and (_COMPOUND.fullmatch(pair[1]) or pair[1].lower() in _KNOWN):
        found.append((pair[1], pair[2].rstrip("\"', ")))
    found += [(f"{name} version", number) for name, number in _VERSION.findall(text)]
    return [
        (name, value[:MAX_VALUE]) for name, value in found if not _BY_NATURE.search(name) and not _STAMPED.search(value)
    ]
