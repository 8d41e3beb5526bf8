"""A job's log quotes errors that never happened: only those that did may be causes."""

from __future__ import annotations

import io

import pytest

from engine.echo import is_echo
from engine.model import Role, Source, Stream
from engine.ruleset import load_ruleset
from engine.scan import Scanner

QUOTED = (
    '    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")',
    '        logger.error(f"No space left on device: {path}")',
    "# when you see device-side assert triggered, look at the labels",
    "  --on-oom ACTION  what to do on CUDA error: out of memory (default: abort)",
    "If you see an illegal memory access was encountered, rerun with compute-sanitizer",
    "[response] The message No space left on device means that the disk is full.",
    "generated text: Segmentation fault, No space left on device",
    "previous attempt failed: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "WARNING: No space left on device; retrying (attempt 1/5)",
    "cache write failed: Disk quota exceeded, falling back to no cache",
)
HAPPENED = (
    "RuntimeError: CUDA error: device-side assert triggered",
    "tar: shard-7.tar: Cannot write: No space left on device",
    "write failed: Disk quota exceeded, not retrying",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=48213.0. Some of the step tasks have been OOM Killed.",
    "[node-01:41377:0:41377] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)",
)


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(load_ruleset())


def may_be_root(scanner: Scanner, line: str, source: Source = Source.APPLOG) -> bool:
    stream = Stream(name="a", source=source, open=lambda: io.BytesIO(f"{line}\n".encode()), size=len(line) + 1)
    return any(hit.rule.role in (Role.CAUSE, Role.EITHER) for hit in scanner.scan(stream).hits)


@pytest.mark.parametrize("line", QUOTED)
def test_words_of_an_error_that_are_only_quoted_or_dealt_with_accuse_nobody(scanner: Scanner, line: str) -> None:
    assert is_echo(line)
    assert not may_be_root(scanner, line)


@pytest.mark.parametrize("line", HAPPENED)
def test_errors_that_happened_still_count(scanner: Scanner, line: str) -> None:
    assert not is_echo(line)
    assert may_be_root(scanner, line)


def test_the_kernel_quotes_nothing(scanner: Scanner) -> None:
    line = "nvme nvme0: I/O 12 QID 1 timeout, disable controller, retrying later is ignored"
    assert may_be_root(scanner, f"Nov  3 02:10:44 node-01 kernel: {line}", Source.SYSLOG)
