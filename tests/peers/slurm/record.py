"""Records what a real cluster prints, with invented names: `python -m tests.peers.slurm.record FOLDER`, as root.

The recordings let parsing be tested without root; they are renewed when a newer Slurm prints something else.
"""

from __future__ import annotations

import re
import socket
import sys
import tempfile
from pathlib import Path

from connectors.http import Deadline
from connectors.slurm.client import CommandClient
from connectors.slurm.config import SlurmConfig
from connectors.slurm.parser import FIELDS
from tests.peers.slurm.cluster import NODES, Cluster
from tests.peers.slurm.jobs import Jobs, run_jobs


def record(cluster: Cluster, jobs: Jobs, folder: Path) -> None:
    """Writes what each client prints of the jobs into `folder`."""
    config = SlurmConfig.parse({"environment": {"SLURM_CONF": str(cluster.conf)}})
    client = CommandClient(config, Deadline(60))
    runner = config.runner
    known = runner.run(["sacct", "--helpformat"], Deadline(10)).decode().split()
    columns = ",".join(field for field in FIELDS if field in known)
    command = ["sacct", "-a", "-D", "--starttime=2020-01-01", "--endtime=now", f"--state={','.join(config.states)}"]
    command += ["--parsable2", "--delimiter=\x1f", f"--format={columns}"]
    printed = {
        "sacct.txt": runner.run(command, Deadline(30), environment={"TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}).decode(),
        "helpformat.txt": " ".join(known) + "\n",
        "nodes.txt": client.nodes(NODES),
        **{f"job-{name}.txt": client.job(job) for name, job in jobs.ids.items() if name in ("python", "array", "het")},
        "queue.txt": client.queue(jobs.ids["python"]),
        "script.txt": client.batch_script(jobs.ids["python"]),
        "slurmctld.log": (cluster.folder / "log" / "slurmctld.log").read_text(),
        "slurmd-n2.log": (cluster.folder / "log" / "slurmd-n2.log").read_text(),
        "ids.txt": "".join(f"{name} {job}\n" for name, job in jobs.ids.items()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in printed.items():
        (folder / name).write_text(invented(text, cluster))


def invented(text: str, cluster: Cluster) -> str:
    """Without anything of the machine that it was recorded on."""
    for old, new in (
        (str(cluster.folder / "work"), "/scratch/mlin"), (str(cluster.folder), "/var/lib/alpine"), ("nobody", "mlin"),
        ("nogroup", "ml"), ("65534", "20031"),
    ):  # fmt: skip
        text = text.replace(old, new)
    text = re.sub(rf"\b(?:{re.escape(socket.gethostname())}|localhost)\b", "head1", text)
    return re.sub(r"(?m)^( *OS=).*$", r"\1Linux 5.15.0 #1 SMP ", text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, Cluster(Path(folder)) as started:
        record(started, run_jobs(started), Path(sys.argv[1]))
