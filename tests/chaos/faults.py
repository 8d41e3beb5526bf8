"""What is done to an installation. Each fault says in words what it did."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable

from tests.chaos import machine_faults, network_faults, version_faults
from tests.chaos.installation import WORKERS, CannotBeDone, Installation

Fault = Callable[[Installation, random.Random], str]
FILLER = ".filler"


def _killed(*names: str) -> Fault:
    def kill(installation: Installation, chance: random.Random) -> str:
        for name in names:
            time.sleep(chance.uniform(0, 1.5))
            installation.kill(name)
        time.sleep(chance.uniform(0.2, 2))
        for name in names:
            installation.run(name)
        return f"SIGKILL: {', '.join(names)}"

    return kill


def kill_many(installation: Installation, chance: random.Random) -> str:
    """One after the other, each started again at once."""
    names = [chance.choice(("web", *WORKERS, "beat", "postgres", "valkey")) for _ in range(4)]
    for name in names:
        time.sleep(chance.uniform(0.1, 1.2))
        installation.kill(name)
        installation.run(name)
    return f"SIGKILL and start: {', '.join(names)}"


def kill_everything(installation: Installation, chance: random.Random) -> str:
    """As when the machine loses power, but for what the kernel had not yet written."""
    time.sleep(chance.uniform(0.2, 2))
    for name in list(installation.children):
        installation.kill(name)
    return "SIGKILL: everything at once"


def forget_broker(installation: Installation, chance: random.Random) -> str:
    """The broker dies and has lost all that waited in it."""
    installation.kill("valkey")
    for path in sorted((installation.root / "valkey").rglob("*"), reverse=True):
        if path.is_file():
            path.unlink()
    time.sleep(chance.uniform(0.2, 2))
    installation.run("valkey")
    return "SIGKILL: valkey, and its file is gone"


def refuse_connections(installation: Installation, chance: random.Random) -> str:
    """A server is away for a while, and whoever wants it is refused."""
    name = chance.choice(("postgres", "valkey", "web"))
    installation.kill(name)
    seconds = chance.uniform(3, 8)
    time.sleep(seconds)
    installation.run(name)
    return f"connection refused by {name} for {seconds:.0f} s"


def freeze_worker(installation: Installation, chance: random.Random) -> str:
    """It loses its leases and wakes up with work that others have taken over."""
    name = chance.choice(WORKERS)
    installation.freeze(name, 7)  # a lease is four seconds
    return f"SIGSTOP for 7 s: {name}"


def freeze_server(installation: Installation, chance: random.Random) -> str:
    name = chance.choice(("postgres", "valkey"))
    installation.freeze(name, chance.uniform(2, 5))
    return f"SIGSTOP for seconds: {name}"


def same_task_twice(installation: Installation, chance: random.Random) -> str:
    """Every task that may be due, and those of versions before, are sent again and again, to two workers."""
    time.sleep(chance.uniform(0.5, 2))
    code = (
        "from triage.celery import app; from triage.models import *; "
        "asked = Attempt.objects.exclude(triage_requested_at=None).order_by('-pk'); "
        "ids = list(asked.values_list('pk', flat=True)[:20]); "
        "collections = list(Collection.objects.order_by('-pk').values_list('pk', flat=True)[:20]); "
        "[app.send_task(name, args=[pk]) for _ in range(4) for pk in ids "
        "for name in ('triage.triage_attempt', 'triage.diagnose')]; "
        "[app.send_task('triage.collect', args=[pk]) for _ in range(4) for pk in collections]; "
        "[app.send_task('triage.work') for _ in range(40)]; print(len(ids))"
    )
    sent = installation.manage("shell", "--no-imports", "-c", code).strip()
    return f"each task of {sent} attempts sent four times over"


def full_disk(installation: Installation, chance: random.Random) -> str:
    if not installation.mounted:
        raise CannotBeDone("needs root, to give the data folder a small file system of its own")
    filler = installation.data / FILLER
    block = bytes(1 << 20)
    with filler.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(block)
        except OSError:
            pass
    seconds = chance.uniform(4, 8)
    time.sleep(seconds)
    filler.unlink()
    return f"no room on the data folder's disk for {seconds:.0f} s"


def read_only_store(installation: Installation, chance: random.Random) -> str:
    store = str(installation.data / "blobs")
    if os.geteuid() == 0:
        steps = [["mount", "--bind", store, store], ["mount", "-o", "remount,bind,ro", store]]
        if any(subprocess.run(step, capture_output=True, check=False).returncode for step in steps):
            subprocess.run(["umount", store], capture_output=True, check=False)
            raise CannotBeDone("mount is refused here")
    else:
        for folder in (installation.data / "blobs").rglob("*"):
            if folder.is_dir():
                folder.chmod(0o500)
        (installation.data / "blobs").chmod(0o500)
    seconds = chance.uniform(4, 8)
    time.sleep(seconds)
    if os.geteuid() == 0:
        subprocess.run(["umount", "--lazy", store], check=True)
    else:
        for folder in [installation.data / "blobs", *(installation.data / "blobs").rglob("*")]:
            if folder.is_dir():
                folder.chmod(0o700)
    return f"blob store read-only for {seconds:.0f} s"


OF_THE_VERSION_BEFORE = ("deployment",)
"""Done to an installation of its own, which is of that version at first."""

FAULTS: dict[str, Fault] = {
    "web killed": _killed("web"),
    "worker killed": _killed("worker-1"),
    "both workers killed": _killed(*WORKERS),
    "beat killed": _killed("beat"),
    "PostgreSQL killed": _killed("postgres"),
    "Valkey killed": _killed("valkey"),
    "many killed": kill_many,
    "everything killed": kill_everything,
    "broker forgets": forget_broker,
    "connection refused": refuse_connections,
    "worker frozen": freeze_worker,
    "server frozen": freeze_server,
    "same task twice": same_task_twice,
    "full disk": full_disk,
    "read-only store": read_only_store,
    "slow network": network_faults.slow_network,
    "narrow network": network_faults.narrow_network,
    "broken connections": network_faults.broken_connections,
    "half-open connections": network_faults.half_open_connections,
    "slow disk": machine_faults.slow_disk,
    "clock stepped": machine_faults.step_clock,
    "old and new versions": version_faults.side_by_side,
    "deployment": version_faults.deployment,
}
