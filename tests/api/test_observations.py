"""Evidence sent in parts becomes a diagnosis, again and again."""

from __future__ import annotations

import base64
import errno
import gzip
import hashlib
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from tests.api.conftest import new_attempt, work
from tests.triage import cast
from triage.models import Attempt, Observation, Stream, TriageState
from triage.services import observations
from triage.services.sources import blob_store
from triage.services.turns import call_up, is_anything_due, take_turn

pytestmark = pytest.mark.django_db
RAW = "application/octet-stream"


def put(client: Client, attempt: int, name: str, content: str | bytes, **options: Any) -> Any:
    headers = options.pop("headers", {})
    query = "&".join(f"{key}={value}" for key, value in options.items())
    address = f"/api/v1/attempts/{attempt}/observations/{name}?{query}"
    return client.put(address, content, content_type=RAW, headers=headers)


def ask(client: Client, attempt: int, query: str = "") -> Any:
    return client.post(f"/api/v1/attempts/{attempt}/diagnosis{query}")


def stored(attempt: int, name: str) -> bytes:
    stream = Stream.objects.get(attempt=attempt, name=name)
    with blob_store().open(stream.blob) as content:
        return content.read()


def test_a_part_that_was_acknowledged_has_its_name_on_the_disk(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    attempt = new_attempt(api)
    monkeypatch.setattr(os, "fsync", noted)
    assert put(api, attempt, "applog/gx-01/train.log", "one\n").status_code == 201
    kept = observations.folder() / str(attempt) / "applog" / "gx-01"
    assert synced[-1] == kept and {kept.parent, kept.parent.parent, observations.folder()} <= set(synced)
    synced.clear()
    assert put(api, attempt, "applog/gx-01/train.log", "two\n", offset=4).status_code == 200
    assert synced == [kept / "train.log"]


def test_parts_in_any_order_of_streams_become_a_diagnosis(api: Client) -> None:
    attempt = new_attempt(api)
    assert put(api, attempt, "syslog/gx-02.log", cast.SYSLOG).status_code == 201
    first, second = cast.APPLOG[:100], cast.APPLOG[100:]
    assert put(api, attempt, "applog/train.log", first).status_code == 201
    assert put(api, attempt, "applog/train.log", second, offset=100).status_code == 200
    assert ask(api, attempt).status_code == 202
    work(attempt)
    answer = api.get(f"/api/v1/attempts/{attempt}/diagnosis")
    assert answer.status_code == 200
    assert answer.json()["root_cause"]["rule"] == "xid.79"
    assert answer.json()["root_cause"]["nodes"] == ["gx-02"]


def test_the_diagnosis_changes_as_evidence_arrives_and_the_earlier_one_stays(api: Client) -> None:
    attempt = new_attempt(api)
    put(api, attempt, "applog/train.log", cast.APPLOG)
    ask(api, attempt)
    work(attempt)
    before = api.get(f"/api/v1/attempts/{attempt}/diagnosis").json()
    assert before["domain"] == "software"
    assert ask(api, attempt).json() == before  # nothing is new: nothing is done
    put(api, attempt, "syslog/gx-02.log", cast.SYSLOG)
    assert ask(api, attempt).status_code == 202
    work(attempt)
    assert api.get(f"/api/v1/attempts/{attempt}/diagnosis").json()["root_cause"]["rule"] == "xid.79"
    rows = api.get(f"/api/v1/attempts/{attempt}/diagnoses").json()["diagnoses"]
    assert [row["current"] for row in rows] == [True, False]
    assert api.get(f"/api/v1/attempts/{attempt}/diagnoses/{rows[1]['id']}").json() == before


def test_a_stated_fact_is_news_too(api: Client) -> None:
    attempt = new_attempt(api, state="RUNNING", ended_at=None)
    put(api, attempt, "applog/train.log", cast.APPLOG)
    ask(api, attempt)
    work(attempt)
    facts = {"state": "CANCELLED", "ended_at": "2026-11-03T04:22:31Z"}
    changed = api.patch(f"/api/v1/attempts/{attempt}", facts, content_type="application/json").json()
    assert (changed["state"], changed["nodes"], changed["exit_code"]) == ("CANCELLED", ["gx-01", "gx-02"], "1:0")
    assert ask(api, attempt).status_code == 202


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_encoded_parts_are_kept_decoded(api: Client, encoding: str) -> None:
    attempt = new_attempt(api)
    pack = gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor().compress
    sent = pack(cast.SYSLOG.encode())
    headers = {
        "Content-Encoding": encoding,
        "X-Content-SHA256": hashlib.sha256(cast.SYSLOG.encode()).hexdigest(),
        "Content-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(sent).digest()).decode()}:",
    }
    taken = put(api, attempt, "syslog/gx-02.log", sent, headers=headers)
    assert taken.status_code == 201
    assert taken.json()["observation"]["bytes"] == len(cast.SYSLOG)
    ask(api, attempt)
    work(attempt)
    assert stored(attempt, "syslog/gx-02.log") == cast.SYSLOG.encode()


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"X-Content-SHA256": "0" * 64}, "X-Content-SHA256"),
        ({"Content-Digest": "sha-256=:AAAA:"}, "Content-Digest"),
        ({"Content-Encoding": "gzip"}, "body"),
        ({"Content-Encoding": "zstd"}, "body"),
    ],
)
def test_a_damaged_part_is_refused_and_nothing_of_it_kept(api: Client, headers: dict[str, str], field: str) -> None:
    attempt = new_attempt(api)
    refused = put(api, attempt, "applog/a.log", "no archive\n", headers=headers)
    assert refused.status_code == 400
    assert refused["Content-Type"] == "application/problem+json"
    assert refused.json()["errors"][0]["field"] == field
    assert not Observation.objects.exists()


def test_a_part_that_stops_in_the_middle_is_resumed_where_the_stream_ends(api: Client) -> None:
    attempt = new_attempt(api)
    put(api, attempt, "applog/a.log", "one\n")
    again = put(api, attempt, "applog/a.log", "one\n")
    assert (again.status_code, again.json()["added"]) == (200, 0)
    for content, offset in (("two\n", 99), ("ONE\n", 0), ("one\ntwo\n", 0)):
        refused = put(api, attempt, "applog/a.log", content, offset=offset)
        assert (refused.status_code, refused.json()["offset"]) == (409, 4)
    assert api.get(f"/api/v1/attempts/{attempt}/observations/applog/a.log").json()["bytes"] == 4
    put(api, attempt, "applog/a.log", "two\n", offset=4)
    (row,) = api.get(f"/api/v1/attempts/{attempt}/observations").json()["observations"]
    assert (row["bytes"], row["parts"]) == (8, 2)


def test_what_was_written_but_never_acknowledged_is_cut_off(api: Client) -> None:
    attempt = new_attempt(api)
    put(api, attempt, "applog/a.log", "one\n")
    place = observations.folder() / str(attempt) / "applog" / "a.log"
    place.write_bytes(place.read_bytes() + b"half a par")
    put(api, attempt, "applog/a.log", "two\n", offset=4)
    assert place.read_bytes() == b"one\ntwo\n"


def test_lines_as_ndjson_are_sorted_into_their_streams(api: Client) -> None:
    attempt = new_attempt(api)
    entries = [
        {"stream": "applog/rank0.log", "line": "hello", "at": "2026-11-03T04:00:00Z"},
        {"stream": "syslog/gx-02.log", "line": cast.SYSLOG.splitlines()[0]},
        {"stream": "applog/rank0.log", "line": "world"},
    ]
    body = "\n".join(map(json.dumps, entries))
    address = f"/api/v1/attempts/{attempt}/observations"
    sent = api.post(address, body, content_type="application/x-ndjson", headers={"Idempotency-Key": "k1"})
    assert sent.status_code == 201
    again = api.post(address, body, content_type="application/x-ndjson", headers={"Idempotency-Key": "k1"})
    assert again["Idempotency-Replayed"] == "true"
    assert again.json() == sent.json()
    ask(api, attempt)
    work(attempt)
    assert stored(attempt, "applog/rank0.log") == b"2026-11-03T04:00:00Z hello\nworld\n"


def test_a_bad_line_stops_all_of_them(api: Client) -> None:
    attempt = new_attempt(api)
    body = '{"stream": "applog/a.log", "line": "x"}\n{"stream": "applog/a.log"}\n'
    refused = api.post(f"/api/v1/attempts/{attempt}/observations", body, content_type="application/x-ndjson")
    assert refused.json()["errors"][0]["field"] == "line 2"
    assert not Observation.objects.exists()


def test_files_of_a_form_are_recognised_by_what_they_hold(api: Client) -> None:
    attempt = new_attempt(api)
    files = {
        "f1": SimpleUploadedFile("messages", cast.SYSLOG.encode()),
        "f2": SimpleUploadedFile("train.log", cast.APPLOG.encode()),
    }
    sent = api.post(f"/api/v1/attempts/{attempt}/observations", files)
    assert [row["name"] for row in sent.json()["observations"]] == ["syslog/gx-02.log", "applog/train.log"]


def test_a_whole_bundle_adds_its_streams(api: Client, tmp_path: Path) -> None:
    attempt = new_attempt(api)
    bundle = cast.archive(tmp_path / "b.tar.zst", cast.members("another")).read_bytes()
    sent = api.post(f"/api/v1/attempts/{attempt}/observations?name=b.tar.zst", bundle, content_type=RAW)
    assert sent.status_code == 201
    assert {row["name"] for row in sent.json()["observations"]} == {"applog/train.log", "syslog/gx-02.log"}
    ask(api, attempt)
    assert work(attempt).rule == "xid.79"
    assert Attempt.objects.count() == 1


def test_source_node_and_rank_can_be_said(api: Client) -> None:
    attempt = new_attempt(api)
    assert put(api, attempt, "out.txt", "x\n", source="applog", node="gx-01", rank=3).status_code == 201
    ask(api, attempt)
    work(attempt)
    stream = Stream.objects.get(attempt=attempt)
    assert (stream.source, stream.node, stream.rank) == ("applog", "gx-01", 3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("out.txt", {}),
        ("applog/../../etc/passwd", {}),
        ("applog/.hidden", {}),
        ("applog/attempt.yaml", {}),
        ("applog/a.log", {"source": "nonsense"}),
        ("applog/a.log", {"node": "../x"}),
        ("applog/a.log", {"rank": "-1"}),
        ("applog/a.log", {"offset": "x"}),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(api: Client, name: str, options: dict[str, str]) -> None:
    attempt = new_attempt(api)
    refused = put(api, attempt, name, "x\n", **options)
    assert refused.status_code == 400
    assert refused.json()["errors"]


def test_the_limits_are_told_and_kept(api: Client, settings: Any) -> None:
    settings.FAULTLINE_MAX_UPLOAD_BYTES, settings.FAULTLINE_MAX_ATTEMPT_BYTES = 10, 15
    attempt = new_attempt(api)
    assert put(api, attempt, "applog/a.log", "x" * 11).json()["limit_bytes"] == 10
    bomb = gzip.compress(b"0" * 100_000)
    assert put(api, attempt, "applog/a.log", bomb, headers={"Content-Encoding": "gzip"}).status_code == 413
    assert put(api, attempt, "applog/a.log", "x" * 10).json()["limits"]["attempt_bytes"] == 15
    refused = put(api, attempt, "applog/a.log", "x" * 6, offset=10)
    assert (refused.status_code, refused.json()["limits"]["attempt_bytes"]) == (413, 15)
    assert api.get("/api/v1/limits").json()["part_bytes"] == 10


def called_up_when_nothing_came(attempt: int) -> None:
    assert call_up() == 0 and take_turn() is None
    mine = Attempt.objects.filter(pk=attempt)
    until = mine.get().triage_queued_at
    assert until is not None and timedelta(minutes=9) < until - timezone.now() <= timedelta(minutes=10)
    mine.update(triage_queued_at=timezone.now())
    assert call_up() == 1 and is_anything_due()


def test_an_attempt_that_nobody_asks_about_is_diagnosed_when_nothing_came_for_a_while(api: Client) -> None:
    attempt = new_attempt(api)
    put(api, attempt, "syslog/gx-02.log", cast.SYSLOG)
    called_up_when_nothing_came(attempt)
    assert work(attempt).rule == "xid.79"


def test_an_attempt_of_which_nothing_was_sent_yet_is_not_diagnosed_from_nothing(api: Client) -> None:
    attempt = new_attempt(api)
    called_up_when_nothing_came(attempt)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_without_room_the_sender_is_told_to_come_again_and_nothing_is_lost(
    api: Client, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    attempt = new_attempt(api)
    put(api, attempt, "applog/a.log", "first\n")

    def refuse(*args: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr("os.fsync", refuse)  # the bytes don't reach the disk
        answer = put(api, attempt, "applog/a.log", "second\n", offset=6)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "15")
        assert "can be sent again" in answer.json()["detail"]
    assert put(api, attempt, "applog/a.log", "second\n", offset=6).status_code == 200
    ask(api, attempt)
    work(attempt)
    assert stored(attempt, "applog/a.log") == b"first\nsecond\n"


def test_files_go_when_they_are_diagnosed_and_old(api: Client) -> None:
    attempt = new_attempt(api)
    put(api, attempt, "syslog/gx-02.log", cast.SYSLOG)
    assert observations.prune(older_than=timedelta(0)) == 0  # not diagnosed yet
    ask(api, attempt)
    assert work(attempt).triage_state == TriageState.DONE
    assert observations.prune(older_than=timedelta(hours=1)) == 0
    assert observations.prune(older_than=timedelta(0)) == 1
    assert not (observations.folder() / str(attempt)).exists()
    assert put(api, attempt, "syslog/gx-02.log", "x\n", offset=len(cast.SYSLOG)).status_code == 410
    put(api, attempt, "applog/late.log", "late\n")
    assert ask(api, attempt).status_code == 202
    work(attempt)
    assert stored(attempt, "syslog/gx-02.log") == cast.SYSLOG.encode()
    assert stored(attempt, "applog/late.log") == b"late\n"
