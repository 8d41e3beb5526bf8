"""faultline.toml is read whole, and whatever is wrong with it is said with file, table and key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.base import ConfigError
from connectors.files import config as files
from connectors.kueue import config as kueue
from connectors.loki import config as loki
from connectors.pods import config as pods
from connectors.promql import config as promql
from connectors.slurm import config as slurm
from triage.configuration import Configuration, check, duration
from triage.layers import config_path, load
from triage.retention import Retention

ROOT = Path(__file__).resolve().parents[2]
GOOD = """
[clusters.c1]
time_zone = "Europe/Zurich"
recollect_after = "10m"

[clusters.c1.sources.slurm]

[clusters.c1.sources.logs]
kind = "loki"
url = "http://loki.example:3100"
username = "faultline"
password = "env:LOKI_PASSWORD"
queries = [{source = "applog", query = '{job_id="{job_id}"}'}]

[clusters.gpu-west]
live = 0
[clusters.gpu-west.sources.kueue]
kubeconfig = "/etc/faultline/gpu-west.kubeconfig"
[clusters.gpu-west.sources.pods]
kubeconfig = "/etc/faultline/gpu-west.kubeconfig"
"""


def read(tmp_path: Path, text: str, **environment: str) -> Configuration:
    file = tmp_path / "faultline.toml"
    file.write_text(text)
    return load(file, environment)


def test_clusters_and_their_sources_are_read(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)
    assert found.errors == ()
    one, two = found.clusters["c1"], found.clusters["gpu-west"]
    assert (one.time_zone, one.recollect_after, one.live) == ("Europe/Zurich", 600.0, 1800.0)
    assert [(source.key, source.kind, source.finds) for source in one.sources] == [
        ("c1/slurm", "slurm", True),
        ("c1/logs", "loki", False),
    ]
    assert [source.kind for source in two.sources] == ["kueue", "pods"]
    assert two.live == 0


def test_running_jobs_are_asked_for_only_where_they_are_looked_at(tmp_path: Path) -> None:
    assert "RUNNING" in read(tmp_path, GOOD).clusters["c1"].sources[0].values["states"]
    off = GOOD.replace("[clusters.c1]", "[clusters.c1]\nlive = 0")
    assert "states" not in read(tmp_path, off).clusters["c1"].sources[0].values


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[clusters.c1", "not valid TOML: Expected ']'"),
        ("[cluster.c1]\n", "unknown table or key 'cluster': clusters are [clusters.NAME]"),
        ("[clusters.c1]\n", "[clusters.c1]: has no source"),
        ("[clusters.c1]\ncolour = 1\n[clusters.c1.sources.slurm]\n", "[clusters.c1]: unknown key 'colour'"),
        ('[clusters."a b".sources.slurm]\n', "[clusters.a b]: a cluster's name has"),
        ("[clusters.c1.sources.flux]\n", "[clusters.c1.sources.flux]: kind 'flux' is not one of files, kueue"),
        (
            '[clusters.c1.sources.loki]\nurl = "loki"\n',
            "[clusters.c1.sources.loki]: queries: at least one is needed",
        ),
        (
            "[clusters.c1.sources.slurm]\ncolour = 1\n",
            "[clusters.c1.sources.slurm]: unknown key 'colour'",
        ),
        (GOOD.replace("Europe/Zurich", "Zurich"), "[clusters.c1]: time_zone: 'Zurich' is no time zone"),
        (GOOD.replace('"10m"', '"soon"'), '[clusters.c1]: recollect_after: must be a duration like "15m"'),
        (GOOD.replace("env:LOKI_PASSWORD", "hunter2"), "password: must be env:NAME or file:PATH, a reference"),
        (
            '[clusters.c1.sources.promql]\nurl = "http://prometheus.example"\n',
            "[clusters.c1]: no source finds attempts",
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_table_and_key(tmp_path: Path, text: str, words: str) -> None:
    found = read(tmp_path, text)
    said = "\n".join(found.errors)
    assert words in said
    assert all(error.startswith(str(tmp_path / "faultline.toml")) for error in found.errors)
    assert "hunter2" not in said


def test_all_errors_are_told_at_once_and_the_rest_can_be_used(tmp_path: Path) -> None:
    text = GOOD + "\n[clusters.c3.sources.slurm]\na = 1\n[clusters.c4]\nb = 2\n[clusters.c4.sources.slurm]\n"
    found = read(tmp_path, text)
    assert len(found.errors) == 3
    assert {"c1", "gpu-west", "c4"} <= set(found.clusters)
    assert [source.name for source in found.clusters["c4"].sources] == ["slurm"]


PARTS = {
    "slurm": (slurm, {}),
    "kueue": (kueue, {}),
    "pods": (pods, {}),
    "files": (files, {}),
    "promql": (promql, {"url": "http://prometheus.example"}),
    "loki": (loki, {"url": "http://loki.example", "queries": [{"source": "applog", "query": '{a="b"}'}]}),
}
VALUES = st.recursive(
    st.sampled_from(["", "x", "\0", "file:/x", "env:A", "http://[::1", "https://a:99999", "/a", '{a="{node}"}', None])
    | st.booleans()
    | st.integers()
    | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "url", "query"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_stands_there_is_an_error_and_never_takes_the_rest_with_it(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(PARTS)))
    module, least = PARTS[kind]
    keys = [*sorted(module._KEYS - {"name"}), "kind"]
    wrong = data.draw(st.dictionaries(st.sampled_from(keys), VALUES, min_size=1, max_size=3))
    common = data.draw(st.dictionaries(st.sampled_from(["live", "recollect_after", "time_zone"]), VALUES, max_size=1))
    document = {"clusters": {"c1": {"sources": {kind: {**least, **wrong}}, **common}, "c2": {"sources": {"slurm": {}}}}}
    found = check(document, "test")
    assert "c2/slurm" in [source.key for source in found.clusters["c2"].sources]
    assert all(error.startswith("test: [clusters.c1") for error in found.errors)


def test_the_environment_sets_and_replaces_single_values(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        GOOD,
        FAULTLINE_CLUSTERS__C1__RECOLLECT_AFTER="1h",
        FAULTLINE_CLUSTERS__C1__SOURCES__LOGS__TENANT="gpu",
        FAULTLINE_CLUSTERS__GPU_WEST__SOURCES__KUEUE__NAMESPACES='["research"]',
        FAULTLINE_CLUSTERS__C9__SOURCES__SLURM__CALL_SECONDS="5",
    )
    assert found.errors == ()
    assert found.clusters["c1"].recollect_after == 3600
    assert found.clusters["c1"].sources[1].values["tenant"] == "gpu"
    assert found.clusters["gpu-west"].sources[0].values["namespaces"] == ["research"]
    assert found.clusters["c9"].sources[0].values["call_seconds"] == 5


def test_no_file_at_all_is_no_error() -> None:
    assert load(None, {}) == Configuration(path="environment")
    assert load(None, {"FAULTLINE_CLUSTERS__C1": "x"}).errors[0].startswith("FAULTLINE_CLUSTERS__C1: must be like")


def test_the_file_is_the_one_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAULTLINE_CONFIG", raising=False)
    assert config_path(tmp_path) is None
    (tmp_path / "faultline.toml").touch()
    assert config_path(tmp_path) == tmp_path / "faultline.toml"
    monkeypatch.setenv("FAULTLINE_CONFIG", str(tmp_path / "elsewhere.toml"))
    assert config_path(tmp_path) == tmp_path / "elsewhere.toml"
    assert load(config_path(tmp_path), {}).errors == (f"{tmp_path / 'elsewhere.toml'}: No such file or directory",)


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("90", 90), (5, 5), ("1.5h", 5400), ("2d", 172_800), (0, 0)]
)
def test_durations(text: object, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5m", -1, True, None, [5]])
def test_what_is_no_duration(text: object) -> None:
    assert duration(text) is None


@pytest.mark.django_db
def test_a_file_that_changes_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> None:
    from triage.services.sources import configuration, find_source, registry

    file = tmp_path / "faultline.toml"
    monkeypatch.setenv("FAULTLINE_CONFIG", str(file))
    file.write_text("[clusters.c1.sources.slurm]\n")
    assert [name for name, _ in registry()] == ["files", "c1/slurm"]
    file.write_text("[clusters.c1.sources.slurm]\n[clusters.c2.sources.slurm]\n")
    assert [name for name, _ in registry()] == ["files", "c1/slurm", "c2/slurm"]
    assert find_source("c2/slurm")[0] is configuration().clusters["c2"]
    with pytest.raises(ConfigError, match="'c3/slurm' is not configured"):
        find_source("c3/slurm")


def test_a_wrong_configuration_is_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.core.checks import run_checks

    file = tmp_path / "faultline.toml"
    file.write_text("[clusters.c1.sources.slurm]\ncolour = 1\n")
    monkeypatch.setenv("FAULTLINE_CONFIG", str(file))
    said = [message.msg for message in run_checks() if message.id == "faultline.W001"]
    assert any("[clusters.c1.sources.slurm]: unknown key 'colour'" in message for message in said)


DOCUMENTS = sorted([ROOT / "docs/operators.md", *(ROOT / "docs/connectors").glob("*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_configurations_in_the_documents_work(document: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", document.read_text(), re.DOTALL)
    assert blocks, "it shows no configuration"
    for block in blocks:
        errors = [e for e in read(tmp_path, block).errors if "no source finds attempts" not in e]
        assert errors == []
        found = read(tmp_path, block)
        assert found.clusters or found.retention != Retention()
