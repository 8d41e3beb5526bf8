"""What an administrator says about a Slurm cluster: how it is asked, which jobs count, where its files are."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from connectors.base import ConfigError
from connectors.endpoint import Endpoint
from connectors.reach import ANYWHERE, Reach
from connectors.secrets import Secret
from connectors.slurm.parser import ENDED_STATES, STATES
from connectors.slurm.runner import Runner
from connectors.values import flag, named, number, only, path, text, zone

_KEYS = {
    "name", "cluster", "slurm_cluster", "command_prefix", "bin_dir", "environment", "call_seconds", "rest", "states",
    "users", "accounts", "partitions", "since_hours", "overlap_minutes", "roots", "check_owner", "slurmctld_log",
    "slurmd_log", "log_before", "log_after", "timezone", "spool_dir",
}  # fmt: skip
_REST_KEYS = {"url", "version", "user", "token", "ca_file", "client_cert", "client_key", "request_seconds"}
_WORD = re.compile(r"[A-Za-z0-9][\w.@+-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class RestConfig(msgspec.Struct, frozen=True, kw_only=True):
    """slurmrestd: over TCP with a token, or a Unix socket of this machine, where it knows the caller by its user."""

    endpoint: Endpoint | None
    socket: str
    version: str
    """Of the API, e.g. v0.0.38; empty: the newest that it tells of."""
    user: str
    token: Secret | None
    seconds: float


class SlurmConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cluster: str = ""
    """What the cluster is called in Faultline; else as Slurm calls it."""
    slurm_cluster: str = ""
    """For accounting that serves several clusters: which of them (`sacct -M`)."""
    runner: Runner
    rest: RestConfig | None = None
    states: tuple[str, ...] = ENDED_STATES
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    since: float = 24 * 3600.0
    """Seconds that the first search looks back."""
    overlap: float = 3600.0
    """Seconds before the newest known end that each search looks at again: records may reach slurmdbd late."""
    roots: tuple[tuple[str, Path], ...] = ()
    """(folder as the cluster sees it, the same folder here), longest first."""
    check_owner: bool = True
    slurmctld_log: Path | None = None
    slurmd_log: str = ""
    """With {node}."""
    log_before: float = 120.0
    log_after: float = 300.0
    timezone: ZoneInfo | None = None
    spool_dir: Path | None = None

    @classmethod
    def parse(cls, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> SlurmConfig:
        """From plain values. Raises ConfigError."""
        name, where = named(config, "slurm", _KEYS)
        rest = config.get("rest")
        return cls(
            name=name,
            cluster=text(config, "cluster", where) or "",
            slurm_cluster=(_words(config, "slurm_cluster", where) or ("",))[0],
            runner=_runner(config, where),
            rest=None if rest is None else _rest(rest, f"{where}: rest", reach),
            states=_states(config, where),
            users=_words(config, "users", where),
            accounts=_words(config, "accounts", where),
            partitions=_words(config, "partitions", where),
            since=number(config, "since_hours", 24.0, where) * 3600,
            overlap=number(config, "overlap_minutes", 60.0, where) * 60,
            roots=_roots(config.get("roots", {}), where),
            check_owner=flag(config, "check_owner", True, where),
            slurmctld_log=path(config, "slurmctld_log", where),
            slurmd_log=_template(config, where),
            log_before=number(config, "log_before", 120.0, where),
            log_after=number(config, "log_after", 300.0, where),
            timezone=zone(config, "timezone", where),
            spool_dir=path(config, "spool_dir", where),
        )


def _runner(config: Mapping[str, Any], where: str) -> Runner:
    prefix = config.get("command_prefix", ())
    if isinstance(prefix, str) or not isinstance(prefix, Sequence) or not all(isinstance(w, str) and w for w in prefix):
        raise ConfigError(
            f'{where}: command_prefix: must be a list of words, like ["ssh", "-o", "BatchMode=yes", "login1"]'
        )
    environment = config.get("environment", {})
    if not isinstance(environment, Mapping) or not all(
        isinstance(key, str) and _VARIABLE.fullmatch(key) and isinstance(value, str)
        for key, value in environment.items()
    ):
        raise ConfigError(f"{where}: environment: must map names of variables to texts")
    return Runner(
        prefix=tuple(prefix),
        bin_dir=(text(config, "bin_dir", where) or "").rstrip("/"),
        environment=dict(environment),
        seconds=number(config, "call_seconds", 60.0, where),
    )


def _rest(config: object, where: str, reach: Reach) -> RestConfig:
    if not isinstance(config, Mapping):
        raise ConfigError(f"{where}: must have a url")
    only(config, _REST_KEYS, where)
    url, version = text(config, "url", where) or "", text(config, "version", where) or ""
    if version and not re.fullmatch(r"v0\.0\.\d+", version):
        raise ConfigError(f"{where}: version: must be like v0.0.41")
    user = text(config, "user", where) or ""
    token = Secret.parse(config["token"], f"{where}: token") if "token" in config else None
    socket, endpoint = "", None
    if url.startswith("unix:"):
        socket = url.removeprefix("unix:").removeprefix("//")
        if not socket.startswith("/"):
            raise ConfigError(f"{where}: url: must be like unix:/run/slurmrestd.sock")
    else:
        plain = {key: value for key, value in config.items() if key not in ("version", "user", "token")}
        endpoint = Endpoint.from_config("slurmrestd", where.removeprefix("connector "), plain, reach)
        if token is None:
            raise ConfigError(f"{where}: token: is missing: slurmrestd takes no calls over TCP without one")
    seconds = number(config, "request_seconds", 60.0, where)
    return RestConfig(endpoint=endpoint, socket=socket, version=version, user=user, token=token, seconds=seconds)


def _states(config: Mapping[str, Any], where: str) -> tuple[str, ...]:
    states = tuple(state.upper() for state in _words(config, "states", where)) or ENDED_STATES
    wrong = [state for state in states if state not in STATES]
    if wrong:
        raise ConfigError(f"{where}: states: {wrong[0]!r} is not one of {', '.join(STATES)}")
    return states


def _words(config: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    """Names that stand in a command: nothing that could be an option or a list of several."""
    value = config.get(key, ())
    words = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else (None,)
    for word in words:
        if not isinstance(word, str) or not _WORD.fullmatch(word):
            raise ConfigError(f"{where}: {key}: must be a name, or a list of names, without spaces and commas")
    return words


def _roots(value: object, where: str) -> tuple[tuple[str, Path], ...]:
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        pairs = [(path, path) for path in value]
    else:
        raise ConfigError(f"{where}: roots: must be a list of folders, or map the cluster's folders to those here")
    roots = []
    for there, here in pairs:
        if not isinstance(there, str | Path) or not isinstance(here, str | Path):
            raise ConfigError(f"{where}: roots: must hold paths")
        if not str(there).startswith("/") or not str(here).startswith("/"):
            raise ConfigError(f"{where}: roots: {there}: must be an absolute path")
        roots.append((posixpath.normpath(str(there)), Path(here)))
    return tuple(sorted(roots, key=lambda root: len(root[0]), reverse=True))


def _template(config: Mapping[str, Any], where: str) -> str:
    value = text(config, "slurmd_log", where) or ""
    if value and "{node}" not in value:
        raise ConfigError(f"{where}: slurmd_log: must hold {{node}}, like /var/log/cluster/{{node}}/slurmd.log")
    return value
