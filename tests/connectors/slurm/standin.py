"""A program in sacct's place that answers from a table of records, as sacct's manual says, for tests without root.

What of it was checked against the real one: the columns, `--helpformat`, ends inside of the window with `--state`,
duplicates with `-D`, and `-j` of an array or heterogeneous job giving all its parts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("JobID", "JobIDRaw", "State", "ExitCode", "Reason", "NodeList", "Submit", "Start", "End", "User", "UID",
           "Partition", "JobName", "WorkDir", "SubmitLine", "Cluster")  # fmt: skip
SEPARATOR = "\x1f"
_PROGRAM = """\
#!{python}
import datetime, sys, time
here = {here!r}
options = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:] if "=" in word)
with open(here + "/calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]).replace("\\x1f", "|") + "\\n")
if "--helpformat" in sys.argv:
    sys.exit(print(open(here + "/columns").read()))
records = [line.split("\\x1f") for line in open(here + "/records").read().split("\\x1e") if line]
columns = open(here + "/columns").read().split()
at = lambda text: datetime.datetime.fromisoformat(text + "+00:00").timestamp()
def wanted(record):
    cells = dict(zip(columns, record))
    if "jobs" in options:
        own = cells["JobID"].split(".")[0].split("+")[0]
        return any(own == job or own.split("_")[0] == job for job in options["jobs"].split(","))
    if cells["State"].split()[0] not in options["state"].split(",") or not cells["End"].isdigit():
        return cells["State"] == "RUNNING" and "RUNNING" in options["state"].split(",")
    return at(options["starttime"]) <= int(cells["End"]) <= at(options["endtime"])
if "starttime" in options and at(options["endtime"]) - at(options["starttime"]) > {most}:
    time.sleep(60)
print(options["delimiter"].join(options["format"].split(",")))
for record in records:
    cells = dict(zip(columns, record))
    if len(record) < len(columns):
        print(options["delimiter"].join(record + [""] * (len(columns) - len(record)) + ["", ""]))
    elif wanted(record):
        print(options["delimiter"].join(cells[name] for name in options["format"].split(",")))
"""


class Accounting:
    """The records, and the folder of the program that tells them."""

    def __init__(self, folder: Path, *, longest_window: float = 1e12) -> None:
        """`longest_window`: seconds; with longer ones the program does not end in time."""
        self.folder = folder
        self.rows: list[dict[str, str]] = []
        folder.mkdir(exist_ok=True)
        (folder / "columns").write_text(" ".join(COLUMNS))
        (folder / "calls").touch()
        program = folder / "sacct"
        program.write_text(_PROGRAM.format(python=sys.executable, here=str(folder), most=longest_window))
        program.chmod(0o755)
        self.write()

    def add(self, job: str, end: float | None, **cells: Any) -> dict[str, str]:
        """A record of a job that ran for a minute, or still runs."""
        start = int(end if end is not None else 1_796_000_000) - 60
        row = {
            "JobID": job, "JobIDRaw": job.split("_")[0].split("+")[0], "State": "FAILED", "ExitCode": "1:0",
            "Reason": "None",
            "NodeList": "gx-[01-02]", "Submit": str(start - 10), "Start": str(start),
            "End": str(int(end)) if end is not None else "Unknown", "User": "mlin", "UID": "20031", "Partition": "gpu",
            "JobName": "train", "WorkDir": "/home/mlin", "SubmitLine": "sbatch train.sh", "Cluster": "alpine",
            **{name: str(value) for name, value in cells.items()},
        }  # fmt: skip
        self.rows.append(row)
        return row

    def write(self, raw: Sequence[str] = ()) -> None:
        """Makes the program tell the rows as they are now, and `raw` as broken records."""
        lines = [SEPARATOR.join(row[name] for name in COLUMNS) for row in self.rows]
        (self.folder / "records").write_text("\x1e".join([*lines, *raw]))

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def settings(self, **more: Any) -> Mapping[str, Any]:
        return {"name": "alpine", "bin_dir": str(self.folder), **more}
