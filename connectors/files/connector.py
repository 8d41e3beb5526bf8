"""Folders: bundles that appear in watched ones, and logs that lie where patterns say."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from connectors.access import why_not_listed
from connectors.base import (
    CollectionReport,
    CollectRequest,
    ConnectorError,
    FindProblem,
    Found,
    FoundAttempt,
    check_report,
)
from connectors.files.bundles import CollectedBundle
from connectors.files.client import Roots, content_key
from connectors.files.collection import PatternCollection
from connectors.files.config import FilesConfig
from connectors.http import Deadline
from connectors.reach import ANYWHERE, Reach
from connectors.spool import Spool
from engine.bundle import BundleError, open_bundle

SETTLE_SECONDS = 3.0
"""A bundle that changed less than that ago may still be copied and is left for the next search."""
CHECK_SECONDS = 10.0


class FilesConnector:
    """See docs/connectors/files.md for the configuration."""

    def __init__(self, config: FilesConfig) -> None:
        self.name = config.name
        self.patience = config.time_limit + min(config.time_limit, 60.0)
        self._config = config
        self._roots = Roots(config.roots)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], reach: Reach = ANYWHERE) -> FilesConnector:
        """From plain values; no server is asked, so `reach` says nothing. Raises ConfigError."""
        return cls(FilesConfig.parse(config))

    def find(self, cursor: dict[str, Any]) -> Iterator[Found]:
        """Bundles in the watched roots that are new or changed. The cursor maps each ref to its content key."""
        seen = dict(cursor)
        there: set[str] = set()
        for root in self._config.watch:
            for ref, path in self._roots.bundles(root):
                there.add(ref)
                try:
                    key = content_key(path)
                    settled = time.time() - _changed_at(path) >= SETTLE_SECONDS
                except OSError:
                    continue
                if seen.get(ref) == key or not settled:
                    continue
                seen[ref] = key
                yield Found(cursor=dict(seen), found=self._look_into(ref, path, key))
        gone = {ref for ref in seen if ref not in there}
        if gone:
            yield Found(cursor={ref: key for ref, key in seen.items() if ref not in gone})

    def _look_into(self, ref: str, path: Path, key: str) -> FoundAttempt | FindProblem:
        try:
            with open_bundle(path) as bundle:
                return FoundAttempt(attempt=bundle.attempt, ref=ref, label=path.name, content_key=key)
        except (BundleError, OSError) as error:
            return FindProblem(ref=ref, message=one_line(error))

    @contextmanager
    def collect(
        self, request: CollectRequest, stop: threading.Event | None = None
    ) -> Iterator[CollectedBundle | PatternCollection]:
        """Opens the bundle that the ref names; without a ref looks for what the patterns say. Raises ConnectorError
        when a bundle can't be opened, or nothing can be kept.
        """
        if not request.ref:
            deadline = Deadline(min(self._config.time_limit, request.limits.seconds), stop)
            with (
                Spool.usable(self._config.spool_dir, f"{self.name}: ") as spool,
                closing(PatternCollection(self._config, spool, deadline, request)) as collection,
            ):
                yield collection
            return
        path = self._roots.resolve(request.ref)
        try:
            opened = open_bundle(path)
            bundle = opened.__enter__()
        except (BundleError, OSError) as error:
            raise ConnectorError(one_line(error), temporary=False) from None
        try:
            yield CollectedBundle(bundle, request.limits, self.name, request.ref, stop)
        finally:
            opened.__exit__(None, None, None)

    def check(self, seconds: float = CHECK_SECONDS) -> CollectionReport:
        """Is every root there, and may it be read? Within `seconds`, also where a file system hangs."""
        asked = [f"{name}: {folder}" for name, folder in self._config.roots.items()]
        return check_report(self.name, asked, lambda: self._look_at_roots(seconds))

    def _look_at_roots(self, seconds: float) -> tuple[str, str]:
        if not self._config.roots:
            return "empty", "no roots are configured, so nothing is read"
        notes = []
        deadline = Deadline(seconds)
        for name, folder in self._config.roots.items():
            why = _within(deadline.left(), folder)
            if why:
                notes.append(f"roots.{name}: {folder} {why}")
        if not notes:
            return "ok", ""
        return "error" if len(notes) == len(self._config.roots) else "partial", "; ".join(notes)


def _within(seconds: float, folder: Path) -> str:
    """Why a folder can't be listed; empty when it can."""
    said: list[str] = []
    look = threading.Thread(target=lambda: said.append(why_not_listed(folder)), name="files-check", daemon=True)
    look.start()
    look.join(seconds)
    return said[0] if said else f"did not answer within {seconds:.0f} s: its file system hangs"


def one_line(error: BaseException) -> str:
    """An error's own words on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _changed_at(path: Path) -> float:
    if path.is_file():
        return path.stat().st_mtime
    return max((entry.stat().st_mtime for entry in path.rglob("*")), default=path.stat().st_mtime)
