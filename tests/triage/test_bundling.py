"""Attempts that are taken away as bundles: the engine reads them as it read them, with nothing secret in them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard
from django.contrib.auth.models import User

from engine.bundle import open_bundle
from engine.diagnose import diagnose
from engine.ruleset import load_ruleset
from tests.web.test_evidence import collected
from triage.models import Attempt, Stream, Verdict
from triage.selectors.cases import case, kept_streams
from triage.services.bundles import import_bundle
from triage.services.bundling import Member, bundle, folder_of, packed
from triage.services.masking import NameMask
from triage.services.sources import blob_store
from triage.services.triage import begin_triage
from triage.services.verdicts import Answer, confirm, correct
from triage.tasks.collecting import collect
from triage.tasks.diagnosing import diagnose as run

__all__ = ["collected"]
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
SECRET = b"hf_abcdefghij0123456789klmnop"


@pytest.fixture
def canonical(settings: Any, tmp_path: Path, db: None) -> Attempt:
    settings.FAULTLINE_DATA_DIR = tmp_path / "data"
    attempt = import_bundle(SAMPLES / "hw-nvlink-xid149-node02.tar.zst").attempt
    begin_triage(attempt.pk)
    for collection in attempt.collections.all():
        collect(collection.pk)
    run(attempt.pk)
    return Attempt.objects.get(pk=attempt.pk)


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada-reviewer", first_name="Ada")


def unpacked(members: list[Member]) -> dict[str, bytes]:
    raw = zstandard.ZstdDecompressor().decompressobj().decompress(b"".join(packed([members])))
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        files = {}
        for info in tar.getmembers():
            assert info.isfile() and not info.name.startswith("/") and ".." not in info.name.split("/")
            content = tar.extractfile(info)
            assert content is not None
            files[info.name.partition("/")[2]] = content.read()
    return files


def written(members: list[Member], folder: Path) -> Path:
    for name, content in unpacked(members).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_the_engine_comes_to_the_same_diagnosis(canonical: Attempt, tmp_path: Path) -> None:
    folder = written(bundle(canonical, kept_streams(canonical.pk), mask_names=True), tmp_path / "out")
    with open_bundle(folder) as again:
        told = json.loads(json.dumps(diagnose(again.attempt, again.streams, load_ruleset()).to_dict()))
    kept = canonical.diagnosis.contract
    for key in ("outcome", "domain", "sub_domain", "title", "root_cause", "affected_nodes", "fingerprint"):
        assert told[key] == kept[key], key
    assert [item["text"] for item in told["evidence"]] == [item["text"] for item in kept["evidence"]]


def test_a_confirmed_case_is_labelled_as_the_tests_of_the_engine_label_theirs(canonical: Attempt, ada: User) -> None:
    verdict = confirm(canonical.pk, ada, diagnosis_id=canonical.diagnosis_id)
    files = unpacked(bundle(canonical, [], mask_names=True, verdict=case(verdict.pk)))
    label = yaml.safe_load(files["expected.yaml"])
    assert (label["outcome"], label["domain"], label["sub_domain"]) == ("failed", "hardware", "nvlink")
    assert label["root"] == {"signal": "xid", "detail": "149", "nodes": ["node-02"], "device": "0000:61:00"}
    assert {"nccl", "pytorch"} <= set(label["symptoms"]) and label["also_ok"] == []
    assert label["verdict"]["kind"] == "confirmed"
    assert label["verdict"]["lines"][0] == {"stream": "syslog/node-02.log", "first": 125, "last": 125}
    assert "Ada" not in files["expected.yaml"].decode(), "who judged it stays here"


def test_a_correction_is_the_label_and_the_engines_answer_stands_beside_it(canonical: Attempt, ada: User) -> None:
    verdict = correct(
        canonical.pk, ada, diagnosis_id=canonical.diagnosis_id, seen=None, kind="wrong_cause",
        reason=f"The tray: token={SECRET.decode()}",
        answer=Answer("hardware", "nvswitch", "Tray 4", ["node-03"], ["e5"]),
    )  # fmt: skip
    text = unpacked(bundle(canonical, [], mask_names=True, verdict=case(verdict.pk)))["expected.yaml"]
    label = yaml.safe_load(text)
    assert (label["sub_domain"], label["root"], label["symptoms"]) == ("nvswitch", {"nodes": ["node-03"]}, [])
    assert label["why"].startswith("The tray: token=****") and SECRET not in text
    assert label["verdict"]["engine"]["rule"] == "xid.149"
    assert label["verdict"]["engine"]["nodes"] == ["node-02"]


def test_secrets_that_were_stored_before_a_rule_knew_them_and_user_names_are_masked_byte_by_byte(
    collected: Callable[[dict[str, bytes]], Attempt],
) -> None:
    text = b"start /home/ada/train.py as Ada, not adamant\nHF_TOKEN=" + SECRET + b"\nafter\n"
    attempt = collected({"applog/out.log": b"x\n"})
    stored = blob_store().put(io.BytesIO(text))  # as if it had been stored without the rule
    Stream.objects.filter(attempt=attempt).update(blob=stored.key, size=stored.size, lines=stored.lines)
    attempt = Attempt.objects.get(pk=attempt.pk)
    files = unpacked(bundle(attempt, kept_streams(attempt.pk), mask_names=True))
    assert files["applog/out.log"] == (
        b"start /home/***/train.py as ***, not adamant\nHF_TOKEN=" + b"*" * len(SECRET) + b"\nafter\n"
    )
    assert "ada" not in files["attempt.yaml"].decode()
    left = unpacked(bundle(attempt, kept_streams(attempt.pk), mask_names=False))
    assert b"/home/ada/" in left["applog/out.log"] and SECRET not in left["applog/out.log"]


@pytest.mark.parametrize(
    ("name", "source", "node", "rank"),
    [
        ("syslog/gx-01.log", "syslog", "gx-01", None),
        ("../../etc/passwd", "applog", None, None),
        ("/abs/olute.log", "applog", None, None),
        ('loki/{job="x"}/a.log', "applog", "gx-02", 3),
        ("syslog/other.log", "syslog", "gx-01", None),
        ("applog/out.log.gz", "applog", None, None),
        ("applog/\u202eevil\x07.log", "applog", None, None),
        ("expected.yaml", "applog", None, None),
        ("flight_recorder/trace_7", "flight_recorder", None, 7),
        ("series", "metric", None, None),
        ("syslog/" + "n" * 900, "syslog", "gx-02", None),
    ],
)
def test_whatever_a_stream_is_called_it_is_read_back_as_the_same_thing(
    name: str, source: str, node: str | None, rank: int | None, settings: Any, tmp_path: Path, db: None,
    collected: Callable[[dict[str, bytes]], Attempt],
) -> None:  # fmt: skip
    attempt = collected({"applog/out.log": b"2026-10-05T02:00:00Z hello\n"})
    stream = Stream.objects.get(attempt=attempt)
    stream.name, stream.source, stream.node, stream.rank = name, source, node, rank
    stream.save()
    folder = written(bundle(attempt, kept_streams(attempt.pk), mask_names=False), tmp_path / "out")
    with open_bundle(folder) as again:
        (read,) = again.streams
        with read.open() as content:
            assert content.read() == b"2026-10-05T02:00:00Z hello\n"
    assert read.source.value == source
    if node or source == "syslog":
        assert read.node == node
    assert read.rank == rank


def test_streams_whose_names_collide_are_all_there(collected: Callable[[dict[str, bytes]], Attempt]) -> None:
    attempt = collected({f"applog/{n}.log": b"%d\n" % n for n in range(4)})
    for number, stream in enumerate(Stream.objects.filter(attempt=attempt)):
        Stream.objects.filter(pk=stream.pk).update(name=f"applog/{'?' * (number + 1)}.log")
    files = unpacked(bundle(attempt, kept_streams(attempt.pk), mask_names=True))
    assert sorted(content for name, content in files.items() if name != "attempt.yaml") == [
        b"0\n",
        b"1\n",
        b"2\n",
        b"3\n",
    ]


def test_a_stream_that_is_gone_is_left_out_and_one_that_breaks_off_breaks_the_archive(canonical: Attempt) -> None:
    streams = kept_streams(canonical.pk)
    blob_store().remove(streams[0].blob)
    members = bundle(canonical, streams, mask_names=True)
    assert len(members) == len(streams)  # attempt.yaml, and one less
    broken = Member("x/y.log", 10, lambda: iter((b"short",)))
    with pytest.raises(ValueError, match=r"x/y.log: 5 bytes instead of 10"):
        b"".join(packed([[broken]]))


def test_folders_have_safe_names(canonical: Attempt) -> None:
    canonical.workload.workload_id = "../a b/\u202e"
    assert folder_of(canonical) == f"a-b-attempt-1-{canonical.pk}"
    canonical.workload.workload_id = "\u202e"
    assert folder_of(canonical) == f"workload-attempt-1-{canonical.pk}"


def test_words_of_every_log_and_short_names_are_no_names() -> None:
    assert not NameMask(["root", "jo", "", "Slurm"]).hides
    mask = NameMask(["j.doe+x", "maren"])
    assert mask(b"/home/j.doe+x MAREN maren2 xmaren maren:") == b"/home/******* ***** maren2 xmaren *****:"


def test_verdicts_that_ended_are_no_cases(canonical: Attempt, ada: User) -> None:
    verdict = confirm(canonical.pk, ada, diagnosis_id=canonical.diagnosis_id)
    assert Verdict.objects.filter(ended_at=None).count() == 1
    assert case(verdict.pk) is not None and case(999_999) is None
