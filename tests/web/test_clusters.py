"""Administrators set clusters and sources up on pages, checked as the file is, and see which of them work."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from connectors.registry import FACTORIES, example
from tests.fakes.loki import FakeLoki
from triage.layers import PageRules, PageSource, read_source
from triage.models import ClusterCheck, ConfiguredCluster, ConfiguredSource, Discovery, SourceCheck, TimelineEvent
from triage.services.checking import run_check
from triage.services.clusters import SetupRefused, save_source
from triage.services.sources import configuration, forget_configuration

LOKI = 'url = "{url}"\n[[queries]]\nsource = "syslog"\nquery = \'{{job="x", node=~"{{nodes_regex}}"}}\'\n'


@pytest.fixture
def boss(db: None) -> User:
    return User.objects.create_user("root", first_name="Ada", last_name="Moreau", is_staff=True)


@pytest.fixture
def admin(client: Client, boss: User) -> Client:
    client.force_login(boss)
    return client


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Path]:
    """An empty faultline.toml; pages may name files below `secrets`."""
    path = tmp_path / "faultline.toml"
    path.write_text("")
    (tmp_path / "secrets").mkdir()
    monkeypatch.setenv("FAULTLINE_CONFIG", str(path))
    settings.FAULTLINE_PAGE_FOLDERS = [tmp_path / "secrets"]
    settings.FAULTLINE_PAGE_HOSTS = ["*", "127.0.0.1"]
    settings.FAULTLINE_DATA_DIR = tmp_path / "data"
    forget_configuration()
    yield path
    forget_configuration()


def write(file: Path, text: str) -> None:
    file.write_text(text)
    os.utime(file, ns=(time.time_ns(), time.time_ns()))


def get(client: Client, name: str, *args: Any) -> str:
    answer = client.get(reverse(name, args=args))
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def add_cluster(client: Client, name: str = "c1", **settings: str) -> Any:
    return client.post(
        reverse("cluster-add"), {"name": name, "time_zone": "", "recollect_after": "", "live": "", **settings}
    )


def add_source(client: Client, kind: str, text: str, cluster: str = "c1", name: str = "") -> Any:
    sent = {"name": name or kind, "text": text, "version": "0"}
    return client.post(f"{reverse('source-add', args=[cluster])}?kind={kind}", sent)


# --- who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args"),
    [("clusters", []), ("cluster-add", []), ("cluster", ["c1"]), ("cluster-progress", ["c1"]), ("source-add", ["c1"])],
)
def test_only_administrators_see_them(client: Client, boss: User, name: str, args: list[str]) -> None:
    ConfiguredCluster.objects.create(name="c1", changed_by=boss)
    address = reverse(name, args=args)
    assert client.get(address).status_code == 302
    client.force_login(User.objects.create_user("ada"))
    assert client.get(address).status_code == 403
    assert client.post(reverse("cluster-check", args=["c1"])).status_code == 403
    assert not ClusterCheck.objects.exists()
    assert "Clusters and sources" not in client.get("/").content.decode()


# --- setting up -------------------------------------------------------------------------------------------------------


def test_a_cluster_and_its_sources_are_set_up_and_used(admin: Client) -> None:
    assert "No cluster is set up" in get(admin, "clusters")
    assert add_cluster(admin, time_zone="Europe/Zurich", live="1h").status_code == 302
    assert add_source(admin, "slurm", "call_seconds = 5\n").status_code == 302
    assert add_source(admin, "loki", LOKI.format(url="http://loki.example:3100")).status_code == 302
    found = configuration()
    assert found.errors == ()
    cluster = found.clusters["c1"]
    assert (cluster.time_zone, cluster.live, cluster.recollect_after) == ("Europe/Zurich", 3600, 900)
    assert [(s.name, s.kind, s.finds) for s in cluster.sources] == [("loki", "loki", False), ("slurm", "slurm", True)]
    assert cluster.sources[1].values["call_seconds"] == 5
    shown = get(admin, "cluster", "c1")
    assert "here, by Ada Moreau" in shown and "set up <strong>loki</strong>" in shown


def test_what_is_wrong_is_said_in_the_files_own_words_and_nothing_is_kept(admin: Client) -> None:
    assert "a cluster&#x27;s name has letters" in add_cluster(admin, "a b").content.decode()
    refused = add_cluster(admin, time_zone="Zurich", live="soon")
    text = refused.content.decode()
    assert refused.status_code == 422 and "2 answers need another look" in text
    assert "must be a duration like" in text and not ConfiguredCluster.objects.exists()
    assert "is no time zone, like Europe/Zurich" in text and 'value="soon"' in text
    add_cluster(admin)
    for kind, wrong, words in (
        ("loki", 'url = "loki"\n', "queries: at least one is needed"),
        ("slurm", "colour = 1\n", "unknown key &#x27;colour&#x27;"),
        ("slurm", "call_seconds =\n", "not valid TOML"),
        ("promql", 'url = "http://p.example"\nkind = "loki"\n', "kind: is chosen beside the text"),
        ("slurm", "partitions = 5\n", "partitions: must be a name, or a list of names"),
    ):
        refused = add_source(admin, kind, wrong)
        assert refused.status_code == 422 and words in refused.content.decode(), (kind, wrong)
    assert "a source&#x27;s name has letters" in add_source(admin, "slurm", "", name="a/b").content.decode()
    assert not ConfiguredSource.objects.exists()


def test_a_secret_that_is_typed_is_refused_and_never_kept_or_shown(admin: Client) -> None:
    add_cluster(admin)
    for line in ('password = "hunter2"\nusername = "x"\n', "token = 'hunter2'\n", 'token = "hunter2\n'):
        refused = add_source(admin, "promql", f'url = "http://p.example"\n{line}')
        text = refused.content.decode()
        assert refused.status_code == 422 and "hunter2" not in text
    user = add_source(admin, "promql", 'url = "http://ada:hunter2@p.example"\n')
    assert user.status_code == 422 and "holds a user or password" in user.content.decode()
    assert not ConfiguredSource.objects.exists()
    assert "hunter2" not in str(list(TimelineEvent.objects.values_list("payload", flat=True)))


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("slurm", 'command_prefix = ["sh", "-c", "id"]', "command_prefix: names programs"),
        ("slurm", 'bin_dir = "/tmp"', "bin_dir: names programs"),
        ("slurm", 'environment = {LD_PRELOAD = "/tmp/x.so"}', "environment: names programs"),
        ("slurm", 'roots = ["/etc"]', "/etc: on a page, paths must lie in"),
        ("slurm", 'roots = {"/home" = "/etc"}', "/etc: on a page, paths must lie in"),
        ("slurm", 'slurmd_log = "/var/log/{node}"', "slurmd_log: /var/log/{node}: on a page"),
        ("slurm", '[rest]\nurl = "unix:/run/docker.sock"', "rest.url: a socket can only be set in"),
        ("slurm", '[rest]\nurl = "https://x:1"\ntoken = "env:SECRET_KEY"', "rest.token: on a page, env: must name"),
        ("kueue", 'kubeconfig = "/root/.kube/config"', "kubeconfig: /root/.kube/config: on a page"),
        ("kueue", 'kubeconfig = "config"', "kubeconfig: config: must be an absolute path"),
        ("promql", 'url = "http://p"\ntoken = "env:DATABASE_URL"', "token: on a page, env: must name a variable"),
        ("promql", 'url = "http://p"\ntoken = "file:/etc/shadow"', "token: /etc/shadow: on a page"),
        ("promql", 'url = "http://p"\ntoken = "file:{secrets}/../../etc/shadow"', "on a page, paths must lie in"),
        ("promql", 'url = "http://p"\ntoken = "file:{secrets}/link"', "on a page, paths must lie in"),
        ("promql", 'url = "https://p"\nca_file = "/etc/ssl/x"', "ca_file: /etc/ssl/x: on a page"),
        ("files", 'roots = {a = "/etc"}\nwatch = ["a"]', "roots: /etc: on a page"),
    ],
)
def test_a_page_reaches_nothing_of_the_machine_but_what_its_owner_set_apart(
    admin: Client, file: Path, kind: str, text: str, words: str
) -> None:
    secrets = file.parent / "secrets"
    (secrets / "link").symlink_to("/etc/shadow")
    add_cluster(admin)
    refused = add_source(admin, kind, text.replace("{secrets}", str(secrets)))
    assert refused.status_code == 422 and words in refused.content.decode()
    # also when it gets into the database in another way
    row = ConfiguredCluster.objects.get()
    ConfiguredSource.objects.create(
        cluster=row, name=kind, kind=kind, text=text.replace("{secrets}", str(secrets)), changed_by=row.changed_by
    )
    found = configuration()
    assert found.clusters["c1"].source(kind) is None
    assert any(words in error for error in found.errors)


def test_what_its_owner_set_apart_may_be_named(admin: Client, file: Path) -> None:
    (file.parent / "secrets" / "token").write_text("sesame")
    add_cluster(admin)
    for text in (f'token = "file:{file.parent}/secrets/token"', 'token = "env:FAULTLINE_SOURCE_PROMETHEUS"'):
        assert add_source(admin, "promql", f'url = "http://p.example"\n{text}\n').status_code == 302
        ConfiguredSource.objects.all().delete()


def test_every_key_that_names_a_path_is_known_to_be_one() -> None:
    """A key that is added to a connector must not open the machine to its pages."""
    from typing import get_type_hints

    from connectors.files.config import FilesConfig
    from connectors.kube.config import KubeConfig
    from connectors.loki.config import LokiConfig
    from connectors.promql.config import PromConfig
    from connectors.slurm.config import SlurmConfig
    from triage.layers import PATHS

    for config in (FilesConfig, KubeConfig, LokiConfig, PromConfig, SlurmConfig):
        named = {key for key, hint in get_type_hints(config).items() if "Path" in str(hint) and key != "patterns"}
        assert named <= set(PATHS), config


@pytest.mark.parametrize("kind", sorted(FACTORIES))
def test_what_a_new_source_begins_with_is_taken_as_it_stands(kind: str) -> None:
    rules = PageRules((Path("/run/secrets"), Path("/mnt/central-logs")))
    values = read_source(kind, PageSource(kind, example(kind)), rules, "test")
    assert values.pop("kind") == kind
    FACTORIES[kind]({"name": kind, **values})
    # and with every line that is only suggested
    full = example(kind).replace("\n# roots", "\nroots").replace("\n# namespaces", "\nnamespaces")
    FACTORIES[kind]({"name": kind, **{k: v for k, v in read_source(
        kind, PageSource(kind, full), PageRules((Path("/"),)), "test").items() if k != "kind"}})  # fmt: skip


# --- file and environment go before pages -----------------------------------------------------------------------------


def test_environment_goes_before_file_and_file_before_pages(
    admin: Client, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_cluster(admin, time_zone="Asia/Tokyo", live="1h", recollect_after="20m")
    add_source(admin, "slurm", 'partitions = "page"\ncall_seconds = 5\n')
    add_source(admin, "promql", 'url = "http://page.example"\n')
    write(
        file, '[clusters.c1]\nlive = "2h"\nrecollect_after = "30m"\n[clusters.c1.sources.slurm]\npartitions = "file"\n'
    )
    monkeypatch.setenv("FAULTLINE_CLUSTERS__C1__RECOLLECT_AFTER", "40m")
    monkeypatch.setenv("FAULTLINE_CLUSTERS__C1__SOURCES__PROMQL__TENANT", "env")
    forget_configuration()
    cluster = configuration().clusters["c1"]
    assert (cluster.time_zone, cluster.live, cluster.recollect_after) == ("Asia/Tokyo", 7200, 2400)
    slurm, promql = cluster.source("slurm"), cluster.source("promql")
    assert slurm is not None and promql is not None
    assert slurm.values["partitions"] == "file" and "call_seconds" not in slurm.values
    assert (promql.values["url"], promql.values["tenant"]) == ("http://page.example", "env")
    shown = get(admin, "cluster", "c1")
    assert "a page has one of this name too, which is not used" in shown
    refused = add_source(admin, "slurm", "", name="slurm")
    assert refused.status_code == 422


def test_a_source_of_the_file_can_not_be_taken_over_by_a_page(admin: Client, file: Path) -> None:
    write(file, "[clusters.c1.sources.slurm]\n")
    refused = add_source(admin, "slurm", "")
    assert refused.status_code == 422 and "change it there, or choose another name" in refused.content.decode()
    assert admin.get(reverse("source", args=["c1", "slurm"])).status_code == 404
    shown = get(admin, "cluster", "c1")
    assert str(file) in shown


def test_a_file_that_can_not_be_read_leaves_the_pages_in_use(admin: Client, file: Path) -> None:
    add_cluster(admin)
    add_source(admin, "slurm", "")
    write(file, "[clusters.c1")
    assert list(configuration().clusters) == ["c1"]
    assert "not valid TOML" in get(admin, "clusters")


# --- changing ---------------------------------------------------------------------------------------------------------


def test_of_two_who_change_a_source_the_second_is_told(admin: Client, boss: User) -> None:
    add_cluster(admin)
    add_source(admin, "slurm", "call_seconds = 5\n")
    address = reverse("source", args=["c1", "slurm"])
    other = User.objects.create_user("grace", is_staff=True)
    save_source("c1", "slurm", "slurm", "call_seconds = 6\n", other, version=1)
    refused = admin.post(address, {"text": "call_seconds = 7\n", "version": "1"})
    text = refused.content.decode()
    assert refused.status_code == 422 and "grace changed it meanwhile" in text and "call_seconds = 7" in text
    assert ConfiguredSource.objects.get().text == "call_seconds = 6\n"
    assert admin.post(address, {"text": "call_seconds = 7\n", "version": "2"}).status_code == 302
    assert (ConfiguredSource.objects.get().text, ConfiguredSource.objects.get().version) == ("call_seconds = 7\n", 3)
    with pytest.raises(SetupRefused):
        save_source("c1", "slurm", "slurm", "", boss)


def test_what_is_removed_is_not_asked_any_more_and_its_search_begins_anew(admin: Client) -> None:
    add_cluster(admin)
    add_source(admin, "slurm", "")
    add_source(admin, "kueue", "")
    Discovery.objects.create(connector="c1/slurm", cluster="c1", cursor={"at": 5})
    assert admin.post(reverse("source-remove", args=["c1", "slurm"])).status_code == 302
    assert [source.name for source in configuration().clusters["c1"].sources] == ["kueue"]
    assert not Discovery.objects.exists()
    assert admin.post(reverse("cluster-remove", args=["c1"])).status_code == 302
    assert configuration().clusters == {} and not ConfiguredSource.objects.exists()
    kinds = list(TimelineEvent.objects.order_by("pk").values_list("kind", flat=True))
    assert kinds == [
        "cluster.configured",
        "source.configured",
        "source.configured",
        "source.removed",
        "cluster.removed",
    ]


# --- where sources may be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:6379", "http://localhost", "http://[::1]:80", "http://169.254.169.254"]
)
@pytest.mark.parametrize(
    ("kind", "text"), [("promql", 'url = "{url}"\n'), ("slurm", '[rest]\nurl = "{url}"\ntoken = "file:{token}"\n')]
)
def test_a_page_does_not_reach_into_the_machine(
    admin: Client, settings: Any, tmp_path: Path, kind: str, text: str, url: str
) -> None:
    settings.FAULTLINE_PAGE_HOSTS = ["*"]
    add_cluster(admin)
    refused = add_source(admin, kind, text.format(url=url, token=tmp_path / "secrets" / "t"))
    assert refused.status_code == 422 and "allow it with FAULTLINE_PAGE_HOSTS" in refused.content.decode()
    assert not ConfiguredSource.objects.exists()


def test_what_the_file_names_may_be_on_this_machine(admin: Client, boss: User, settings: Any, file: Path) -> None:
    """And a page's source is confined even if it came into the database before there was such a rule."""
    settings.FAULTLINE_PAGE_HOSTS = ["*"]
    write(
        file, '[clusters.c1.sources.slurm]\n[clusters.c1.sources.mine]\nkind = "promql"\nurl = "http://127.0.0.1:9"\n'
    )
    add_source(admin, "promql", 'url = "http://logs.example"\n')
    forget_configuration()
    cluster = configuration().clusters["c1"]
    mine, theirs = cluster.source("mine"), cluster.source("promql")
    assert mine is not None and theirs is not None
    assert mine.reach.is_everywhere and theirs.reach.why_not("127.0.0.1")
    ConfiguredSource.objects.update(text='url = "http://127.0.0.1:9"\n')
    forget_configuration()
    found = configuration()
    assert found.clusters["c1"].source("promql") is None
    assert any("promql]: url: 127.0.0.1 is an address of this machine itself" in error for error in found.errors)


# --- checking ---------------------------------------------------------------------------------------------------------


def answer_all() -> None:
    """What the workers would do."""
    for row in SourceCheck.objects.filter(state="waiting"):
        run_check(row.pk, seconds=5)


@pytest.mark.django_db(transaction=True)
def test_every_source_is_asked_once_and_says_what_to_change(admin: Client) -> None:
    with FakeLoki() as loki:
        loki.push({"job": "x"}, [(time.time_ns() - 10**9, "a line")])
        add_cluster(admin)
        add_source(admin, "loki", LOKI.format(url=loki.url))
        add_source(admin, "promql", 'url = "http://127.0.0.1:9"\n')
        assert "Check every source" in get(admin, "cluster", "c1")
        assert admin.post(reverse("cluster-check", args=["c1"])).status_code == 302
        shown = get(admin, "cluster", "c1")
        assert "0 of 2 answered" in shown and shown.count("Waiting for a worker") == 2
        assert '<noscript><meta http-equiv="refresh" content="3; url=/clusters/c1/"></noscript>' in shown
        assert admin.post(reverse("cluster-check", args=["c1"])).status_code == 302  # nothing is started twice
        assert SourceCheck.objects.count() == 2
        answer_all()
        asked = len(loki.requests)
        answer_all()
        assert len(loki.requests) == asked
    shown = get(admin, "cluster", "c1")
    assert "1 of 2 sources works, asked by Ada Moreau" in " ".join(shown.split())
    assert "refuses connections: it is down, or url names a wrong port" in shown
    assert f"{loki.url}/loki/api/v1/labels" in shown
    assert 'http-equiv="refresh"' not in shown and "Check again" in shown
    report = SourceCheck.objects.get(source="loki").report
    assert report["status"] == "ok" and 0 < report["duration_s"] < 5


def test_progress_is_a_fragment_that_ends_its_own_polling(admin: Client) -> None:
    add_cluster(admin)
    add_source(admin, "promql", 'url = "http://127.0.0.1:9"\n')
    admin.post(reverse("cluster-check", args=["c1"]))
    address, htmx = reverse("cluster-progress", args=["c1"]), {"HX-Request": "true"}
    assert admin.get(address).status_code == 302  # by hand it leads to the page
    first = admin.get(address, headers=htmx)
    assert "hx-trigger" in first.content.decode()
    assert admin.get(address, headers={**htmx, "If-None-Match": first.headers["ETag"]}).status_code == 304
    answer_all()
    last = admin.get(address, headers={**htmx, "If-None-Match": first.headers["ETag"]}).content.decode()
    assert "hx-trigger" not in last and "Check again" in last and "Fails" in last


def test_a_check_that_nobody_takes_on_says_so_and_one_whose_worker_died_can_be_started_again(admin: Client) -> None:
    add_cluster(admin)
    add_source(admin, "promql", 'url = "http://127.0.0.1:9"\n')
    admin.post(reverse("cluster-check", args=["c1"]))
    ClusterCheck.objects.update(asked_at=timezone.now() - timedelta(seconds=15))
    assert "No worker has taken this on yet" in get(admin, "cluster", "c1")
    SourceCheck.objects.update(state="asking", began_at=timezone.now() - timedelta(seconds=60))
    shown = get(admin, "cluster", "c1")
    assert "No answer" in shown and "start a worker, then check again" in shown
    admin.post(reverse("cluster-check", args=["c1"]))
    assert SourceCheck.objects.get().state == "waiting"


def test_a_worker_that_does_not_know_the_source_says_so(admin: Client) -> None:
    add_cluster(admin)
    add_source(admin, "promql", 'url = "http://127.0.0.1:9"\n')
    admin.post(reverse("cluster-check", args=["c1"]))
    ConfiguredSource.objects.all().delete()
    answer_all()
    assert "another faultline.toml" in get(admin, "cluster", "c1")
