"""Which files a job wrote: by scontrol, accounting, its script, its steps; and how % symbols become names."""

from __future__ import annotations

import re

import pytest

from connectors.slurm.history import Execution
from connectors.slurm.outputs import Output, command_options, components, outputs
from connectors.slurm.parser import JobId, Row


def row(job: str = "1234", **changes: object) -> Row:
    values: dict[str, object] = {
        "id": JobId.parse(job), "raw_id": 1234, "state": "FAILED", "exit_code": "1:0", "reason": None,
        "nodes": ("gx-01.cluster", "gx-02.cluster"), "submit": 1.0, "start": 2.0, "end": 3.0, "name": "train",
        "user": "mlin",
        "work_dir": "/home/mlin/run", "submit_line": "sbatch train.sh",
    }  # fmt: skip
    return Row(**{**values, **changes})  # type: ignore[arg-type]


def execution(*steps: Row, **changes: object) -> Execution:
    job = str(changes.pop("job", "1234"))
    return Execution(workload=job, number=2, allocations=(row(job, **changes),), steps=steps)


def paths(found: list[Output]) -> list[str]:
    return [one.path for one in found]


def test_what_the_controller_tells_comes_first() -> None:
    detail = {"JobId": "1234", "StdOut": "/logs/a.out", "StdErr": "/logs/a.err", "WorkDir": "/x"}
    assert paths(outputs(execution(stdout="/logs/%j.out"), [detail], "")) == ["/logs/a.out", "/logs/a.err"]


def test_the_same_file_is_named_once() -> None:
    detail = {"JobId": "1234", "StdOut": "/logs/a.out", "StdErr": "/logs/a.out"}
    assert paths(outputs(execution(), [detail], "")) == ["/logs/a.out"]


def test_then_what_accounting_tells_then_the_command_line_and_the_script() -> None:
    assert paths(outputs(execution(stdout="logs/%j.out", stderr=""), [], "")) == ["/home/mlin/run/logs/%j.out"]
    script = "#!/bin/bash\n\n#SBATCH --output=a-%j.out # not b\n#SBATCH -e 'e %x.err'\n#SBATCH -D /scratch/run\n"
    script += "srun x\n#SBATCH -o late\n"
    assert paths(outputs(execution(), [], script)) == ["/scratch/run/a-%j.out", "/scratch/run/e %x.err"]
    by_line = execution(submit_line="sbatch -o cli.out --chdir=/elsewhere train.sh -o not-this")
    assert paths(outputs(by_line, [], script)) == ["/elsewhere/cli.out", "/elsewhere/e %x.err"]


def test_then_slurms_default_which_is_told_to_be_a_guess() -> None:
    [plain] = outputs(execution(), [], "")
    assert (plain.path, plain.guessed) == ("/home/mlin/run/slurm-%j.out", True)
    assert paths(outputs(execution(job="1230_4"), [], "")) == ["/home/mlin/run/slurm-%A_%a.out"]


def test_an_interactive_job_wrote_to_a_terminal() -> None:
    assert outputs(execution(submit_line="srun -N2 train"), [], "") == []
    assert outputs(execution(), [{"JobId": "1234", "BatchFlag": "0"}], "") == []


def test_files_of_steps_come_from_their_command_lines() -> None:
    step = row("1234.0", submit_line="srun --output=logs/%N-%t.log -e none python -o x", nodes=("gx-01.cluster",))
    found = outputs(execution(step), [{"JobId": "1234", "StdOut": "/dev/null"}], "")
    assert [(one.what, one.path) for one in found] == [
        ("stdout", "/dev/null"), ("stdout of step 0", "/home/mlin/run/logs/%N-%t.log"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("sbatch -oa -e b --chdir=/c x.sh", {"output": "a", "error": "b", "chdir": "/c"}),
        ("sbatch --output a=b.out x.sh", {"output": "a=b.out"}),
        ("sbatch -N4 -n 4 -J py|train -o out x.sh -o no", {"name": "py|train", "output": "out"}),
        ("srun -N 2 -l -o out-%t python -e no", {"output": "out-%t"}),
        ("sbatch 'broken -o x", {}),
        ("sbatch --hold x.sh -o no", {}),
        ("sbatch --mem 150 -o yes x.sh", {"output": "yes"}),
        ("sbatch", {}),
        ("", {}),
    ],
)
def test_options_of_command_lines(line: str, options: dict[str, str]) -> None:
    assert command_options(line) == options


def resolved(path: str, *, step: bool = False, **changes: object) -> str:
    one = execution(**changes)
    output = Output("stdout", path, row("1234.7") if step else one.leader, is_step=step)
    return "/" + "/".join(part if isinstance(part, str) else part.pattern for part in components(output, one))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/l/%j-%x-%u.out", "/l/1234-train-mlin.out"),
        ("/l/%6j.out", "/l/001234.out"),
        ("/l/%A_%a.out", "/l/1234_4294967294.out"),
        ("/l/%N-%n-%t.out", "/l/gx-01-0-0.out"),
        ("/l/100%%.out", "/l/100%.out"),
        ("/l/%q.out", "/l/%q.out"),
        ("/l/\\%j.out", "/l/%j.out"),
        ("/l/../m/./%j", "/m/1234"),
    ],
)
def test_symbols_of_a_batch_script(path: str, name: str) -> None:
    assert resolved(path) == name


def test_symbols_of_an_array_task_and_a_step() -> None:
    assert resolved("/l/%A_%3a_%b.out", job="1230_14") == "/l/1230_014_4.out"
    assert resolved("/l/%J-%s.out", step=True) == "/l/1234.7-7.out"


def test_a_jobs_name_with_a_slash_is_a_folder_and_never_leads_up_unseen() -> None:
    assert resolved("/l/%x.out", name="a/b") == "/l/a/b.out"
    parts = components(Output("stdout", "/l/%x", row(name="../../etc/passwd")), execution(name="../../etc/passwd"))
    assert parts == ["l", "..", "..", "etc", "passwd"], "access.py refuses what this leads to"


def test_tasks_and_nodes_of_a_step_are_patterns() -> None:
    output = Output("stdout", "/l/%N/rank-%3t.log", row("1234.0"), is_step=True)
    folder, node, name = components(output, execution())
    assert folder == "l" and isinstance(node, re.Pattern) and isinstance(name, re.Pattern)
    assert node.fullmatch("gx-02") and not node.fullmatch("gx-03") and not node.fullmatch("gx-01x")
    found = name.fullmatch("rank-007.log")
    assert found and found["rank"] == "007"
    twice = components(Output("stdout", "/l/%t-%t.log", row("1234.0"), is_step=True), execution())[1]
    assert isinstance(twice, re.Pattern) and twice.fullmatch("3-3.log") and not twice.fullmatch("3-4.log")
