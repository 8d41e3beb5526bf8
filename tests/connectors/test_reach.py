"""What a page names may be neither on this machine nor where clouds tell a machine its credentials."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from connectors.base import ConfigError, ConnectorError
from connectors.reach import ANYWHERE, NotAllowed, Place, Reach, place_of, reach_of
from connectors.registry import FACTORIES
from tests.fakes.kubernetes import FakeKubernetes
from tests.fakes.loki import FakeLoki

PAGES = reach_of(["*"], "FAULTLINE_PAGE_HOSTS")
QUERY = {"source": "applog", "query": '{job="x"}'}
SERVERS: dict[str, dict[str, Any]] = {
    "loki": {"url": "{url}", "queries": [QUERY]},
    "promql": {"url": "{url}"},
    "slurm": {"rest": {"url": "{url}", "token": "env:FAULTLINE_SOURCE_TOKEN", "version": "v0.0.41"}},
    "kueue": {"kubeconfig": "{kubeconfig}"},
    "pods": {"kubeconfig": "{kubeconfig}"},
}


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("127.0.0.1", Place.MACHINE), ("127.8.9.1", Place.MACHINE), ("::1", Place.MACHINE), ("0.0.0.0", Place.MACHINE),
        ("::", Place.MACHINE), ("::ffff:127.0.0.1", Place.MACHINE), ("::127.0.0.1", Place.MACHINE),
        ("64:ff9b::7f00:1", Place.MACHINE), ("2002:7f00:1::1", Place.MACHINE), ("0.1.2.3", Place.MACHINE),
        ("169.254.169.254", Place.LINK), ("::ffff:169.254.169.254", Place.LINK), ("64:ff9b::a9fe:a9fe", Place.LINK),
        ("2002:a9fe:a9fe::", Place.LINK), ("fe80::1", Place.LINK), ("169.254.170.2", Place.LINK),
        ("100.100.100.200", Place.LINK), ("168.63.129.16", Place.LINK), ("fd00:ec2::254", Place.LINK),
        ("224.0.0.1", Place.LINK), ("ff02::1", Place.LINK),
        ("10.2.3.4", Place.PRIVATE), ("192.168.4.1", Place.PRIVATE), ("172.20.0.9", Place.PRIVATE),
        ("100.64.0.7", Place.PRIVATE), ("fd12::1", Place.PRIVATE), ("::ffff:10.2.3.4", Place.PRIVATE),
        ("9.9.9.9", Place.PUBLIC), ("2620:fe::9", Place.PUBLIC),
    ],
)  # fmt: skip
def test_an_address_is_the_worst_that_it_leads_to(address: str, place: Place) -> None:
    assert place_of(ipaddress.ip_address(address)) == place


def own_address() -> str:
    """An address that an interface of this machine has, beside loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network but its own")
        return str(probe.getsockname()[0])


def test_this_machine_is_known_by_all_of_its_addresses() -> None:
    assert place_of(ipaddress.ip_address(own_address())) == Place.MACHINE


@pytest.mark.parametrize("name", ["localhost", "2130706433", "0x7f.1", "127.1", "LOCALHOST.", "[::1]"])
def test_no_way_of_writing_it_leads_to_this_machine(name: str) -> None:
    with pytest.raises((NotAllowed, OSError)) as refused:
        PAGES.addresses(name, 80)
    assert "FAULTLINE_PAGE_HOSTS" in str(refused.value) or isinstance(refused.value, OSError)


def test_what_is_named_is_allowed_and_without_a_star_nothing_else() -> None:
    few = reach_of(["Logs.Example.org.", ".gpu.example.org", "10.20.0.0/16", "127.0.0.1"], "S")
    assert few.addresses("10.20.4.1", 80) == ["10.20.4.1"] and few.addresses("127.0.0.1", 80) == ["127.0.0.1"]
    for host in ("10.21.0.1", "9.9.9.9", "127.0.0.2"):
        with pytest.raises(NotAllowed, match="allow it with S"):
            few.addresses(host, 80)
    assert few._names("logs.example.org") and few._names("LOKI.gpu.example.org.")
    assert not few._names("gpu.example.org") and not few._names("xlogs.example.org")
    assert PAGES.addresses("10.21.0.1", 80) == ["10.21.0.1"] and PAGES.addresses("9.9.9.9", 80) == ["9.9.9.9"]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """Name -> the addresses that looking it up gives, one answer after another, the last again and again."""
    table: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        answers = table.get(host)
        if answers is None:
            return real(host, *args, **kwargs)
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [entry for address in found for entry in real(address, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return table


def made(kind: str, url: str, tmp_path: Path, reach: Reach) -> Any:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "k",
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "sesame"}}],
        "contexts": [{"name": "k", "context": {"cluster": "k", "user": "u"}}],
    }))  # fmt: skip

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(one) for key, one in value.items()}
        return value.replace("{url}", url).replace("{kubeconfig}", str(kubeconfig)) if isinstance(value, str) else value

    return FACTORIES[kind](filled({"name": kind, **SERVERS[kind]}), reach)


@contextlib.contextmanager
def listening(redirect: str = "") -> Iterator[tuple[int, list[str]]]:
    """A server that counts its connections, and sends everybody on when told where to."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(307 if redirect else 200)
            self.send_header("Location", redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        server.server_close()


def test_every_kind_that_asks_a_server_is_tried_here() -> None:
    assert set(SERVERS) == set(FACTORIES) - {"files"}


@pytest.mark.parametrize("kind", sorted(SERVERS))
@pytest.mark.parametrize("host", ["127.0.0.1", "logs.example.org"])
def test_a_page_s_source_does_not_reach_this_machine(
    kind: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: dict[str, list[list[str]]]
) -> None:
    monkeypatch.setenv("FAULTLINE_SOURCE_TOKEN", "sesame")
    names["logs.example.org"] = [["127.0.0.1"]]
    with listening() as (port, asked):
        report = made(kind, f"http://{host}:{port}", tmp_path, PAGES).check(seconds=5)
        assert report.status == "error"
        assert f"{host} is an address of this machine itself; allow it with FAULTLINE_PAGE_HOSTS" in report.note
        assert asked == []
        made(kind, f"http://{host}:{port}", tmp_path, reach_of(["*", host], "S")).check(seconds=5)
        assert asked != []


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_a_name_that_leads_elsewhere_the_second_time_gets_nowhere(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: dict[str, list[list[str]]]
) -> None:
    monkeypatch.setenv("FAULTLINE_SOURCE_TOKEN", "sesame")
    with listening() as (port, asked):
        names["logs.example.org"] = [["192.0.2.9"], ["127.0.0.1"]]
        connected: list[Any] = []
        real = socket.socket.connect

        def connect(self: socket.socket, address: Any) -> None:
            if self.type == socket.SOCK_STREAM:
                connected.append(address[0])
                raise ConnectionRefusedError(111, "Connection refused")
            real(self, address)

        monkeypatch.setattr(socket.socket, "connect", connect)
        made(kind, f"http://logs.example.org:{port}", tmp_path, PAGES).check(seconds=2)
        assert connected and "127.0.0.1" not in connected and asked == []


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_a_redirect_is_not_followed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_SOURCE_TOKEN", "sesame")
    with listening() as (inside, reached), listening(f"http://127.0.0.1:{inside}/secret") as (port, asked):
        made(kind, f"http://127.0.0.1:{port}", tmp_path, ANYWHERE).check(seconds=5)
        assert asked and reached == []


def test_of_several_addresses_those_that_are_allowed_are_tried_one_after_another(
    names: dict[str, list[list[str]]], tmp_path: Path
) -> None:
    with FakeLoki() as loki:
        port = loki.url.rpartition(":")[2]
        names["logs.example.org"] = [["169.254.169.254", "127.0.0.9", "127.0.0.1"]]
        reach = reach_of(["127.0.0.0/8"], "S")
        report = made("loki", f"http://logs.example.org:{port}", tmp_path, reach).check(seconds=5)
        assert report.status == "empty" and loki.requests[-1][2]["host"] == f"logs.example.org:{port}"


# --- kubeconfigs, which are files that may lie where jobs write -------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("user", "exec", {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": ["{mark}"]}),
        ("user", "auth-provider", {"name": "gcp", "config": {"cmd-path": "touch", "cmd-args": "{mark}"}}),
        ("user", "tokenFile", "{secret}"),
        ("user", "client-key", "{secret}"),
        ("cluster", "certificate-authority", "{secret}"),
    ],
)
def test_a_kubeconfig_that_a_page_names_runs_nothing_and_reads_nothing_else(
    part: str, key: str, value: Any, tmp_path: Path
) -> None:
    mark, secret = tmp_path / "mark", tmp_path / "secret"
    secret.write_text("of the machine")
    with FakeKubernetes() as cluster:
        path = Path(cluster.kubeconfig(tmp_path / "kubeconfig"))
        document = json.loads(path.read_text())
        told = json.dumps(value).replace("{mark}", str(mark)).replace("{secret}", str(secret))
        document[f"{part}s"][0][part][key] = json.loads(told)
        path.write_text(json.dumps(document))
        reach = reach_of(["127.0.0.1"], "S")
        report = FACTORIES["pods"]({"kubeconfig": str(path)}, reach).check(seconds=5)  # type: ignore[attr-defined]
        assert report.status == "error" and f"{key}: a kubeconfig that a page names" in report.note
        assert cluster.requests == [] and not mark.exists()


def test_a_kubeconfig_that_refers_to_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("clusters: &a [*a, *a]\n")
    with (
        pytest.raises(ConnectorError, match="refers to itself"),
        FACTORIES["kueue"]({"kubeconfig": str(path)}, PAGES)._session(5),
    ):  # type: ignore[attr-defined]
        pass


def test_a_kubeconfig_is_one_file(tmp_path: Path) -> None:
    """The official client takes a colon for several, so the second would lie outside of the checked folders."""
    with pytest.raises(ConfigError, match="kubeconfig: must be one file"):
        FACTORIES["pods"]({"kubeconfig": f"{tmp_path}/a:/tmp/evil"})
