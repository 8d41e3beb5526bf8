"""One collection from folders: what the patterns find of an attempt, source by source."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from connectors.access import Refused, Roots, why_not_listed
from connectors.base import CollectionReport, CollectRequest
from connectors.files.config import FilePattern, FilesConfig
from connectors.files.cut import Window, blocks, borders, tells_time
from connectors.files.patterns import Hosts
from connectors.http import Deadline
from connectors.part import Parts, Range, left_out, room_for, size_of, within
from connectors.placeholders import MissingValue, values_of
from connectors.spool import Spool
from connectors.tally import Tally
from connectors.window import NO_WINDOW, window_of
from engine.bundle import ARCHIVES, BundleError, is_compressed, place_of, plain, unpack
from engine.bundle import Limits as ArchiveLimits
from engine.kinds import describe
from engine.model import Source, Stream

GROWING = 5.0
"""A file that was written to so many seconds ago is taken for one that still grows."""
_HEAD = 64 << 10
_UNSAFE = re.compile(r"[^\w.@+/-]+")


class PatternCollection:
    """Streams by pattern; reports are complete once all streams were taken. Closed with `close`."""

    def __init__(self, config: FilesConfig, spool: Spool, deadline: Deadline, request: CollectRequest) -> None:
        self._config, self._spool, self._deadline, self._request = config, spool, deadline, request
        self._attempt = request.attempt
        self._roots = Roots([(f"/{name}", folder) for name, folder in config.roots.items()])
        self._hosts = Hosts(self._attempt.nodes)
        self._tallies = {pattern.source: Tally() for pattern in config.patterns}
        self._with_lines: dict[Source, set[str]] = {}
        """Nodes that have a file."""
        self._unpacked = ExitStack()
        self._names: set[str] = set()
        self._seen: set[tuple[int, int]] = set()
        self._streams = self._bytes = 0

    def close(self) -> None:
        """Removes what was unpacked."""
        self._unpacked.close()

    def streams(self) -> Iterator[Stream]:
        """One a file, or a member of an archive; each file once, whichever pattern finds it first."""
        for index, pattern in enumerate(self._config.patterns):
            tally = self._tallies[pattern.source]
            began = time.monotonic()
            for stream in self._of(pattern, tally):
                tally.seconds += time.monotonic() - began
                why = self._over(stream)
                if why:
                    self._leave_out(why, self._config.patterns[index:])
                    return
                self._count(tally, stream)
                yield stream
                began = time.monotonic()
            tally.seconds += time.monotonic() - began

    def reports(self) -> list[CollectionReport]:
        """One report a source that has a pattern."""
        for source, tally in self._tallies.items():
            if tally.streams and any(p.source is source and "node" in p.path.names for p in self._config.patterns):
                silent = [node for node in self._attempt.nodes if node not in self._with_lines.get(source, set())]
                if silent:
                    names = ", ".join(silent[:10]) + (", ..." if len(silent) > 10 else "")
                    tally.note(f"no {source.value} of {names} ({len(silent)} of {len(self._attempt.nodes)} nodes)")
        return [tally.report(source, self._config.name) for source, tally in self._tallies.items()]

    # --- finding ------------------------------------------------------------------------------------------------------

    def _of(self, pattern: FilePattern, tally: Tally) -> Iterator[Stream]:
        values = values_of(self._attempt)
        tally.asked.append(pattern.path.shown(values))
        try:
            parts = pattern.path.parts(values, self._hosts)
        except MissingValue as missing:
            tally.note(f"{pattern.path.text}: not looked for: the attempt has no {missing} that could be in a path")
            return
        found = 0

        def refused(refusal: Refused) -> None:
            tally.missing += 1
            tally.note(str(refusal))

        try:
            for path, groups in self._roots.matching(parts, refused):
                if path.is_dir():
                    continue
                found += 1
                yield from self._file(pattern, tally, path, groups)
        except Refused as refusal:
            refused(refusal)
            return
        if not found:
            folder = self._config.roots[pattern.path.root]
            why = why_not_listed(folder)
            tally.missing += bool(why)
            tally.note(f"{folder} {why}" if why else f"no file is called {pattern.path.shown(values)}")

    def _file(self, pattern: FilePattern, tally: Tally, path: Path, groups: dict[str, str]) -> Iterator[Stream]:
        try:
            content = self._roots.open(path)
        except Refused as refusal:
            tally.missing += 1
            tally.note(str(refusal))
            return
        with ExitStack() as closing:
            closing.enter_context(content)
            facts = os.fstat(content.fileno())
            if (facts.st_dev, facts.st_ino) in self._seen:
                return
            self._seen.add((facts.st_dev, facts.st_ino))
            if path.name.endswith(ARCHIVES):
                yield from self._archive(pattern, tally, path, content, groups)
                return
            window = self._window(pattern, tally)
            if window is not None and facts.st_mtime < window.start:
                return  # its last line is older
            stream = self._stream(pattern, path, groups)
            if window is None or not self._can_be_cut(path, content, window):
                if pattern.source is Source.APPLOG and time.time() - facts.st_mtime < GROWING:
                    tally.note(f"{path.name} is still written to: read as it is now")
                if is_compressed(path.name):
                    yield stream(open=partial(self._packed, path, facts.st_size), size=-1)
                else:
                    yield self._plain(stream, tally, path, content, (0, facts.st_size))
            elif is_compressed(path.name):
                closing.pop_all()  # what unpacks it closes it
                yield from self._cut_packed(stream, tally, path, content, facts.st_size, window)
            else:
                start, end = borders(content, facts.st_size, window)
                if end > start:
                    yield self._plain(stream, tally, path, content, (start, end))

    def _window(self, pattern: FilePattern, tally: Tally) -> Window | None:
        if not pattern.cut:
            return None
        window = window_of(self._attempt, pattern.before, pattern.after)
        if window is None:
            tally.note(f"{NO_WINDOW}: files are taken whole")
            return None
        return Window(*window, self._config.timezone)

    def _can_be_cut(self, path: Path, content: BinaryIO, window: Window) -> bool:
        if is_compressed(path.name):
            return True
        return tells_time(content, window)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _plain(self, stream: partial[Stream], tally: Tally, path: Path, content: BinaryIO, borders: Range) -> Stream:
        """As long as it was when it was found: what grows meanwhile has an end all the same."""
        ranges = within(content, *borders, room_for(self._request.limits, self._bytes))
        if words := left_out(path.name, ranges):
            tally.partial = True
            tally.note(words)
        return stream(open=partial(self._parts, path, ranges), size=size_of(ranges))

    def _parts(self, path: Path, ranges: Sequence[Range]) -> BinaryIO:
        return Parts.reader(self._open(path), ranges)

    def _packed(self, path: Path, size: int) -> BinaryIO:
        return plain(self._parts(path, [(0, size)]), path.name, size)

    def _open(self, path: Path) -> BinaryIO:
        try:
            return self._roots.open(path)
        except Refused as refusal:
            raise OSError(str(refusal)) from None

    def _cut_packed(
        self, stream: partial[Stream], tally: Tally, path: Path, content: BinaryIO, size: int, window: Window
    ) -> Iterator[Stream]:
        key = ("packed", str(path))
        try:
            with plain(content, path.name, size) as unpacked:
                for block in blocks(unpacked, window):
                    self._spool.add(key, block, lines=block.count(b"\n"))
                    if self._spool.size > self._request.limits.bytes or self._deadline.left() <= 0:
                        tally.partial = True
                        tally.note(f"{path.name}: cut off by the limit of bytes or time")
                        break
        except Exception as error:  # each format has its own ways to be damaged
            tally.partial = True
            tally.note(f"{path.name} is damaged, read up to there: {_words(error)}")
        spooled = self._spool.streams().get(key)
        if spooled is not None:
            tally.lines += spooled.lines
            yield stream(open=partial(self._spool.open, spooled), size=spooled.size)

    def _archive(
        self, pattern: FilePattern, tally: Tally, path: Path, content: BinaryIO, groups: dict[str, str]
    ) -> Iterator[Stream]:
        """Its members, each by what its name and first lines say. It is copied first, so that it stays what was
        checked.
        """
        folder = Path(self._unpacked.enter_context(tempfile.TemporaryDirectory(prefix="faultline-", dir=self._folder)))
        room = max(self._request.limits.bytes - self._bytes, 0)
        try:
            with tempfile.NamedTemporaryFile(dir=folder, suffix=_suffix(path.name)) as copy:
                shutil.copyfileobj(content, copy)
                copy.flush()
                unpack(Path(copy.name), folder / "members", ArchiveLimits(total_bytes=room))
        except (BundleError, OSError) as error:
            tally.missing += 1
            tally.note(f"{path.name} can not be unpacked: {_words(error)}")
            return
        except Exception as error:
            tally.missing += 1
            tally.note(f"{path.name} is damaged: {_words(error)}")
            return
        members = sorted(member for member in (folder / "members").rglob("*") if member.is_file())
        for member in members:
            inside = member.relative_to(folder / "members").as_posix()
            size = member.stat().st_size
            opened = partial(_open_member, member, size)
            with opened() as start:
                kind = describe(inside, start.read(_HEAD), self._attempt.nodes)
            source = kind.source if kind.source is not Source.APPLOG else pattern.source
            yield Stream(
                name=self._name(f"{source.value}/{self._below(path)}/{_called(inside, kind.base)}"),
                source=source,
                open=opened,
                size=-1 if is_compressed(member.name) else size,
                node=kind.node or self._hosts.node(groups.get("node")),
                rank=kind.rank,
            )

    @property
    def _folder(self) -> Path | None:
        return self._config.spool_dir

    def _stream(self, pattern: FilePattern, path: Path, groups: dict[str, str]) -> partial[Stream]:
        """All of a stream but its content."""
        name = self._name(f"{pattern.source.value}/{self._below(path)}")
        node, rank = place_of(name, pattern.source, self._attempt.nodes)
        node = self._hosts.node(groups.get("node")) or node
        if node is not None:
            self._with_lines.setdefault(pattern.source, set()).add(node)
        rank = int(groups["rank"]) if "rank" in groups else rank
        return partial(Stream, name=name, source=pattern.source, node=node, rank=rank)

    def _below(self, path: Path) -> str:
        """The path below its root."""
        for folder in self._config.roots.values():
            if path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return path.name

    def _name(self, wanted: str) -> str:
        name = safe = _UNSAFE.sub("_", wanted)[:900]
        count = 1
        while name in self._names:
            count += 1
            name = f"{safe}-{count}"
        self._names.add(name)
        return name

    # --- limits -------------------------------------------------------------------------------------------------------

    def _over(self, stream: Stream) -> str:
        limits = self._request.limits
        if self._streams >= limits.streams:
            return f"more than {limits.streams} streams: the rest was left out"
        if self._bytes + max(stream.size, 0) > limits.bytes:
            return f"more than {limits.bytes} bytes: the rest was left out"
        if self._deadline.stopped():
            return "stopped before it was finished"
        if self._deadline.left() <= 0:
            return f"not finished within {self._deadline.whole:.0f} s: the rest was left out"
        return ""

    def _leave_out(self, why: str, patterns: Sequence[FilePattern]) -> None:
        for source in {pattern.source for pattern in patterns}:
            self._tallies[source].partial = True
            self._tallies[source].note(why)

    def _count(self, tally: Tally, stream: Stream) -> None:
        size = max(stream.size, 0)
        self._streams, self._bytes = self._streams + 1, self._bytes + size
        tally.streams, tally.bytes = tally.streams + 1, tally.bytes + size
        tally.unsized = tally.unsized or stream.size < 0


def _open_member(member: Path, size: int) -> BinaryIO:
    return plain(member.open("rb"), member.name, size)


def _called(inside: str, base: str) -> str:
    return str(PurePosixPath(inside).with_name(base))


def _suffix(name: str) -> str:
    return next(ending for ending in sorted(ARCHIVES, key=len, reverse=True) if name.endswith(ending))


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
