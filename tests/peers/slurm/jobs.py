"""Jobs that end in every way, run on the test cluster; each known by a word."""

from __future__ import annotations

import time

import msgspec

from tests.peers.slurm.cluster import USER, Cluster

_TRAIN = """\
import os, time
rank = int(os.environ["SLURM_PROCID"])
for step in range(1, 4):
    print(f"iteration {step}/1000 | loss: {3.0 / step:.3f} | rank {rank}", flush=True)
    time.sleep(0.3)
if rank == 2:
    raise KeyError("layer.7.weight")
time.sleep(2)
"""
_STEPS = "#!/bin/bash\nfor i in $(seq 600); do echo iteration $i/600; sleep 1; done\n"
_HELLO = "#!/bin/bash\necho hello from $SLURM_JOB_ID\n"


class Jobs(msgspec.Struct):
    """The ids of the jobs, by what became of them."""

    began: float
    ids: dict[str, str] = {}
    ended: float = 0.0


def run_jobs(cluster: Cluster) -> Jobs:
    """Submits all of them and waits until each has ended; about a minute and a half, for the shortest time limit."""
    work = cluster.work
    (work / "train.py").write_text(_TRAIN)
    (work / "logs").mkdir()
    (work / "logs").chmod(0o777)
    jobs = Jobs(began=time.time())
    ids = jobs.ids
    ids["limit"] = cluster.submit(_STEPS, "-N1", "-wn1", "-J", "too-long", "-t1")
    ids["cancelled"] = cluster.submit(
        _STEPS, "-N1", "-wn1", "-J", "stopped", "-o", "logs/%x-%j.out", "-e", "logs/%x-%j.err"
    )
    ids["node"] = cluster.submit(_STEPS, "-N2", "-wn3,n4", "--no-requeue", "-J", "unlucky")
    ids["requeued"] = cluster.submit(_STEPS, "-N1", "-wn1", "-J", "again", "--requeue", "-o", "again-%j.out")
    ids["python"] = cluster.submit(
        "#!/bin/bash\nsrun -o logs/train-%j-%t.log python3 train.py\n", "-N4", "-n4", "-J", "py|train", "--time=5"
    )
    ids["memory"] = cluster.submit(
        "#!/bin/bash\nsrun python3 -c 'import time; x = bytearray(400 * 2**20); time.sleep(20)'\n",
        "-N1", "-wn2", "--mem=150", "-J", "hungry",
    )  # fmt: skip
    ids["completed"] = cluster.submit(_HELLO, "-N1", "-wn2", "-J", "fine")
    ids["array"] = cluster.submit(
        "#!/bin/bash\nexit $SLURM_ARRAY_TASK_ID\n", "-n1", "-wn2", "--array=0-2", "-J", "many"
    )
    het = _script(cluster, "#!/bin/bash\nexit 3\n")
    options = ["--parsable", "-J", "mixed", "-n1", "-wn1", ":", "-n1", "-wn2", het]
    ids["het"] = cluster.run("sbatch", *options, user=USER).strip()
    ids["never"] = cluster.submit(_HELLO, "-N1", "-J", "held", "--hold")
    for name in ("limit", "cancelled", "node", "requeued"):
        cluster.wait_for(lambda job=ids[name]: cluster.state(job) == "RUNNING", f"job {name}")  # type: ignore[misc]
    cluster.wait_for(lambda: "FAILED" in cluster.state(ids["python"]), "end of the Python job")
    time.sleep(1)
    cluster.run("scancel", ids["cancelled"], user=USER)
    cluster.run("scancel", ids["never"])
    cluster.run("scontrol", "requeue", ids["requeued"])
    cluster.run("scontrol", "update", "nodename=n4", "state=down", "reason=power supply lost")
    cluster.wait_for(lambda: cluster.state(ids["requeued"]) == "PENDING", "requeue")
    time.sleep(3)  # slurmd refuses a credential of the second in which the first run's was revoked
    cluster.run("scontrol", "update", f"jobid={ids['requeued']}", "starttime=now")
    cluster.wait_for(lambda: cluster.state(ids["requeued"]) == "RUNNING", "second run")
    cluster.run("scancel", ids["requeued"])
    cluster.wait_for(lambda: cluster.state(ids["limit"]) == "TIMEOUT", "time limit", 150)
    cluster.wait_for(
        lambda: "TIMEOUT" in cluster.run("sacct", "-n", "-X", "-P", "-o", "State", "-j", ids["limit"]), "record"
    )
    jobs.ended = time.time()
    return jobs


def _script(cluster: Cluster, text: str) -> str:
    file = cluster.work / "het.sh"
    file.write_text(text)
    return str(file)
