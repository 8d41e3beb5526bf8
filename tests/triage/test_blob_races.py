"""Blobs are removed while others store, name and read the same ones, in processes and connections of their own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from tests.triage import cast
from tests.triage.conftest import Policy
from tests.triage.test_retention import aged, triaged
from triage.blobs import BlobStore
from triage.models import Attempt, Collection
from triage.services.bundles import import_bundle
from triage.services.collecting import finish_collection
from triage.services.integrity import verify
from triage.services.retention import prune, remove_unused
from triage.services.sources import blob_store
from triage.services.triage import begin_triage, request_triage
from triage.tasks import collecting
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import diagnose

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[threading.Thread]:
    """Done in a connection of its own meanwhile; what it raises is raised at the end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread
    thread.join(timeout=20)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def age_files(store: BlobStore) -> list[str]:
    """Stored three hours ago, as the first streams of a collection that takes so long."""
    keys = list(store.list_keys())
    for key in keys:
        os.utime(store.path(key), (time.time() - 10_800,) * 2)
    return keys


def collected(tmp_path: Path, meanwhile: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> Attempt:
    """An attempt of which everything is stored, and `meanwhile` is done when the rows are to be written."""
    attempt = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt
    begin_triage(attempt.pk)
    with monkeypatch.context() as at_the_end:
        at_the_end.setattr(collecting, "finish_collection", meanwhile)
        collect(attempt.collections.get().pk)
    return attempt


def test_a_blob_that_a_transaction_is_about_to_name_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*words: Any) -> bool:
        keys = age_files(blob_store())
        with transaction.atomic():
            assert finish_collection(*words)  # rows that nobody sees yet
            removing = beside(lambda: remove_unused(keys))
            thread = removing.__enter__()
            thread.join(timeout=1)
        removing.__exit__(None, None, None)
        return True

    attempt = collected(tmp_path, meanwhile, monkeypatch)
    diagnose(attempt.pk)
    attempt.refresh_from_db()
    assert (attempt.triage_state, attempt.rule) == ("done", "xid.79") and not verify().problems


def test_what_was_removed_before_it_was_named_is_collected_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*words: Any) -> bool:
        assert len(remove_unused(age_files(blob_store()))) == 2
        return finish_collection(*words)

    attempt = collected(tmp_path, meanwhile, monkeypatch)
    assert Collection.objects.get().state == "pending" and not attempt.streams.exists()
    collect(attempt.collections.get().pk)
    diagnose(attempt.pk)
    attempt.refresh_from_db()
    assert (attempt.triage_state, attempt.rule) == ("done", "xid.79") and not verify().problems


def test_what_is_asked_for_while_its_streams_are_pruned_keeps_its_answer(tmp_path: Path, policy: Policy) -> None:
    attempt = aged(triaged(tmp_path), 40)
    policy('[retention]\nstreams = "30d"')

    def ask() -> None:
        request_triage(attempt.pk)
        begin_triage(attempt.pk)
        diagnose(attempt.pk)

    with transaction.atomic():
        assert prune()[0].rows == 2
        asking = beside(ask)
        asking.__enter__().join(timeout=1)
    asking.__exit__(None, None, None)
    attempt.refresh_from_db()
    assert (attempt.triage_state, attempt.rule) == ("done", "xid.79"), attempt.triage_reason


REMOVER = """
import sys, time
from pathlib import Path
from triage.blobs import BlobStore
store, key = BlobStore(Path(sys.argv[1])), sys.argv[2]
ahead = float(sys.argv[3])
now = time.time
time.time = lambda: now() + ahead
print("begun", flush=True)
while True:
    store.remove(key, unless_newer_than=7200)
"""


@pytest.mark.parametrize("ahead", [0, 11 * 3600], ids=["same clock", "clock of another machine, ahead"])
def test_what_was_stored_a_moment_ago_is_there_at_every_moment_whoever_tries_to_remove_it(
    tmp_path: Path, ahead: float
) -> None:
    store = BlobStore(tmp_path / "blobs")
    key = store.put(io.BytesIO(b"a line\n" * 100)).key
    words = [sys.executable, "-c", REMOVER, str(tmp_path / "blobs"), key, str(ahead)]
    with subprocess.Popen(words, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as remover:
        assert remover.stdout is not None and remover.stdout.readline() == b"begun\n"
        until = time.monotonic() + 2
        try:
            while time.monotonic() < until:
                for _ in range(200):
                    with store.reader(key) as reader:
                        assert reader.lines == 100
                assert store.put(io.BytesIO(b"a line\n" * 100)).key == key
        finally:
            remover.kill()


def test_a_blob_that_can_not_be_put_back_is_not_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written anew between the look and the removal, and then the disk refuses."""
    store = BlobStore(tmp_path / "blobs")
    key = store.put(io.BytesIO(b"a line\n")).key
    os.utime(store.path(key), (0, 0))
    rename, stored = os.rename, []

    def late(old: Path, new: Path) -> None:
        if Path(old) != store.path(key):
            raise OSError(28, "No space left on device")
        stored.append(store.put(io.BytesIO(b"a line\n")).key)
        rename(old, new)

    monkeypatch.setattr("triage.blobs.store.os.rename", late)
    with pytest.raises(OSError, match="No space"):
        store.remove(key, unless_newer_than=7200)
    assert stored == [key] and len(list((tmp_path / "blobs" / "drafts").iterdir())) == 1
