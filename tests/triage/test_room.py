"""No room on a disk: nothing is diagnosed from half of the evidence, and all goes on when there is room again."""

from __future__ import annotations

import errno
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from tests.triage import cast
from triage.services.bundles import import_bundle
from triage.services.triage import begin_triage
from triage.services.turns import take_turn
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import diagnose

pytestmark = pytest.mark.django_db(transaction=True)


def refuse(*args: Any, **others: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_cannot_be_stored_is_collected_when_there_is_room_however_often_there_was_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = import_bundle(cast.archive(tmp_path / "a.tar.zst", cast.members())).attempt
    begin_triage(attempt.pk)
    collection = attempt.collections.get()
    with monkeypatch.context() as full:
        full.setattr("triage.blobs.store.os.fsync", refuse)
        for _ in range(8):
            collect(collection.pk)
    collection.refresh_from_db()
    assert (collection.state, collection.tries, collection.lease) == ("pending", 0, None)
    assert timedelta(seconds=10) < collection.queued_at - timezone.now() <= timedelta(seconds=15)
    assert take_turn() is None
    collect(collection.pk)
    diagnose(attempt.pk)
    attempt.refresh_from_db()
    assert (attempt.triage_state, attempt.rule, attempt.diagnoses.count()) == ("done", "xid.79", 1)
    assert not list((tmp_path / "data" / "blobs" / "drafts").iterdir())


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), OperationalError("the server is away")])
def test_a_page_says_in_words_that_it_cannot_now(
    client: Client, django_user_model: type[User], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    client.force_login(django_user_model.objects.create_user("ada"))

    def fail(*args: Any, **others: Any) -> None:
        raise error

    monkeypatch.setattr("triage.web.views.upload.import_upload", fail)
    bundle = SimpleUploadedFile("a.tar.zst", b"x")
    answer = client.post("/upload/", {"files": [bundle]})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "15")
    assert b"Nothing was changed" in answer.content
