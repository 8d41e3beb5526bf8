"""Running every source of a cluster once: what works, how long it took, and what to change where it doesn't."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass

from connectors.base import CollectionReport, ConfigError, Connector, ConnectorError
from triage.configuration import ClusterConfig, SourceConfig
from triage.services.sources import configuration, make_connector

SECONDS = 20.0
_GRACE = 10.0


@dataclass(frozen=True)
class SourceCheck:
    """What became of asking one source."""

    source: str
    kind: str
    report: CollectionReport

    @property
    def works(self) -> bool:
        return self.report.status in ("ok", "empty", "partial")


def configuration_errors(cluster: str | None = None) -> list[str]:
    """What is wrong with the configuration, of all clusters or of one and what concerns all."""
    found = configuration()
    others = [f"[clusters.{name}" for name in _names(found.errors) if cluster is not None and name != cluster]
    return [error for error in found.errors if not any(other in error for other in others)]


def _names(errors: Sequence[str]) -> set[str]:
    return {part.split("]")[0].split(".")[0] for error in errors for part in error.split("[clusters.")[1:]}


def check_cluster(name: str, seconds: float = SECONDS) -> list[SourceCheck]:
    """Asks every source of a cluster at the same time, each for at most `seconds`. Raises ConfigError."""
    cluster = configuration().clusters.get(name)
    if cluster is None:
        known = ", ".join(sorted(configuration().clusters)) or "none"
        raise ConfigError(f"no cluster is called {name!r}; configured are: {known}")
    return _check_all(cluster, seconds)


def _check_all(cluster: ClusterConfig, seconds: float) -> list[SourceCheck]:
    pool = ThreadPoolExecutor(max_workers=max(len(cluster.sources), 1), thread_name_prefix="check")
    try:
        began = time.monotonic()
        asked = [(source, pool.submit(check_source, source, seconds)) for source in cluster.sources]
        checks = []
        for source, answer in asked:
            try:
                report = answer.result(max(began + seconds + _GRACE - time.monotonic(), 0.1))
            except TooLate:
                report = _failed(source, f"did not answer within {seconds:.0f} s", seconds)
            checks.append(SourceCheck(source.name, source.kind, report))
        return checks
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def check_source(source: SourceConfig, seconds: float) -> CollectionReport:
    """Asks one source. Never raises."""
    began = time.monotonic()
    try:
        connector = make_connector(source)
        check = getattr(connector, "check", None)
        return check(seconds) if check is not None else _first_step(connector, source, began)
    except (ConfigError, ConnectorError) as error:
        return _failed(source, str(error), time.monotonic() - began)
    except Exception as error:
        words = f"internal error: {type(error).__name__}: {error}"
        return _failed(source, words, time.monotonic() - began)


def _first_step(connector: Connector, source: SourceConfig, began: float) -> CollectionReport:
    """For a connector without a check of its own: the first step of a search."""
    next(iter(connector.find({})), None)
    return CollectionReport(
        source=source.name, status="ok", connector=source.name, duration_s=round(time.monotonic() - began, 3)
    )


def _failed(source: SourceConfig, note: str, seconds: float) -> CollectionReport:
    return CollectionReport(
        source=source.name, status="error", note=note, connector=source.name, duration_s=round(seconds, 3)
    )
