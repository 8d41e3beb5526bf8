"""Upload: an archive or loose files, with errors that name the file and the key."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from triage.models import Attempt
from triage.services.sources import registry

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "net-slurm-time-limit.tar.zst"


@pytest.fixture(autouse=True)
def data_dir(settings: Any, tmp_path: Path) -> Iterator[None]:
    settings.FAULTLINE_DATA_DIR = tmp_path / "data"
    registry.cache_clear()
    yield
    registry.cache_clear()


def file(name: str, content: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


def archive(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_yaml", ".yaml"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def test_an_archive_becomes_an_attempt_that_waits_for_triage(signed_in: Client) -> None:
    answer = signed_in.post("/upload/", {"files": [file(SAMPLE.name, SAMPLE.read_bytes())]})
    attempt = Attempt.objects.get()
    assert answer.status_code == 302 and answer["Location"] == f"/attempts/{attempt.pk}/"
    assert attempt.workload.workload_id == "60211" and attempt.triage_state == "pending"
    assert attempt.events.get(kind="triage.requested").actor.username == "ada"


def test_the_same_archive_again_leads_to_the_same_attempt_and_says_so(signed_in: Client) -> None:
    for _ in range(2):
        answer = signed_in.post("/upload/", {"files": [file(SAMPLE.name, SAMPLE.read_bytes())]}, follow=True)
    assert Attempt.objects.count() == 1
    assert "had been uploaded before" in answer.content.decode()


def test_loose_files_become_an_attempt_with_what_the_form_says(signed_in: Client) -> None:
    files = [file("train.log", b"step 1\nstep 2\n"), file("gx-01.syslog", b"Oct  5 02:00:01 gx-01 kernel: hello\n")]
    facts = {
        "name": "my-job",
        "workload_id": "991",
        "scheduler": "slurm",
        "nodes": "gx-01, gx-02\ngx-03",
        "gpus_per_node": "8",
        "started_at": "2026-10-05 02:00",
        "ended_at": "2026-10-05T03:00:00Z",
        "user": "ada",
        "cluster": "lab",
    }
    assert signed_in.post("/upload/", {"files": files, **facts}).status_code == 302
    attempt = Attempt.objects.get()
    assert (attempt.workload.workload_id, attempt.workload.name, attempt.user) == ("991", "my-job", "ada")
    assert attempt.nodes == ["gx-01", "gx-02", "gx-03"] and attempt.gpus_per_node == 8
    assert attempt.elapsed_seconds == 3600


def test_nothing_but_a_file_is_needed(signed_in: Client) -> None:
    assert signed_in.post("/upload/", {"files": [file("out.log", b"hello\n")]}).status_code == 302
    assert Attempt.objects.get().workload.scheduler == "static"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("broken.tar.gz", b"not an archive", ["broken.tar.gz"]),
        ("empty.zip", b"PK\x05\x06" + b"\0" * 18, ["empty.zip"]),
        ("nothing.tar.gz", archive(applog__x=b"x"), ["nothing.tar.gz", "attempt.yaml"]),
        (
            "bad.tar.gz",
            archive(attempt_yaml=b"schema: 1\nworkload: {id: 5, name: [a]}\n", applog__x=b"x"),
            ["bad.tar.gz", "attempt.yaml: attempt:"],
        ),
    ],
)
def test_what_cannot_be_taken_is_refused_with_file_and_key(
    signed_in: Client, name: str, content: bytes, words: list[str]
) -> None:
    answer = signed_in.post("/upload/", {"files": [file(name, content)]})
    page = answer.content.decode()
    assert answer.status_code == 422 and 'role="alert"' in page
    refusal = page[page.index('id="refused"') : page.index("</div>", page.index('id="refused"'))]
    for word in words:
        assert word in refusal, refusal
    assert not Attempt.objects.exists()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"started_at": "yesterday"}, "Write it as 2026-11-03 04:22:31"),
        ({"started_at": "2026-10-05 02:00", "ended_at": "2026-10-05 01:00"}, "The end lies before the start"),
        ({"nodes": "gx-01 <script>"}, "is no host name"),
        ({"gpus_per_node": "many"}, "Enter a whole number"),
    ],
)
def test_a_fact_that_makes_no_sense_is_named_at_its_field(signed_in: Client, facts: dict[str, str], words: str) -> None:
    answer = signed_in.post("/upload/", {"files": [file("out.log", b"hello\n")], **facts})
    assert answer.status_code == 422 and words in answer.content.decode() and "<script>" not in answer.content.decode()
    assert not Attempt.objects.exists()


def test_a_form_without_a_file_asks_for_one(signed_in: Client) -> None:
    page = signed_in.post("/upload/", {"name": "kept"}).content.decode()
    assert "Choose an archive or at least one file." in page and 'value="kept"' in page


def test_a_script_learns_where_the_attempt_is(signed_in: Client) -> None:
    answer = signed_in.post("/upload/", {"files": [file("out.log", b"hello\n")]}, headers={"X-Requested-With": "fetch"})
    assert answer.status_code == 204 and answer["X-Location"] == f"/attempts/{Attempt.objects.get().pk}/"


def test_a_form_from_another_site_is_refused(ada: Any) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(ada)
    assert strict.post("/upload/", {"files": [file("out.log", b"hello\n")]}).status_code == 403
