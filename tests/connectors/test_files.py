"""The files connector: finds bundles, gives their streams, never leaves its roots."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from connectors.base import CollectRequest, ConfigError, Connector, ConnectorError, FindProblem, FoundAttempt, Limits
from connectors.files.client import Roots
from connectors.files.connector import FilesConnector
from connectors.registry import FACTORIES, Registry
from engine.model import Attempt, Workload

MANIFEST = 'schema: 1\nworkload: {id: "%s", scheduler: slurm, cluster: c1}\nattempt: {number: 1, nodes: [gx-01]}\n'
ANY = Attempt(workload=Workload(id="1"))


def bundle(folder: Path, workload: str = "1", **files: str) -> Path:
    contents = {"attempt.yaml": MANIFEST % workload, "applog/a.log": "one\n", "syslog/gx-01.log": "two\n", **files}
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    age(folder)
    return folder


def age(folder: Path, seconds: float = 60) -> None:
    """As if it had been written a minute ago."""
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (time.time() - seconds, time.time() - seconds), follow_symlinks=False)


@pytest.fixture
def connector(tmp_path: Path) -> FilesConnector:
    (tmp_path / "in").mkdir()
    return FilesConnector.from_config({"roots": {"in": tmp_path / "in", "other": tmp_path}, "watch": ["in"]})


def search(connector: FilesConnector, cursor: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    found = []
    for step in connector.find(cursor):
        cursor = step.cursor
        if step.found is not None:
            found.append(step.found)
    return found, cursor


def test_it_fulfils_the_contract(connector: FilesConnector) -> None:
    assert isinstance(connector, Connector)


def test_each_bundle_is_found_once_and_again_when_it_changed(connector: FilesConnector, tmp_path: Path) -> None:
    bundle(tmp_path / "in" / "a", "1")
    bundle(tmp_path / "in" / "b", "2")
    found, cursor = search(connector, {})
    assert [(f.attempt.workload.id, f.ref, f.label) for f in found] == [("1", "in:a", "a"), ("2", "in:b", "b")]
    assert search(connector, cursor) == ([], cursor)
    (tmp_path / "in" / "b" / "applog" / "a.log").write_text("one and more\n")
    age(tmp_path / "in" / "b", 30)
    again, cursor = search(connector, cursor)
    assert [f.attempt.workload.id for f in again] == ["2"]
    assert again[0].content_key != found[1].content_key


def test_a_cursor_forgets_what_is_gone(connector: FilesConnector, tmp_path: Path) -> None:
    bundle(tmp_path / "in" / "a")
    _, cursor = search(connector, {"in:gone": "1"})
    assert set(cursor) == {"in:a"}


def test_a_bundle_that_is_still_being_copied_is_left_for_later(connector: FilesConnector, tmp_path: Path) -> None:
    age(bundle(tmp_path / "in" / "a"), 0)
    assert search(connector, {}) == ([], {})
    age(tmp_path / "in" / "a")
    assert len(search(connector, {})[0]) == 1


def test_a_bad_bundle_is_told_once_and_the_others_are_found(connector: FilesConnector, tmp_path: Path) -> None:
    (tmp_path / "in" / "bad.tar").write_bytes(b"no archive")
    (tmp_path / "in" / "notes.txt").write_text("not a bundle")
    bundle(tmp_path / "in" / "good")
    age(tmp_path / "in")
    found, cursor = search(connector, {})
    assert [type(f) for f in found] == [FindProblem, FoundAttempt]
    assert found[0].ref == "in:bad.tar" and "\n" not in found[0].message
    assert search(connector, cursor)[0] == []


def test_a_folder_that_is_gone_is_an_error_that_may_pass(tmp_path: Path) -> None:
    connector = FilesConnector.from_config({"roots": {"in": tmp_path / "absent"}, "watch": ["in"]})
    with pytest.raises(ConnectorError) as refused:
        search(connector, {})
    assert refused.value.temporary and "absent" in str(refused.value)


def test_streams_come_by_name_with_a_report_a_source(connector: FilesConnector, tmp_path: Path) -> None:
    bundle(tmp_path / "in" / "a", **{"applog/b.log": "three\n"})
    with connector.collect(CollectRequest(attempt=ANY, ref="in:a")) as collected:
        streams = {}
        for stream in collected.streams():
            with stream.open() as content:
                streams[stream.name] = content.read()
        reports = collected.reports()
    assert streams == {"applog/a.log": b"one\n", "applog/b.log": b"three\n", "syslog/gx-01.log": b"two\n"}
    assert [(r.source, r.status, r.streams, r.bytes) for r in reports] == [
        ("applog", "ok", 2, 10),
        ("syslog", "ok", 1, 4),
    ]
    assert {(r.connector, r.query) for r in reports} == {("files", "in:a")}


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(streams=1), "more than 1 streams"),
        (Limits(bytes=5), "more than 5 bytes"),
        (Limits(seconds=-1), "not finished within"),
    ],
)
def test_a_limit_gives_a_partial_report_and_what_fits(
    connector: FilesConnector, tmp_path: Path, limits: Limits, says: str
) -> None:
    bundle(tmp_path / "in" / "a")
    with connector.collect(CollectRequest(attempt=ANY, ref="in:a", limits=limits)) as collected:
        taken = [stream.name for stream in collected.streams()]
        partial = [report for report in collected.reports() if report.status == "partial"]
    assert len(taken) < 2
    assert partial and all(says in report.note for report in partial)


def test_a_link_inside_a_bundle_that_leads_out_is_not_read(connector: FilesConnector, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not yours")
    (bundle(tmp_path / "in" / "a") / "applog" / "stolen.log").symlink_to(tmp_path / "secret")
    with connector.collect(CollectRequest(attempt=ANY, ref="in:a")) as collected:
        assert "applog/stolen.log" not in [stream.name for stream in collected.streams()]
        assert any(report.status == "error" for report in collected.reports())


@pytest.mark.parametrize(
    "ref",
    [
        "in:../secret", "in:a/../../secret", "in:/etc/passwd", "in:link", "in:folder/../link", "nowhere:a", "a",
        "in:\x00", "in:absent",
    ],
)  # fmt: skip
def test_a_ref_never_leaves_its_root(tmp_path: Path, ref: str) -> None:
    (tmp_path / "in" / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_text("not yours")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ConnectorError):
        Roots({"in": tmp_path / "in"}).resolve(ref)


def test_a_root_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_text("x")
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    assert Roots({"in": tmp_path / "linked"}).resolve("in:a") == (tmp_path / "real" / "a").resolve()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"files": {"root": "/x"}}, "connector files: unknown key 'root'"),
        ({"files": {"roots": ["/x"]}}, "connector files: roots must map names to folders"),
        ({"files": {"roots": {"a:b": "/x"}}}, "connector files: roots: a name is empty or holds a colon or slash"),
        ({"files": {"roots": {"a": "/x"}, "watch": ["b"]}}, "connector files: watch: 'b' is not one of its roots"),
        (
            {"logs": {"kind": "carrier-pigeon"}},
            f"connector logs: kind 'carrier-pigeon' is not one of {', '.join(sorted(FACTORIES))}",
        ),
    ],
)
def test_a_wrong_configuration_is_told_with_connector_and_key(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Registry.from_config(config)
    assert str(refused.value) == says


def test_connectors_are_had_by_name() -> None:
    registry = Registry.from_config({"files": {}, "archive": {"kind": "files"}})
    assert [(name, connector.name) for name, connector in registry] == [("files", "files"), ("archive", "archive")]
    with pytest.raises(ConfigError, match="'loki' is not configured"):
        registry.get("loki")
