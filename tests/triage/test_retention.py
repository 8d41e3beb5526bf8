"""What policies no longer keep goes, and nothing else; what is kept can be told from what was damaged."""

from __future__ import annotations

import io
import os
import time
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from tests.triage import cast
from tests.triage.conftest import Policy
from triage.layers import load
from triage.models import Attempt, Diagnosis, Incident, ShareOpening, Stream, TimelineEvent, Workload
from triage.services.bundles import import_bundle
from triage.services.integrity import verify
from triage.services.retention import due, prune
from triage.services.sharing import make_share
from triage.services.sources import blob_store
from triage.services.triage import begin_triage, request_triage
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import diagnose
from triage.tasks.pruning import prune as prune_task

pytestmark = pytest.mark.django_db(transaction=True)

POLICIES = """
[retention]
streams = "90d"

[retention.clusters.c1]
streams = "30d"
personal = "60d"
diagnoses = "365d"
"""


def triaged(tmp_path: Path, workload: str = "48213", **files: str) -> Attempt:
    """An attempt that was collected and diagnosed, in this process."""
    attempt = import_bundle(cast.archive(tmp_path / f"{workload}.tar.zst", cast.members(workload, **files))).attempt
    begin_triage(attempt.pk)
    for collection in attempt.collections.all():
        collect(collection.pk)
    diagnose(attempt.pk)
    attempt.refresh_from_db()
    assert attempt.triage_state == "done", attempt.triage_reason
    return attempt


def aged(attempt: Attempt, days: int) -> Attempt:
    """As if it had ended, become known and been stored so long ago."""
    at = timezone.now() - timedelta(days=days)
    Attempt.objects.filter(pk=attempt.pk).update(started_at=at - timedelta(hours=2), ended_at=at, created_at=at)
    for stream in attempt.streams.exclude(blob=""):
        os.utime(blob_store().path(stream.blob), (at.timestamp(), at.timestamp()))
    attempt.refresh_from_db()
    return attempt


def said(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out, stderr=out)
    return out.getvalue()


# --- policies ---------------------------------------------------------------------------------------------------------


def test_a_cluster_has_its_own_policy_and_else_the_common_one(policy: Policy) -> None:
    found = load(policy(POLICIES)).retention
    day = 86_400
    assert (found.of("c1").streams, found.of("c1").diagnoses) == (30 * day, 365 * day)
    assert (found.of("elsewhere").streams, found.of("elsewhere").diagnoses) == (90 * day, 0)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[retention]\nstream = "1d"', "[retention]: unknown key 'stream'"),
        ('[retention]\nstreams = "soon"', '[retention]: streams: must be a duration like "90d"'),
        ('[retention.clusters]\nc1 = 3', "[retention.clusters.c1]: must be a table"),
        ('[retention]\npersonal = "30d"', "streams: must be set and not longer than personal"),
        ('[retention]\nstreams = "60d"\n[retention.clusters.c1]\npersonal = "30d"', "[retention.clusters.c1]: streams"),
    ],
)  # fmt: skip
def test_a_policy_with_an_error_removes_nothing_and_says_where_it_is(
    policy: Policy, tmp_path: Path, text: str, error: str
) -> None:
    attempt = aged(triaged(tmp_path), 4000)
    policy(text)
    with pytest.raises(SystemExit):
        said("prune")
    assert error in "\n".join(load(policy(text)).errors)
    assert due() == [] and attempt.streams.exclude(blob="").count() == 2


# --- raw streams ------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_rows_and_bytes_and_changes_nothing(policy: Policy, tmp_path: Path) -> None:
    attempt = aged(triaged(tmp_path), 40)
    policy(POLICIES)
    size = sum(blob_store().stored_bytes(stream.blob) for stream in attempt.streams.all())
    words = said("prune", "--dry-run")
    assert f"c1  streams    after 30 days: 2 rows, {size}\xa0bytes ({size} bytes)" in words
    assert "would go" in words and attempt.streams.exclude(blob="").count() == 2 and size > 0


def test_raw_streams_go_and_the_diagnosis_with_its_evidence_stays(policy: Policy, tmp_path: Path) -> None:
    old, new = aged(triaged(tmp_path, "1"), 40), aged(triaged(tmp_path, "2", applog__train_log="another\n"), 20)
    keys = set(old.streams.values_list("blob", flat=True)) - set(new.streams.values_list("blob", flat=True))
    policy(POLICIES)
    assert "3 rows" not in said("prune", "--dry-run")
    said("prune")
    assert set(old.streams.values_list("blob", flat=True)) == {""}
    assert not any(blob_store().has(key) for key in keys)
    assert all(blob_store().has(key) for key in new.streams.values_list("blob", flat=True))  # it shares one of them
    assert old.diagnosis is not None and old.diagnosis.contract["evidence"]
    assert verify().problems == []
    assert [share.rows for share in prune()] == [0, 0, 0]


def test_a_file_that_was_written_a_moment_ago_stays_for_the_collection_that_wrote_it(
    policy: Policy, tmp_path: Path
) -> None:
    attempt = aged(triaged(tmp_path), 40)
    (key,) = attempt.streams.filter(source="applog").values_list("blob", flat=True)
    with blob_store().open(key) as kept:
        content = kept.read()
    assert blob_store().put(io.BytesIO(content)).key == key  # stored again, its row is not there yet
    policy(POLICIES)
    prune()
    assert blob_store().has(key)


def test_diagnosing_again_what_has_lost_its_streams_keeps_the_answer(policy: Policy, tmp_path: Path) -> None:
    attempt = aged(triaged(tmp_path), 40)
    policy(POLICIES)
    prune()
    before = attempt.diagnosis

    request_triage(attempt.pk)
    begin_triage(attempt.pk)
    diagnose(attempt.pk)
    attempt.refresh_from_db()
    assert (attempt.triage_state, attempt.diagnosis, attempt.domain) == ("done", before, "hardware")
    assert attempt.diagnoses.count() == 1


# --- whole attempts ---------------------------------------------------------------------------------------------------


def test_attempts_go_with_everything_said_of_them_but_not_from_an_open_incident(policy: Policy, tmp_path: Path) -> None:
    gone, kept = aged(triaged(tmp_path, "1"), 400), aged(triaged(tmp_path, "2"), 300)
    incident = Incident.objects.get()
    policy(POLICIES)
    prune()
    assert Attempt.objects.count() == 2  # people are at work
    Incident.objects.update(status="resolved")
    words = said("prune", "--dry-run")
    assert "c1  diagnoses  after 365 days: 1 rows" in words
    prune_task()
    assert list(Attempt.objects.all()) == [kept]
    assert not Workload.objects.filter(workload_id="1").exists()
    assert not TimelineEvent.objects.filter(attempt=gone.pk).exists()
    incident.refresh_from_db()
    assert incident.attempts_count == 1

    aged(kept, 400)
    prune()
    assert (Attempt.objects.count(), Incident.objects.count(), Diagnosis.objects.count()) == (0, 0, 0)
    assert verify().problems == []


def test_what_became_known_only_yesterday_is_not_old_however_long_ago_it_ended(policy: Policy, tmp_path: Path) -> None:
    attempt = aged(triaged(tmp_path), 400)
    Attempt.objects.filter(pk=attempt.pk).update(created_at=timezone.now() - timedelta(days=1))
    Incident.objects.update(status="resolved")
    policy(POLICIES)
    assert {share.rows for share in due()} == {0}


# --- people -----------------------------------------------------------------------------------------------------------


def test_names_of_people_go_from_attempt_diagnosis_and_search(
    policy: Policy, tmp_path: Path, django_user_model: type[User]
) -> None:
    attempt = triaged(tmp_path)
    link = make_share(attempt, django_user_model.objects.create_user("maren"))
    ShareOpening.objects.create(share=link, reader="r", address="192.0.2.7", browser="Firefox")
    ShareOpening.objects.update(last_at=timezone.now() - timedelta(days=70))
    aged(attempt, 70)
    assert attempt.diagnosis is not None
    before = attempt.diagnosis
    assert "ada" in str(before.contract)
    policy(POLICIES)
    assert "c1  personal   after 60 days: 2 rows" in said("prune", "--dry-run")
    prune()
    attempt = Attempt.objects.select_related("workload", "diagnosis").get(pk=attempt.pk)
    assert attempt.diagnosis is not None
    assert (attempt.user, attempt.workload.user) == ("", "")
    assert "ada" not in attempt.search.split()
    assert "/home/ada" not in str(attempt.diagnosis.contract) and "'ada'" not in str(attempt.diagnosis.contract)
    assert (attempt.diagnosis.title, attempt.diagnosis.evidence_hash) == (before.title, before.evidence_hash)
    opening = ShareOpening.objects.get()
    assert (opening.address, opening.browser) == (None, "")
    assert [share.rows for share in prune()] == [0, 0, 0]
    with pytest.raises(IntegrityError, match="never edited"), transaction.atomic():
        Diagnosis.objects.update(contract={})


# --- integrity --------------------------------------------------------------------------------------------------------


def test_verify_finds_nothing_wrong_with_what_is_as_it_was_written(tmp_path: Path) -> None:
    triaged(tmp_path)
    assert "looked at 2 streams" in (words := said("verify")) and "0 problems, 0 files" in words


def test_verify_names_a_file_that_is_gone_changed_or_of_nobody(tmp_path: Path, data_dir: Path) -> None:
    attempt = triaged(tmp_path)
    store = blob_store()
    app, kernel = (attempt.streams.get(source=source) for source in ("applog", "syslog"))
    store.remove(app.blob)
    other = store.put(io.BytesIO(b"Nov  3 04:11:16 gx-02 kernel: something else\n"))
    os.replace(data_dir / "blobs" / other.key, data_dir / "blobs" / kernel.blob)
    orphan = store.put(io.BytesIO(b"nobody's"))
    os.utime(data_dir / "blobs" / orphan.key, (time.time() - 9000,) * 2)
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("verify", stdout=out, stderr=out)
    words = out.getvalue()
    assert ended.value.code == 1
    assert f"attempt {attempt.pk}: applog/train.log: blob" in words and "No such file" in words
    assert f"attempt {attempt.pk}: syslog/gx-02.log: sha256 is {other.sha256} in the file, {kernel.sha256}" in words
    assert "is not what syslog/gx-02.log:1 says" in words
    assert f"no stream names {orphan.key}" in words
    with pytest.raises(SystemExit):
        said("verify", "--quick", "--remove-unused")
    assert not store.has(orphan.key)


def test_verify_names_an_answer_that_is_written_by_half(tmp_path: Path) -> None:
    attempt = triaged(tmp_path)
    assert attempt.diagnosis is not None
    attempt.diagnosis.nodes.all().delete()
    Attempt.objects.filter(pk=attempt.pk).update(outcome="hung")
    problems = verify(files=False).problems
    assert any("names 2 nodes and has rows for 0" in line for line in problems), problems
    assert any("its outcome is not its diagnosis's" in line for line in problems)
    Attempt.objects.filter(pk=attempt.pk).update(diagnosis=None)
    assert any("is triaged and has no diagnosis" in line for line in verify(files=False).problems)
    assert verify(since=datetime.now(UTC) + timedelta(days=1)).diagnoses == 0
    with pytest.raises(CommandError, match="is no time"):
        said("verify", "--since", "yesterday")


def test_every_sample_is_verified_without_a_complaint(tmp_path: Path) -> None:
    for path in sorted(Path("samples").glob("*.tar.zst")):
        attempt = import_bundle(path).attempt
        begin_triage(attempt.pk)
        for collection in attempt.collections.all():
            collect(collection.pk)
        diagnose(attempt.pk)
    found = verify()
    assert not found.problems, found.problems
    assert found.diagnoses == 10 and found.lines > 40
    assert not Attempt.objects.exclude(outcome=F("diagnosis__outcome")).exists()
    assert Stream.objects.exclude(blob="").count() == found.streams
