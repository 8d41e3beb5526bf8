"""Which GPUs a node has, as far as an attempt's streams tell it: bus ids, serial numbers, models.

The driver writes serial numbers beside an Xid, DCGM labels its series with bus id, number and model, and Slurm names
the kind of GPU a node has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

import msgspec

from engine.lines import clean
from engine.model import Source, Stream
from engine.origin import Places, normal_device
from engine.series import series_of

MAX_METRICS = 32 << 20
"""Bytes of a metric stream; a larger one is not read for this."""
MAX_RECORDS = 16 << 20
MAX_TOLD = 20_000
_BLOCK, _REACH, _HEAD = 4 << 20, 8 << 10, 64 << 10
_DRIVER = re.compile(
    rb"^([^\n]{0,2000}?)NVRM: GPU at PCI:([0-9a-fA-F:.]{7,16}): (GPU-[0-9a-fA-F-]{36})[^\n]{0,200}"
    rb"(?:\n[^\n]{0,2000}?NVRM: GPU Board Serial Number: ([0-9A-Za-z]{4,32})\b)?",
    re.MULTILINE,
)
_KIND = re.compile(r"\bGres=gpu:([A-Za-z][\w.-]{0,60}):\d")
_NODE = re.compile(r"\bNodeName=(\S{1,253})")
_BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?\Z")


@dataclass(frozen=True)
class Told:
    """What is told of one GPU of a node; of all of them where `bus` is empty."""

    node: str
    bus: str = ""
    number: int | None = None
    """As nvidia-smi counts."""
    uuid: str = ""
    serial: str = ""
    model: str = ""

    def with_more(self, other: Told) -> Told:
        """What both tell together; where they disagree, this one is right."""
        gaps = {one.name: getattr(other, one.name) for one in fields(self) if getattr(self, one.name) in ("", None)}
        return replace(self, **gaps)

    def is_other_than(self, other: Told) -> bool:
        """Another GPU sits in the same place."""
        told = ((self.uuid, other.uuid), (self.serial, other.serial))
        return any(mine and theirs and mine != theirs for mine, theirs in told)


def gpus_of(streams: Iterable[Stream], places: Places) -> list[Told]:
    """What these streams tell of the GPUs of the attempt's own nodes, each once. What can't be read tells nothing."""
    found: dict[tuple[str, str], Told] = {}
    for stream in streams:
        reader = _READERS.get(stream.source)
        if reader is None or (stream.source is Source.METRIC and (stream.size or 0) > MAX_METRICS):
            continue
        try:
            for told in reader(stream, places):
                key = (told.node, told.bus)
                if key in found or len(found) < MAX_TOLD:
                    found[key] = found[key].with_more(told) if key in found else told
        except (OSError, ValueError, RecursionError, msgspec.DecodeError):
            continue  # its damage is told where it is collected
    return list(found.values())


def _of_driver(stream: Stream, places: Places) -> Iterator[Told]:
    with stream.open() as source:
        rest = b""
        while block := source.read(_BLOCK):
            text = rest + block
            if b"NVRM: GPU at PCI:" in text:
                for found in _DRIVER.finditer(text):
                    own = places.known(stream.node) or places.known(clean(found[0].partition(b"\n")[0]).host)
                    if own is not None:
                        bus, uuid, serial = (part.decode("ascii") if part else "" for part in found.groups()[1:])
                        yield Told(own, normal_device(bus), uuid=uuid.replace("gpu-", "GPU-"), serial=serial)
            rest = text[-_REACH:]


def _of_metrics(stream: Stream, places: Places) -> Iterator[Told]:
    with stream.open() as source:
        if not any(label in source.read(_HEAD) for label in (b'"pci_bus_id"', b'"pciBusId"')):
            return
    for series in series_of(stream, places, MAX_METRICS):
        labels = series.labels
        bus = normal_device(labels.get("pci_bus_id") or labels.get("pciBusId") or "")
        if series.node is None or not _BUS.match(bus):
            continue
        number = labels.get("gpu") or labels.get("GPU") or ""
        uuid = labels.get("UUID") or labels.get("uuid") or ""
        model = labels.get("modelName") or labels.get("model_name") or ""
        yield Told(
            series.node, bus, int(number) if number.isdecimal() and len(number) < 4 else None, uuid[:64], "", model[:80]
        )


def _of_scheduler(stream: Stream, places: Places) -> Iterator[Told]:
    with stream.open() as source:
        text = source.read(MAX_RECORDS).decode("utf-8", "replace")
    node = None
    for line in text.splitlines():
        if named := _NODE.search(line):
            node = places.known(named[1])
        if node is not None and (kind := _KIND.search(line)):
            yield Told(node, model=kind[1])


_READERS = {Source.SYSLOG: _of_driver, Source.METRIC: _of_metrics, Source.SCHEDULER: _of_scheduler}
