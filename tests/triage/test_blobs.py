"""The blob store gives back what was put in, line by line, wherever one opens it."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triage.blobs import BlobError, BlobStore, writer

LINES = st.lists(st.binary(max_size=40), max_size=60).map(b"\n".join)
anything = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.fixture(params=[7, 64, 1 << 20])
def frame_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(writer, "FRAME_BYTES", request.param)
    monkeypatch.setattr(writer, "SOFT_CUT_BYTES", 3)
    return int(request.param)


def lines_of(content: bytes) -> list[bytes]:
    lines = content.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


@anything
@given(content=st.binary(max_size=2000) | LINES)
def test_any_bytes_come_back(store: BlobStore, frame_bytes: int, content: bytes) -> None:
    blob = store.put(io.BytesIO(content))
    with store.open(blob.key) as stream:
        assert stream.read() == content
    assert blob.size == len(content)
    assert blob.lines == len(lines_of(content))


@anything
@given(content=LINES)
def test_every_line_is_found_by_its_number_and_by_any_of_its_bytes(
    store: BlobStore, frame_bytes: int, content: bytes
) -> None:
    with store.reader(store.put(io.BytesIO(content)).key) as reader:
        offset = 0
        for number, line in enumerate(lines_of(content), 1):
            (found,) = reader.read_lines(number, 1)
            assert (found.number, found.offset, found.raw, found.cut) == (number, offset, line, False)
            assert reader.read_at_offset(offset) == reader.read_at_offset(offset + len(line)) == [found]
            offset += len(line) + 1


@anything
@given(content=LINES, first=st.integers(-5, 80), count=st.integers(-2, 80))
def test_a_window_of_lines_is_the_slice_of_all_lines(
    store: BlobStore, frame_bytes: int, content: bytes, first: int, count: int
) -> None:
    with store.reader(store.put(io.BytesIO(content)).key) as reader:
        found = reader.read_lines(first, count)
    wanted = [(n, line) for n, line in enumerate(lines_of(content), 1) if max(1, first) <= n < first + count]
    assert [(line.number, line.raw) for line in found] == wanted


@anything
@given(content=LINES, limit=st.integers(1, 10))
def test_a_long_line_is_cut_and_the_next_one_is_still_found(
    store: BlobStore, frame_bytes: int, content: bytes, limit: int
) -> None:
    with store.reader(store.put(io.BytesIO(content)).key) as reader:
        found = reader.read_lines(1, 1000, max_line_bytes=limit)
    assert [line.raw for line in found] == [line[:limit] for line in lines_of(content)]
    assert [line.cut for line in found] == [len(line) > limit for line in lines_of(content)]


@anything
@given(content=LINES, start=st.integers(0, 500), length=st.integers(0, 500))
def test_the_stream_can_be_read_from_any_place(
    store: BlobStore, frame_bytes: int, content: bytes, start: int, length: int
) -> None:
    blob = store.put(io.BytesIO(content))
    with store.open(blob.key) as stream:
        stream.seek(start)
        assert stream.read(length) == content[start : start + length]
    with store.reader(blob.key) as reader:
        assert reader.read_range(start, length) == content[start : start + length]


def test_a_line_deep_in_a_large_stream_unpacks_at_most_two_frames(store: BlobStore) -> None:
    line = b"2026-11-03 04:11:54 node gx-02 iteration %09d loss 2.345 tokens per second 123456.7\n"
    content = b"".join(line % number for number in range(600_000))
    blob = store.put(io.BytesIO(content))
    with store.reader(blob.key) as reader:
        assert reader.frames > 40
        (found,) = reader.read_lines(444_444, 1)
        assert b"%09d" % 444_443 in found.raw
        assert reader.unpacked <= 2
    with store.reader(blob.key) as reader:
        around = reader.read_at_offset(found.offset + 5, before=3, after=3)
        assert [near.number for near in around] == list(range(444_441, 444_448))
        assert reader.unpacked <= 2


def test_the_same_content_is_kept_once(store: BlobStore, tmp_path: Path) -> None:
    first, again = (store.put(io.BytesIO(b"one\ntwo\n")) for _ in range(2))
    assert first == again
    assert len(list((tmp_path / "blobs").rglob("*.zst"))) == 1


def test_any_zstd_tool_can_unpack_a_blob(store: BlobStore, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    blob = store.put(io.BytesIO(content))
    with (tmp_path / "blobs" / blob.key).open("rb") as file:
        plain = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        assert plain.read() == content


def test_a_source_that_breaks_leaves_nothing_behind(store: BlobStore, tmp_path: Path) -> None:
    class Breaks(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("cable pulled")

    with pytest.raises(OSError, match="cable pulled"):
        store.put(Breaks())
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-1], lambda raw: raw[: len(raw) // 2], lambda raw: b"", lambda raw: b"x" * 90]
)
def test_a_damaged_blob_is_an_error_and_never_wrong_lines(store: BlobStore, tmp_path: Path, damage: object) -> None:
    blob = store.put(io.BytesIO(b"some line\n" * 5000))
    path = tmp_path / "blobs" / blob.key
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(BlobError), store.reader(blob.key) as reader:
        reader.read_lines(1, 5000)


def test_flipped_bytes_inside_a_frame_are_noticed(store: BlobStore, tmp_path: Path) -> None:
    blob = store.put(io.BytesIO(os.urandom(5000)))
    path = tmp_path / "blobs" / blob.key
    raw = bytearray(path.read_bytes())
    raw[2000] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(BlobError), store.reader(blob.key) as reader:
        reader.read_range(0, 5000)


@pytest.mark.parametrize(
    "key", ["", "../secret", "aa/../../etc/passwd", "ab/" + "c" * 64, "/etc/passwd", "AB/" + "C" * 64 + ".zst"]
)
def test_what_is_no_key_opens_nothing(store: BlobStore, key: str) -> None:
    assert not store.has(key)
    with pytest.raises(BlobError):
        store.reader(key)
