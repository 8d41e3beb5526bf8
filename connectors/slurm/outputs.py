"""Which files a job wrote its output to: from what Slurm tells, else from its script and command lines."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec

from connectors.slurm.history import Execution
from connectors.slurm.parser import Row, known

_DIRECTIVE = re.compile(r"^#SBATCH\s+(.+)$")
_TOKEN = re.compile(r"%(?P<width>\d*)(?P<kind>[A-Za-z%])")
_NO_TASK = "4294967294"
"""What %a is in a job that is no array."""
_OPTIONS = {"-o": "output", "--output": "output", "-e": "error", "--error": "error", "-D": "chdir", "--chdir": "chdir",
            "-J": "name", "--job-name": "name"}  # fmt: skip

_FLAGS = {
    "--parsable", "--hold", "-H", "--requeue", "--no-requeue", "--exclusive", "--wait", "-W", "--contiguous", "--quiet",
    "-Q", "--verbose", "-v", "--label", "-l", "--overcommit", "-O", "--overlap", "--unbuffered", "-u", "--pty",
    "--no-kill", "-k", "--share", "-s", "--spread-job", "--test-only", "--exact", "--kill-on-bad-exit",
    "-K", "--ignore-pbs",
}  # fmt: skip
"""Options without a value, so that the next word is the program."""


class Output(msgspec.Struct, frozen=True):
    """One place where output was written."""

    what: str
    """stdout | stderr, with the step where it is one's own."""
    path: str
    """Absolute, maybe with % symbols."""
    row: Row
    is_step: bool = False
    guessed: bool = False
    """Nothing tells the path, so it is Slurm's default."""


def outputs(execution: Execution, details: Sequence[dict[str, str]], script: str) -> list[Output]:
    """Every place, without repeats. `details`: fields of `scontrol show job` for the allocations it still knew."""
    found: list[Output] = []
    for row in execution.allocations[:1] if execution.allocations[0].id.offset is not None else execution.allocations:
        detail = next((fields for fields in details if fields.get("JobId") == str(row.raw_id)), {})
        found += _of_batch(row, detail, script)
    for step in execution.steps:
        if step.id.step not in ("batch", "extern", "interactive"):
            found += _of_step(step, _allocation(execution, step))
    seen: set[str] = set()
    return [one for one in found if not (one.path in seen or seen.add(one.path))]  # type: ignore[func-returns-value]


def _allocation(execution: Execution, step: Row) -> Row:
    return next(row for row in execution.allocations if row.raw_id == step.raw_id)


def _of_batch(row: Row, detail: dict[str, str], script: str) -> list[Output]:
    stdout, stderr = known(detail.get("StdOut", "")), known(detail.get("StdErr", ""))
    work_dir = detail.get("WorkDir") or row.work_dir
    guessed = False
    if stdout is None and (detail.get("BatchFlag") == "0" or not _is_batch(row)):
        return []  # srun and salloc write to the terminal, unless their command line says otherwise
    if stdout is None:
        stdout, stderr = known(row.stdout), known(row.stderr)
    if stdout is None:
        options = {**_options_of(script), **command_options(row.submit_line)}
        work_dir = options.get("chdir") or work_dir
        default = "slurm-%A_%a.out" if row.id.task is not None else "slurm-%j.out"
        stdout, stderr = options.get("output") or default, options.get("error")
        guessed = "output" not in options and not script
    paths = [("stdout", stdout)] + ([("stderr", stderr)] if stderr else [])
    return [
        Output(what, absolute(path, work_dir), row, guessed=guessed)
        for what, path in paths
        if work_dir or path[0] == "/"
    ]


def _is_batch(row: Row) -> bool:
    program = posixpath.basename(row.submit_line.split(" ", 1)[0]) if row.submit_line else "sbatch"
    return program not in ("srun", "salloc")


def _of_step(step: Row, allocation: Row) -> Iterator[Output]:
    options = command_options(step.submit_line)
    work_dir = options.get("chdir") or allocation.work_dir
    for key, what in (("output", "stdout"), ("error", "stderr")):
        path = options.get(key, "")
        if path and path not in ("none", "all") and not path.isdigit() and (work_dir or path[0] == "/"):
            yield Output(f"{what} of step {step.id.step}", absolute(path, work_dir), msgspec.structs.replace(
                allocation, id=step.id, name=options.get("name") or step.name or allocation.name,
                nodes=step.nodes or allocation.nodes), is_step=True)  # fmt: skip


def command_options(line: str) -> dict[str, str]:
    """-o, -e, -D and -J of an sbatch or srun command line, and none of the program that it starts."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    return _options(words[1:])


def _options_of(script: str) -> dict[str, str]:
    """Of the #SBATCH lines, which stand before the first command."""
    found: dict[str, str] = {}
    for line in script.splitlines():
        directive = _DIRECTIVE.match(line)
        if directive:
            try:
                found.update(_options(shlex.split(directive[1], comments=True)))
            except ValueError:
                continue
        elif line.strip() and not line.lstrip().startswith(("#", "-")):
            break
    return found


def _options(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(words):
        word = words[at]
        name, equals, value = word.partition("=")
        if name in _OPTIONS and equals and name.startswith("--"):
            found[_OPTIONS[name]] = value
        elif word in _OPTIONS and at + 1 < len(words):
            at += 1
            found[_OPTIONS[word]] = words[at]
        elif word[:2] in _OPTIONS and len(word) > 2 and not word.startswith("--"):
            found[_OPTIONS[word[:2]]] = word[2:].removeprefix("=")
        elif not word.startswith("-") and not (at and _takes_value(words[at - 1])):
            break  # the program and what belongs to it
        at += 1
    return found


def _takes_value(word: str) -> bool:
    """Whether the next word may be the value of this option."""
    if word in _FLAGS or not word.startswith("-"):
        return False
    return "=" not in word if word.startswith("--") else len(word) == 2


def absolute(path: str, work_dir: str) -> str:
    return path if path.startswith("/") else posixpath.join(work_dir, path)


def components(output: Output, execution: Execution) -> list[str | re.Pattern[str]]:
    """The path, name by name; a name that differs between nodes, tasks or steps is a pattern with groups node, rank,
    index and step.
    """
    plain = "\\" not in output.path
    values = _values(output, execution)
    parts: list[str | re.Pattern[str]] = []
    for name in posixpath.normpath(output.path.replace("\\", "")).strip("/").split("/"):
        parts += _component(name, values, output.row) if plain and "%" in name else [name]
    return parts


def _values(output: Output, execution: Execution) -> dict[str, str]:
    row = output.row
    nodes = tuple(node.split(".")[0] for node in row.nodes)
    step = row.id.step if output.is_step else None
    values = {
        "A": str(row.id.job if row.id.task is not None else row.raw_id),
        "a": row.id.task or _NO_TASK,
        "b": row.id.task[-1] if row.id.task and row.id.task.isdigit() else "0",
        "j": str(row.raw_id),
        "J": f"{row.raw_id}.{step}" if step else str(row.raw_id),
        "s": step or "batch",
        "u": execution.leader.user,
        "x": row.name,
        "r": str(execution.number - 1),
        "%": "%",
    }
    if not output.is_step:  # a batch script runs once, on the first node
        values |= {"t": "0", "n": "0", "N": nodes[0] if nodes else ""}
    return values


def _component(name: str, values: dict[str, str], row: Row) -> list[str | re.Pattern[str]]:
    pattern, plain, groups, at = "", "", set[str](), 0
    for token in _TOKEN.finditer(name):
        before = name[at : token.start()]
        kind, width = token["kind"], min(int(token["width"] or 0), 10)
        at = token.end()
        if kind in values:
            value = values[kind].zfill(width) if values[kind].isdigit() else values[kind]
            pattern, plain = pattern + re.escape(before + value), plain + before + value
        elif kind in ("t", "n", "N"):
            group = {"t": "rank", "n": "index", "N": "node"}[kind]
            hosts = "|".join(re.escape(node.split(".")[0]) for node in row.nodes)
            inner = rf"(?:{hosts})" if kind == "N" and hosts else r"[\w.-]+" if kind == "N" else r"\d+"
            pattern += re.escape(before) + (f"(?P={group})" if group in groups else f"(?P<{group}>{inner})")
            groups.add(group)
        else:
            pattern, plain = pattern + re.escape(before + token[0]), plain + before + token[0]
    if groups:
        return [re.compile(pattern + re.escape(name[at:]))]
    return list(filter(None, (plain + name[at:]).split("/")))  # a job's name may hold a slash
