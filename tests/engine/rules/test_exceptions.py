"""What the last line of a traceback means, as a careful expert would say; and what healthy jobs and nodes print."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from engine.model import Role, Source, Stream
from engine.ruleset import load_ruleset
from engine.scan import Hit, Scanner

HERE = Path(__file__).parent
MEANINGS = [
    (means, row["line"], row.get("frames", ["/opt/app/train.py:88 in main"]))
    for means, rows in yaml.safe_load((HERE / "exceptions.yaml").read_text()).items()
    for row in rows
]
HEALTHY = [line for line in (HERE / "healthy.txt").read_text().splitlines() if not line.startswith("#")]
SOURCES = {"A": Source.APPLOG, "S": Source.SYSLOG, "C": Source.SCHEDULER}


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(load_ruleset())


def possible_roots(scanner: Scanner, text: str, source: Source = Source.APPLOG) -> list[Hit]:
    content = f"{text}\n".encode()
    stream = Stream(name="log", source=source, open=lambda: io.BytesIO(content), size=len(content))
    return [hit for hit in scanner.scan(stream).hits if hit.rule.role in (Role.CAUSE, Role.EITHER)]


def traceback(last: str, frames: list[str]) -> str:
    lines = ["Traceback (most recent call last):"]
    for frame in frames:
        place, _, function = frame.partition(" in ")
        path, _, number = place.rpartition(":")
        lines += [f'  File "{path}", line {number}, in {function}', "    step(batch)"]
    return "\n".join([*lines, last])


@pytest.mark.parametrize(("means", "last", "frames"), MEANINGS)
def test_an_exception_means_what_an_expert_says(scanner: Scanner, means: str, last: str, frames: list[str]) -> None:
    found = {f"{hit.rule.domain}/{hit.rule.sub_domain}" for hit in possible_roots(scanner, traceback(last, frames))}
    assert found == (set() if means == "symptom" else {means})


@pytest.mark.parametrize("line", HEALTHY)
def test_what_healthy_jobs_and_nodes_print_accuses_nobody(scanner: Scanner, line: str) -> None:
    kind, said = line[0], line[2:]
    text = f"Nov  3 02:10:44 node-01 {said}" if kind == "S" else said
    assert [hit.rule.id for hit in possible_roots(scanner, text, SOURCES[kind])] == []


def test_an_exception_that_a_pool_raises_again_is_judged_by_where_it_was_raised_first(scanner: Scanner) -> None:
    text = "\n".join(
        [
            "multiprocess.pool.RemoteTraceback: ",
            '"""',
            "Traceback (most recent call last):",
            '  File "/usr/lib/python3/site-packages/datasets/arrow_dataset.py", line 3501, in _map_single',
            "    for row in rows",
            "KeyError: 'messages'",
            '"""',
            "",
            "The above exception was the direct cause of the following exception:",
            "",
            "Traceback (most recent call last):",
            '  File "/opt/app/train.py", line 23, in <module>',
            "    main()",
            '  File "/usr/lib/python3/site-packages/multiprocess/pool.py", line 774, in get',
            "    raise self._value",
            "KeyError: 'messages'",
        ]
    )
    assert [(hit.rule.domain, hit.rule.sub_domain) for hit in possible_roots(scanner, text)] == [("software", "data")]
