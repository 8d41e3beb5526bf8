"""A real Slurm cluster of four nodes on one machine, in a folder of its own.

Needs root (slurmd starts steps as the job's user) and the packages of PACKAGES. Nothing of it touches /etc/slurm,
/run/munge or /run/mysqld, so that it stands beside whatever the machine runs already. The order of starting matters:
munge, database, slurmdbd, the cluster's record, slurmctld, slurmd.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PACKAGES = ("munge", "mariadb-server", "slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurmrestd")
PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch", "sacctmgr")
NODES = ("n1", "n2", "n3", "n4")
NAME = "alpine"
USER = "nobody"
"""Jobs run as this user, who owns nothing."""
_MEMORY_CGROUP = Path("/sys/fs/cgroup/memory")
_SBIN = ("/usr/sbin", "/sbin")


class SlurmError(RuntimeError):
    """The cluster did not come up, or a command failed; says which, with the end of its log."""


def why_not() -> str:
    """Why a cluster can't be started here; empty when it can."""
    if os.geteuid() != 0:
        return "a real Slurm needs root: run as root, or in CI"
    missing = [name for name in PROGRAMS if program(name) is None]
    if missing:
        return f"{missing[0]} is not installed: make peers installs {' '.join(PACKAGES)}"
    return ""


def program(name: str) -> str | None:
    """The path of a server or client program, which lies in sbin for servers."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *_SBIN]))


class Cluster:
    """Started by `with`, stopped with everything it started at the end."""

    def __init__(self, folder: Path, *, zone: str = "UTC") -> None:
        self.folder = folder
        self.zone = zone
        """The cluster's time zone: slurmctld and slurmd write their logs in it."""
        self.conf = folder / "slurm.conf"
        self.work = folder / "work"
        self.cgroups = _MEMORY_CGROUP.is_dir() and os.access(_MEMORY_CGROUP, os.W_OK)
        """Whether memory limits are enforced by the kernel; else by Slurm's own sampling."""
        self._ports = _free_ports(4 + len(NODES))
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    # --- starting and stopping ---------------------------------------------------------------------------------------

    def __enter__(self) -> Cluster:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        for name in ("db", "state", "log", "run", "work", *(f"spool/{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        owner = pwd.getpwnam(USER)
        os.chown(self.work, owner.pw_uid, owner.pw_gid)
        self._start_munge()
        self._start_database()
        self._write_slurm_conf()
        self._serve("slurmdbd", ["-D"], ready=lambda: _listens(self._ports[1]))
        self.run("sacctmgr", "-i", "add", "cluster", NAME)
        self.start_controller()
        for node in NODES:
            self._serve(f"slurmd-{node}", ["-D", "-N", node])
        self.wait_for(
            lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(len(NODES)), "idle nodes"
        )

    def start_controller(self) -> None:
        """slurmctld, without what an earlier one has left."""
        self._serve("slurmctld", ["-D", "-c"], ready=lambda: _listens(self._ports[2]))

    def stop_controller(self) -> None:
        """As if the controller's host were gone."""
        self._end("slurmctld")

    def stop_accounting(self) -> None:
        """As if the accounting host were gone."""
        self._end("slurmdbd")

    def start_accounting(self) -> None:
        self._serve("slurmdbd", ["-D"], ready=lambda: _listens(self._ports[1]))

    def stop(self) -> None:
        """Ends every server that was started, last first."""
        for name in reversed(list(self._servers)):
            self._end(name)
        for node in NODES if self.cgroups else ():
            for group in Path("/sys/fs/cgroup").glob(f"*/slurm_{node}"):
                for inner in sorted(group.rglob("*/"), reverse=True):
                    _remove(inner)
                _remove(group)

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        run = self.folder / "run"
        options = {
            "--key-file": key,
            "--socket": run / "munge.sock",
            "--pid-file": run / "munged.pid",
            "--seed-file": run / "munged.seed",
            "--log-file": self.folder / "log" / "munged.log",
        }
        arguments = ["--foreground", "--force", *(f"{name}={value}" for name, value in options.items())]
        self._serve("munged", arguments, ready=(run / "munge.sock").exists)

    def _start_database(self) -> None:
        data, port = self.folder / "db", self._ports[0]
        common = ["--no-defaults", f"--datadir={data}", "--user=root"]
        self._once("mariadb-install-db", [*common, "--auth-root-authentication-method=normal", "--skip-test-db"])
        init = self.folder / "init.sql"
        init.write_text(
            "CREATE DATABASE slurm_acct_db;\n"
            "CREATE USER slurm@127.0.0.1 IDENTIFIED BY 'only-for-tests';\n"
            "GRANT ALL ON slurm_acct_db.* TO slurm@127.0.0.1;\n"
        )
        arguments = [
            *common, "--bind-address=127.0.0.1", f"--port={port}", f"--socket={self.folder}/run/db.sock",
            f"--pid-file={self.folder}/run/db.pid", f"--init-file={init}", "--skip-name-resolve",
            "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M", "--innodb-flush-log-at-trx-commit=0",
            "--innodb-lock-wait-timeout=900",
        ]  # fmt: skip
        self._serve("mariadbd", arguments, ready=lambda: _listens(port))

    def _write_slurm_conf(self) -> None:
        folder, host = self.folder, socket.gethostname()
        secret = folder / "slurmdbd.conf"
        secret.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={folder}/run/munge.sock\nDbdHost={host}\nDbdAddr=127.0.0.1\n"
            f"DbdPort={self._ports[1]}\nSlurmUser=root\nPrivateData=jobs,usage,users\nDebugLevel=info\nLogFile={folder}/log/slurmdbd.log\n"
            f"PidFile={folder}/run/slurmdbd.pid\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={self._ports[0]}\nStorageUser=slurm\nStoragePass=only-for-tests\nStorageLoc=slurm_acct_db\n"
        )
        secret.chmod(0o600)
        limits = (
            "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\nJobAcctGatherType=jobacct_gather/cgroup\n"
            if self.cgroups
            else "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/linux\n"
            "JobAcctGatherParams=OverMemoryKill\n"
        )
        (folder / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupAutomount=yes\nConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n"
            "AllowedSwapSpace=0\n"
        )
        nodes = "".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=4000\n"
            for node, port in zip(NODES, self._ports[4:], strict=True)
        )
        self.conf.write_text(
            f"ClusterName={NAME}\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={self._ports[2]}\nSlurmUser=root\n"
            f"AuthType=auth/munge\nAuthInfo=socket={folder}/run/munge.sock\nCryptoType=crypto/munge\n"
            f"StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool/%n\n"
            f"SlurmctldPidFile={folder}/run/slurmctld.pid\nSlurmdPidFile={folder}/run/slurmd-%n.pid\n"
            f"SlurmctldLogFile={folder}/log/slurmctld.log\nSlurmdLogFile={folder}/log/slurmd-%n.log\n"
            "PrivateData=jobs,usage,users\nSlurmctldDebug=info\nSlurmdDebug=info\nSlurmdParameters=config_overrides\nReturnToService=2\nMpiDefault=none\n"
            "SwitchType=switch/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nDefMemPerNode=200\n"
            f"{limits}JobAcctGatherFrequency=task=2\nAccountingStorageType=accounting_storage/slurmdbd\n"
            f"AccountingStoragePass={folder}/run/munge.sock\nAccountingStorageHost=127.0.0.1\nAccountingStoragePort={self._ports[1]}\nAccountingStoreFlags=job_script\n"
            "SlurmctldTimeout=30\nSlurmdTimeout=30\nMessageTimeout=10\nKillWait=2\nMinJobAge=600\nInactiveLimit=0\n"
            "SchedulerParameters=sched_interval=2,batch_sched_delay=0,bf_interval=2\nFirstJobId=1001\nPriorityType=priority/basic\n"
            f"{nodes}PartitionName=gpu Nodes={','.join(NODES)} Default=YES MaxTime=60 OverSubscribe=NO State=UP\n"
        )

    # --- commands ----------------------------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find this cluster."""
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SBIN])
        return {"PATH": path, "SLURM_CONF": str(self.conf), "TZ": self.zone}

    def run(self, name: str, *arguments: str, user: str | None = None, timeout: float = 30) -> str:
        """The output of a client command. Raises SlurmError."""
        command = [program(name) or name, *arguments]
        if user is not None:
            command = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups", *command]
        try:
            done = subprocess.run(
                command, env=self.environment, cwd=self.work, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            raise SlurmError(f"{' '.join(command)}: no answer within {timeout:.0f} s") from None
        if done.returncode:
            raise SlurmError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def submit(self, script: str, *options: str, user: str = USER) -> str:
        """Submits a batch script; the job's id."""
        file = self.work / f"job-{len(list(self.work.iterdir()))}.sh"
        file.write_text(script)
        file.chmod(0o755)
        return self.run("sbatch", "--parsable", *options, str(file), user=user).strip().split(";")[0]

    def state(self, job: str) -> str:
        """A job's state by the controller."""
        return self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Asks until it is true. Raises SlurmError."""
        end = time.monotonic() + seconds
        while not condition():
            for name, server in self._servers.items():
                if server.poll() is not None:
                    raise SlurmError(f"{name} ended with {server.returncode}: {self._log(name)}")
            if time.monotonic() > end:
                raise SlurmError(f"no {what} within {seconds:.0f} s: {self._log('slurmctld')}")
            time.sleep(0.3)

    # --- processes ---------------------------------------------------------------------------------------------------

    def _serve(self, name: str, arguments: Sequence[str], ready: Callable[[], bool] | None = None) -> None:
        path = program(name.split("-")[0])
        assert path is not None
        log = (self.folder / "log" / f"{name}.out").open("ab")
        with log:
            self._servers[name] = subprocess.Popen(
                [path, *arguments], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        if ready is not None:
            self.wait_for(ready, name)

    def serve(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], user: str) -> None:
        """Another server beside the cluster's own, e.g. slurmrestd, as `user`."""
        command = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups", program(name) or name, *arguments]
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._servers[name] = subprocess.Popen(
                command, env={**self.environment, **environment}, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip

    def _once(self, name: str, arguments: Sequence[str]) -> None:
        log = self.folder / "log" / f"{name}.out"
        with log.open("ab") as out:
            done = subprocess.run(
                [program(name) or name, *arguments], env=self.environment, stdout=out, stderr=out, timeout=120
            )
        if done.returncode:
            raise SlurmError(f"{name} ended with {done.returncode}: {self._log(name)}")

    def _end(self, name: str) -> None:
        server = self._servers.pop(name, None)
        if server is None or server.poll() is not None:
            return
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(5)

    def _log(self, name: str) -> str:
        files = [self.folder / "log" / f"{name}.log", self.folder / "log" / f"{name}.out"]
        text = "\n".join(file.read_text(errors="replace") for file in files if file.is_file())
        return " / ".join(text.strip().splitlines()[-5:])


def _remove(group: Path) -> None:
    """An empty control group; one that is still in use stays."""
    with contextlib.suppress(OSError):
        group.rmdir()


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
