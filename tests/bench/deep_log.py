"""A long log of one attempt, with the decisive line near its end: what a permalink has to open at once."""

from __future__ import annotations

import io
from dataclasses import dataclass

from engine import model as engine
from triage.models import Diagnosis, Stream
from triage.services.attempts import record_attempt
from triage.services.diagnoses import record_diagnosis
from triage.services.sources import blob_store
from triage.services.triage import begin_triage, lease_diagnosis, request_triage

NAME = "applog/deep.log"
LINE = "2026-11-03 04:%02d:%02d,%03d INFO rank %4d | step %10d | loss 2.1234 | lr 3.0e-04 | grad norm 0.8131\n"
DECISIVE = "2026-11-03 04:59:59,000 ERROR rank    7 | the line that decides\n"
DEPTH = 0.9
"""How deep the decisive line lies."""


@dataclass(frozen=True)
class DeepLog:
    """The attempt that has it."""

    attempt: int
    ref: str
    """Of the evidence that is the decisive line."""
    stream: str
    lines: int


def deep_log(size: int) -> DeepLog:
    """An attempt with a log of `size` bytes; made once, found again the next time."""
    model = Diagnosis.objects.exclude(rule="").order_by("-id").first()
    assert model is not None, "no failure with a cause"
    contract = model.contract
    ref = contract["root_cause"]["evidence"][0]
    workload = engine.Workload(id=f"deep-{size}", name="deep-log", scheduler="static", cluster="bench")
    attempt, _ = record_attempt(engine.Attempt(workload=workload, state="FAILED"))
    if attempt.diagnosis_id is None:
        source = _Lines(size)
        stored = blob_store().put(source)  # type: ignore[arg-type]  # it reads like a file
        facts = {"source": "applog", "size": stored.size, "lines": stored.lines, "sha256": stored.sha256}
        Stream.objects.update_or_create(attempt=attempt, name=NAME, defaults={**facts, "blob": stored.key})
        item = next(item for item in contract["evidence"] if item["id"] == ref)
        item |= {"stream": NAME, "source": "applog", "line": source.decisive_line, "offset": source.decisive_at}
        item |= {"text": DECISIVE.rstrip("\n"), "before": [], "after": []}
        request_triage(attempt.pk)
        begin_triage(attempt.pk)
        lease = lease_diagnosis(attempt.pk)
        assert lease is not None and record_diagnosis(lease, contract, evidence=NAME) is not None
    stream = Stream.objects.get(attempt=attempt, name=NAME)
    return DeepLog(attempt.pk, ref, NAME, stream.lines)


class _Lines(io.RawIOBase):
    """Endless output of a trainer, cut at a size, as a file; it is made while it is read."""

    def __init__(self, size: int) -> None:
        self.size, self.made, self.number = size, 0, 0
        self.decisive_line, self.decisive_at = 0, 0
        self._pending = bytearray()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while len(self._pending) < size and self.made < self.size:
            self._more()
        block = bytes(self._pending[:size])
        del self._pending[:size]
        return block

    def _more(self) -> None:
        first = self.number
        lines = [
            LINE % (step // 60000 % 60, step // 1000 % 60, step % 1000, step % 4096, step)
            for step in range(first, first + 10_000)
        ]
        if not self.decisive_line and self.made >= self.size * DEPTH:
            self.decisive_at, self.decisive_line = self.made, first + 1
            lines[0] = DECISIVE
        block = "".join(lines).encode()
        self.number += len(lines)
        self.made += len(block)
        self._pending += block
