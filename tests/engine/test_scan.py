"""A message is found wherever and however it stands in a file, and its place in the file is right."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from pathlib import Path

import pytest
import zstandard

from engine import blocks, scan
from engine.bundle import file_stream
from engine.diagnose import scanner_of
from engine.scan import Hit, StreamScan
from tests.engine.evidence import ruleset

BOOM = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB"
)
STEP = b"2026-11-03 04:12:09,123 INFO step %d loss 2.31\n"


def scanned(folder: Path, content: bytes, name: str = "applog/train.log") -> StreamScan:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return scanner_of(ruleset()).scan(file_stream(file, name))


def the_hit(folder: Path, content: bytes, name: str = "applog/train.log") -> Hit:
    hits = [hit for hit in scanned(folder, content, name).hits if "out of memory" in hit.text]
    assert len(hits) == 1, hits
    return hits[0]


def steps(number: int) -> bytes:
    return b"".join(STEP % n for n in range(number))


@pytest.mark.parametrize("end", [b"\n", b"", b"\r\n", b"\n\n\n", b"\r"])
def test_the_place_of_a_line_is_right_whatever_ends_it(tmp_path: Path, end: bytes) -> None:
    before = steps(100)
    hit = the_hit(tmp_path, before + BOOM + end)
    assert (hit.line, hit.offset, hit.text) == (101, len(before), BOOM.decode())


@pytest.mark.parametrize("number", [1, 14_000, 30_000, 60_000])
def test_the_place_of_a_line_is_right_in_every_block(tmp_path: Path, number: int) -> None:
    before = steps(number)
    result = scanned(tmp_path, before + BOOM + b"\n" + steps(1000))
    hit = next(hit for hit in result.hits if "out of memory" in hit.text)
    assert (hit.line, hit.offset) == (number + 1, len(before))
    assert result.lines == number + 1001
    assert result.bytes == len(before) + len(BOOM) + 1 + len(steps(1000))


def test_blank_lines_and_carriage_returns_count_as_their_writer_counted_them(tmp_path: Path) -> None:
    hit = the_hit(tmp_path, b"\n\n\r\n" + b"a\rb\rc\n" + BOOM)
    assert hit.line == 5


def test_utf16_is_read_by_its_byte_order_mark(tmp_path: Path) -> None:
    text = "".join(f"schritt {n} größe 😀\n" for n in range(40_000)) + BOOM.decode() + "\n"
    for encoding in ("utf-16-le", "utf-16-be"):
        content = "\ufeff".encode(encoding) + text.encode(encoding)
        hit = the_hit(tmp_path, content)
        assert hit.line == 40_001
        assert hit.text == BOOM.decode()


def test_a_utf8_byte_order_mark_hides_nothing(tmp_path: Path) -> None:
    hit = the_hit(tmp_path, b"\xef\xbb\xbf" + BOOM + b"\n")
    assert (hit.line, hit.text) == (1, BOOM.decode())


def test_bad_bytes_nul_and_colours_hide_nothing(tmp_path: Path) -> None:
    spoiled = b"\xff\xfe\xfa\x00 \x80\n" * 50 + b"\x1b[31m" + BOOM.replace(b"CUDA", b"\x1b[1mCU\x00DA\x1b[0m") + b"\n"
    hit = the_hit(tmp_path, b"start\n" + spoiled)
    assert (hit.line, hit.text) == (52, BOOM.decode())


def test_an_unfinished_terminal_sequence_cannot_swallow_the_lines_behind_it(tmp_path: Path) -> None:
    hit = the_hit(tmp_path, b"\x1b]0;title\n" + BOOM + b"\nbell \x07\n")
    assert hit.line == 2


def test_a_message_behind_a_progress_bar_is_found(tmp_path: Path) -> None:
    bars = b"\r".join(b"Epoch 1: %3d%%|###   | %d/100 [00:10<00:10,  5.00it/s]" % (n, n) for n in range(100))
    hit = the_hit(tmp_path, bars + b"\r" + BOOM + b"\n")
    assert (hit.line, hit.text) == (1, BOOM.decode())


def test_a_message_deep_in_a_line_of_megabytes_is_found_and_shown_cut(tmp_path: Path) -> None:
    bars = b"\r".join(b"Epoch 1: %5d/99999 [00:10<00:10,  5.00it/s]" % n for n in range(60_000))
    content = b"begin\n" + bars + b"\r" + BOOM + b"\r" + bars + b"\n"
    hit = the_hit(tmp_path, content)
    assert (hit.line, hit.offset, hit.text) == (2, 6, BOOM.decode())
    flat = b"x" * 3_000_000
    assert BOOM.decode() in the_hit(tmp_path, flat + b" " + BOOM + b" " + flat).text


def test_a_message_in_a_long_json_line_is_found(tmp_path: Path) -> None:
    said = json.dumps({"pad": "x" * 100_000, "message": f"[rank3]: {BOOM.decode()}", "ts": 1793679129.0})
    hit = the_hit(tmp_path, said.encode())
    assert (hit.text, hit.cleaned.rank) == (BOOM.decode(), 3)


CRI = "2026-11-03T04:12:{:02d}.000000001Z {} {} {}\n"


def test_parts_of_a_line_are_joined_across_the_other_stream_s_lines(tmp_path: Path) -> None:
    said = BOOM.decode()
    content = (
        CRI.format(1, "stdout", "F", "step 1")
        + CRI.format(2, "stderr", "P", f"[rank3]: {said[:22]}")
        + CRI.format(2, "stdout", "F", "step 2")
        + CRI.format(2, "stderr", "P", said[22:40])
        + CRI.format(3, "stderr", "F", said[40:])
        + CRI.format(4, "stdout", "F", "step 3")
    )
    hit = the_hit(tmp_path, content.encode())
    assert (hit.line, hit.text, hit.cleaned.rank) == (2, said, 3)
    assert hit.offset == len(CRI.format(1, "stdout", "F", "step 1"))


@pytest.mark.parametrize("block", [256, 1000, 4096, 1 << 20])
def test_parts_are_joined_across_blocks(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", block)
    said = BOOM.decode()
    lines = [CRI.format(1, "stdout", "F", f"step {n}") for n in range(20)]
    halves = [CRI.format(2, "stderr", "P", said[:40]), CRI.format(2, "stderr", "F", said[40:])]
    hit = the_hit(tmp_path, "".join([*lines, *halves, *lines]).encode())
    assert (hit.line, hit.text) == (21, said)


def test_a_part_that_never_ends_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    assert the_hit(tmp_path, CRI.format(2, "stderr", "P", BOOM.decode()).encode()).line == 1


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz", ".bz2"])
def test_compressed_logs_are_read_as_what_they_hold(tmp_path: Path, suffix: str) -> None:
    plain = steps(30_000) + BOOM + b"\n"
    packed = {
        ".gz": gzip.compress(plain[:500_000]) + gzip.compress(plain[500_000:]),
        ".zst": zstandard.compress(plain[:500_000]) + zstandard.compress(plain[500_000:]),
        ".xz": lzma.compress(plain),
        ".bz2": bz2.compress(plain),
    }[suffix]
    hit = the_hit(tmp_path, packed, f"applog/node-07.rank-3.log{suffix}")
    assert (hit.line, hit.text) == (30_001, BOOM.decode())


def test_utf16_inside_gzip_is_read(tmp_path: Path) -> None:
    content = gzip.compress("\ufeff".encode("utf-16-le") + ("x\n" * 5 + BOOM.decode()).encode("utf-16-le"))
    assert the_hit(tmp_path, content, "applog/train.log.gz").line == 6


def test_thousands_of_the_same_line_are_counted_and_few_are_kept(tmp_path: Path) -> None:
    hits = [hit for hit in scanned(tmp_path, (BOOM + b"\n") * 5000).hits if "out of memory" in hit.text]
    assert sum(hit.count for hit in hits) == 5000
    assert len(hits) <= scan.FIRST_KEPT + 1
    assert (hits[0].line, hits[-1].line) == (1, 5000)


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    result = scanned(tmp_path, b"")
    assert (result.lines, result.bytes, result.hits) == (0, 0, [])
    assert scanned(tmp_path, b"\n").lines == 1


def test_context_is_what_stands_around_the_line(tmp_path: Path) -> None:
    hit = the_hit(tmp_path, b"1\n2\n3\n4\n" + BOOM + b"\n6\n7\n")
    assert (hit.around.before, hit.around.after) == (["2", "3", "4"], ["6", "7"])
