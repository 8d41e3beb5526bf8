"""A job whose log tells no times, ended from outside: whether it stood still is told by its nodes' kernels."""

from __future__ import annotations

from engine.model import Diagnosis
from tests.engine.evidence import made_of
from tests.engine.rules.test_hardware_diagnoses import verdict

SILENT = "nfs: server home01 not responding, still trying"
HANGS = "INFO: task python:61377 blocked for more than 120 seconds."
STEPS = "".join(f"epoch: {n}/12000 loss 0.{900 - n}\n" for n in range(1, 200))


def ended(said: dict[str, str], *, hangs: str | None = "04:07:10", until: str = "04:30:00") -> Diagnosis:
    """What kernels of all four nodes said, by the time of day; the attempt runs from 04:00 on until it is cancelled."""
    said = {**said, **({hangs: HANGS} if hangs else {})}
    logs = {
        f"syslog/node-0{n}.log": "".join(
            f"2026-11-03T{at}+00:00 node-0{n} kernel: {text}\n" for at, text in sorted(said.items())
        )
        for n in range(1, 5)
    }
    made = made_of({"applog/job.log": STEPS, **logs}, state="CANCELLED by 5107")
    made.document["attempt"]["ended_at"] = f"2026-11-03T{until}Z"
    return made.diagnosed()


UNTIL_THE_END = {f"04:{minute:02d}:00": SILENT for minute in (5, 9, 14, 22)}


def test_a_job_that_somebody_ended_because_its_files_had_stopped_coming_hung() -> None:
    found = ended(UNTIL_THE_END)
    assert (found.outcome, *verdict(found)) == ("hung", "storage/shared_filesystem", ())


def test_without_a_process_that_hangs_the_server_may_be_none_of_the_jobs() -> None:
    assert ended(UNTIL_THE_END, hangs=None).outcome == "cancelled"


def test_what_was_over_long_before_the_end_did_not_hang_the_job() -> None:
    assert ended({"04:05:00": SILENT, "04:08:00": SILENT}).outcome == "cancelled"


def test_a_server_that_answered_again_did_not_hang_the_job() -> None:
    assert ended({**UNTIL_THE_END, "04:25:00": "nfs: server home01 OK"}).outcome == "cancelled"


def test_the_longer_a_mount_waits_the_seldomer_it_need_say_so() -> None:
    waited = {f"0{hour}:{minute:02d}:00": SILENT for hour in (4, 5, 6) for minute in (15, 45)}
    assert ended(waited, hangs="04:17:10", until="07:10:00").outcome == "hung"
    assert ended({"04:15:00": SILENT, "04:45:00": SILENT}, hangs="04:17:10", until="07:10:00").outcome == "cancelled"
