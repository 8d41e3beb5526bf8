"""Capture bundles: what is read as what, and how a bad one is refused."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from engine.bundle import BundleError, Limits, open_bundle
from engine.cli import main
from engine.manifest import parse_attempt
from engine.model import Source
from tests.engine.evidence import Evidence, attempt, case

MANIFEST = b"schema: 1\nworkload: {id: '1'}\nattempt: {nodes: [node-01, node-02.example.com]}\n"
Members = dict[str, bytes]


def tarred(members: Members) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(members: Members) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def stored(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def refused(path: Path, limits: Limits | None = None) -> str:
    """The one line that says why a bundle is not read."""
    with pytest.raises(BundleError) as error, open_bundle(path, limits or Limits()):
        pass
    said = str(error.value)
    assert "\n" not in said
    assert str(path.parent) not in said
    return said


GOOD: Members = {"case/attempt.yaml": MANIFEST, "case/applog/node-01.rank-3.log": b"hello\n"}


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("b.tar", tarred),
        ("b.tar.gz", lambda m: gzip.compress(tarred(m))),
        ("b.tgz", lambda m: gzip.compress(tarred(m))),
        ("b.tar.zst", lambda m: zstandard.compress(tarred(m))),
        ("b.zip", zipped),
    ],
)
def test_every_archive_is_read_like_the_folder_in_it(tmp_path: Path, name: str, pack: Any) -> None:
    with open_bundle(stored(tmp_path, name, pack(GOOD))) as bundle:
        (stream,) = bundle.streams
        assert (stream.name, stream.node, stream.rank) == ("applog/node-01.rank-3.log", "node-01", 3)
        with stream.open() as content:
            assert content.read() == b"hello\n"


@pytest.mark.parametrize(
    ("name", "source", "node", "rank"),
    [
        ("applog/node-01.rank-17.log", Source.APPLOG, "node-01", 17),
        ("applog/node-02.log", Source.APPLOG, "node-02.example.com", None),
        ("applog/node-02.example.com.log", Source.APPLOG, "node-02.example.com", None),
        ("applog/node-011.log", Source.APPLOG, None, None),
        ("applog/train.log", Source.APPLOG, None, None),
        ("applog/rank_5/stderr", Source.APPLOG, None, 5),
        ("applog/node-01/0/stderr.log.gz", Source.APPLOG, "node-01", None),
        ("train.log", Source.APPLOG, None, None),
        ("syslog/node-01.log", Source.SYSLOG, "node-01", None),
        ("syslog/node-01.dmesg.log.1.gz", Source.SYSLOG, "node-01", None),
        ("syslog/other.log", Source.SYSLOG, "other", None),
        ("scheduler/sacct.txt", Source.SCHEDULER, None, None),
        ("metrics/temperature.json", Source.METRIC, None, None),
        ("flight_recorder/nccl_trace_rank_12", Source.FLIGHT_RECORDER, None, 12),
        ("flight_recorder/comm_lib_trace_3.json", Source.FLIGHT_RECORDER, None, 3),
    ],
)
def test_a_file_s_name_tells_its_source_node_and_rank(
    tmp_path: Path, name: str, source: Source, node: str | None, rank: int | None
) -> None:
    with open_bundle(stored(tmp_path, "b.tar", tarred({"attempt.yaml": MANIFEST, name: b""}))) as bundle:
        (stream,) = bundle.streams
        assert (stream.source, stream.node, stream.rank) == (source, node, rank)


def test_labels_and_hidden_files_are_no_evidence(tmp_path: Path) -> None:
    more = {"attempt.yaml": MANIFEST, "expected.yaml": b"domain: hardware", ".DS_Store": b"x", "applog/.swp": b"x"}
    with open_bundle(stored(tmp_path, "b.tar", tarred(more))) as bundle:
        assert bundle.streams == ()


@pytest.mark.parametrize("name", ["../out.log", "/etc/out.log", "a/../../out.log", "a\\..\\out.log"])
@pytest.mark.parametrize("pack", [tarred, zipped])
def test_a_path_that_leaves_the_bundle_is_refused(tmp_path: Path, name: str, pack: Any) -> None:
    path = stored(tmp_path, "b.zip" if pack is zipped else "b.tar", pack({"attempt.yaml": MANIFEST, name: b"x"}))
    assert "leaves the bundle" in refused(path)
    assert not list(tmp_path.parent.glob("out.log"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_an_archive_are_refused(tmp_path: Path, kind: bytes) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("applog/train.log")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    assert "only regular files" in refused(stored(tmp_path, "b.tar", out.getvalue()))


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("applog/train.log")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    assert "links are not allowed" in refused(stored(tmp_path, "b.zip", out.getvalue()))


def test_a_link_that_leaves_a_folder_is_not_followed_and_told(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("torch.OutOfMemoryError: CUDA out of memory\n")
    folder = attempt({"applog/train.log": "x\n"}).write(tmp_path / "bundle")
    (folder / "applog/other.log").symlink_to(tmp_path / "secret")
    with open_bundle(folder) as bundle:
        assert [stream.name for stream in bundle.streams] == ["applog/train.log"]
        assert [(report.source, report.status) for report in bundle.reports] == [("applog/other.log", "error")]


def test_what_unpacks_to_far_more_than_its_size_is_refused(tmp_path: Path) -> None:
    bomb = zstandard.compress(tarred({"attempt.yaml": MANIFEST, "applog/a.log": bytes(3_000_000)}))
    said = refused(stored(tmp_path, "b.tar.zst", bomb), Limits(free_bytes=1_000_000, ratio=10))
    assert "unpacks to more than" in said
    assert "unpacks to more" in refused(
        stored(tmp_path, "b.zip", zipped({"a.log": bytes(3_000_000)})), Limits(free_bytes=1_000_000, ratio=10)
    )


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    many = tarred({f"applog/{number}.log": b"" for number in range(20)})
    assert refused(stored(tmp_path, "b.tar", many), Limits(members=10)) == "more than 10 members"


@pytest.mark.parametrize("name", ["b.tar", "b.tar.gz", "b.tar.zst", "b.tar.xz", "b.zip"])
@pytest.mark.parametrize("content", [b"", b"nonsense" * 100, b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd\x00", b"PK\x03\x04"])
def test_a_damaged_archive_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    assert refused(stored(tmp_path, name, content)).startswith(("damaged archive", "empty archive"))


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("suffix", ["tar.zst", "tar.gz", "zip"])
def test_an_archive_that_was_cut_short_is_refused(tmp_path: Path, suffix: str, part: float) -> None:
    members = {"attempt.yaml": MANIFEST, "applog/a.log": os.urandom(200_000)}
    whole = {
        "tar.zst": lambda: zstandard.compress(tarred(members)),
        "tar.gz": lambda: gzip.compress(tarred(members)),
        "zip": lambda: zipped(members),
    }[suffix]()
    refused(stored(tmp_path, f"b.{suffix}", whole[: int(len(whole) * part)]))


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path, "b.tar", tarred({"applog": b"x", "applog/train.log": b"x", "attempt.yaml": MANIFEST}))
    assert refused(path).startswith("damaged archive")


@pytest.mark.parametrize("name", ["missing", "missing.tar", "note.txt"])
def test_what_is_no_bundle_is_refused(tmp_path: Path, name: str) -> None:
    if name == "note.txt":
        (tmp_path / name).write_text("x")
    assert refused(tmp_path / name).startswith(("no such file", "not a bundle"))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b"", "attempt.yaml: must be a mapping"),
        (b"[1]", "attempt.yaml: must be a mapping"),
        (b"schema: 2", "attempt.yaml: schema: '2' is not known, only 1"),
        (b"schema: 1", "attempt.yaml: workload: is missing"),
        (b"workload: 3\nattempt: {}", "attempt.yaml: workload: must be a mapping"),
        (b"workload: {name: x}\nattempt: {}", "attempt.yaml: workload.id: is missing"),
        (b"workload: {id: [1]}\nattempt: {}", "attempt.yaml: workload.id: must be a text or a number"),
        (b"workload: {id: 1}", "attempt.yaml: attempt: is missing"),
        (b"workload: {id: 1}\nattempt: {nodes: node-01}", "attempt.yaml: attempt.nodes: must be a list of host names"),
        (b"workload: {id: 1}\nattempt: {nodes: [a, [b]]}", "attempt.yaml: attempt.nodes: must be a list of host names"),
        (b"workload: {id: 1}\nattempt: {state: {a: b}}", "attempt.yaml: attempt.state: must be a text or a number"),
        (b"workload: {id: 1}\nattempt: {started_at: soon}", "attempt.started_at: not an ISO 8601 time: 'soon'"),
        (b"workload: {id: 1}\nattempt: {started_at: 2026-02-30}", "attempt.started_at: not an ISO 8601 time"),
        (b"workload: {id: 1}\nattempt: {ended_at: 9999-12-31}", "attempt.ended_at: not a year of a job"),
        (
            b"workload: {id: 1}\nattempt: {started_at: 2026-11-03, ended_at: 2026-11-02}",
            "attempt.yaml: attempt.ended_at: is before started_at",
        ),
        ("workload: {id: 1}\nattempt: {number: \u00b2}".encode(), "attempt.number: must be a whole number up to"),
        (b"workload: {id: 1}\nattempt: {gpus_per_node: 1000000000}", "attempt.gpus_per_node: must be a whole number"),
        (b"workload: {id: 1}\nattempt: {gpus_per_node: -8}", "attempt.gpus_per_node: must be a whole number"),
        (b"a: [", "attempt.yaml: not valid YAML"),
        (b"\x00", "attempt.yaml: not valid YAML"),
        (b"a: " + b"[" * 50_000, "attempt.yaml: not valid YAML"),
    ],
)
def test_a_malformed_attempt_yaml_names_its_key(document: bytes, said: str) -> None:
    with pytest.raises(BundleError) as error:
        parse_attempt(document)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_aliases_of_aliases_cost_nothing() -> None:
    ladder = b"".join(b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12))
    with pytest.raises(BundleError, match=r"workload\.name: must be a text"):
        parse_attempt(b"a0: &a0 [x]\n" + ladder + b"workload: {id: 1, name: *a11}\nattempt: {}\n")


def test_values_are_kept_as_they_are_written() -> None:
    document = b"workload: {id: 0012}\nattempt: {exit_code: 1:0, nodes: [1e3, 010, on], state: NO, reason: ~}"
    read = parse_attempt(document)
    assert (read.workload.id, read.exit_code, read.nodes) == ("0012", "1:0", ("1e3", "010", "on"))
    assert (read.state, read.reason) == ("NO", None)


def test_a_manifest_without_anything_optional_is_enough(tmp_path: Path) -> None:
    bare = Evidence({"workload": {"id": "1"}, "attempt": {}}, {"applog/train.log": b"x\n"})
    assert bare.diagnosed().domain == "unattributed"


def test_one_bad_bundle_does_not_keep_the_others_from_their_diagnosis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = [case("sw-port-in-use").write(tmp_path / name) for name in ("a", "c")]
    bad = stored(tmp_path, "b.tar", b"nonsense")
    code = main(["diagnose", "--format", "json", str(good[0]), str(bad), str(tmp_path / "none"), str(good[1])])
    out, err = capsys.readouterr()
    assert code == 2
    assert [json.loads(line)["bundle"] for line in out.splitlines()] == [str(good[0]), str(good[1])]
    assert [line.split(":")[0] for line in err.splitlines()] == [str(bad), str(tmp_path / "none")]


def test_a_stream_that_cannot_be_read_is_told_and_the_others_are_read() -> None:
    broken = case("sw-port-in-use").copy()
    broken.files["applog/rotated.log.gz"] = gzip.compress(os.urandom(50_000))[:20_000]
    found = broken.diagnosed()
    assert (found.domain, found.sub_domain) == ("software", "configuration")
    assert [r.status for r in found.coverage if r.source == "applog/rotated.log.gz"] == ["error"]


def test_a_log_that_unpacks_without_end_is_left_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.bundle.MAX_UNPACKED", 1_000_000)
    bomb = case("sw-port-in-use").copy()
    bomb.files["applog/zeros.log.gz"] = gzip.compress(bytes(40_000_000))
    found = bomb.diagnosed()
    assert found.sub_domain == "configuration"
    assert ["unpacks to more than" in r.note for r in found.coverage if r.source == "applog/zeros.log.gz"] == [True]


def test_a_file_name_of_any_bytes_can_be_printed(tmp_path: Path) -> None:
    folder = case("sw-port-in-use").write(tmp_path / "bundle")
    os.rename(folder / "applog/eval.log", os.fsencode(folder) + b"/applog/e\xff\x1b[31m\nval.log")
    assert main(["diagnose", "--format", "json", str(folder)]) == 0
