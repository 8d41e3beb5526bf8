"""TLS: an authority of one's own, and certificates of clients."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.connectors.loki.conftest import NS, START, collect
from tests.fakes.loki import FakeLoki
from tests.peers import leave_out

LABELS = {"job_id": "4242", "node": "gx-01"}


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate for 127.0.0.1 and a client's, as PEM files."""
    if shutil.which("openssl") is None:
        leave_out("openssl is not installed, which makes the certificates of these tests")
    folder = tmp_path_factory.mktemp("certificates")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    ca, ca_key = str(folder / "ca.pem"), str(folder / "ca.key")
    usage = ("-addext", "keyUsage=critical,keyCertSign")
    openssl("req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", "2", "-subj", "/CN=Test Authority", *usage)
    for name, extension in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")):
        key, request = str(folder / f"{name}.key"), str(folder / f"{name}.csr")
        openssl("req", *curve, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        (folder / f"{name}.ext").write_text(extension)
        issue = ("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2")
        openssl(*issue, "-extfile", str(folder / f"{name}.ext"), "-out", str(folder / f"{name}.pem"))
    return folder


@pytest.fixture
def server_side(certificates: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    return made


def test_an_unknown_authority_is_told_and_one_that_is_set_is_trusted(
    server_side: ssl.SSLContext, certificates: Path
) -> None:
    with FakeLoki(tls=server_side) as loki:
        loki.push(LABELS, [(START * NS, "hello")])
        refused = collect(loki.url).reports["applog"]
        trusted = collect(loki.url, ca_file=str(certificates / "ca.pem")).reports["applog"]
        absent = collect(
            loki.url, ca_file=str(certificates / "ca.pem"), token=f"file:{certificates / 'absent'}"
        ).reports["applog"]
    assert refused.status == "error" and "its certificate is not trusted" in refused.note
    assert "set ca_file" in refused.note
    assert trusted.status == "ok"
    assert absent.status == "error" and "absent: No such file" in absent.note


def test_a_client_certificate_is_shown_to_a_server_that_wants_one(
    server_side: ssl.SSLContext, certificates: Path
) -> None:
    server_side.verify_mode = ssl.CERT_REQUIRED
    server_side.load_verify_locations(certificates / "ca.pem")
    pair = {"client_cert": str(certificates / "client.pem"), "client_key": f"file:{certificates / 'client.key'}"}
    with FakeLoki(tls=server_side) as loki:
        loki.push(LABELS, [(START * NS, "hello")])
        without = collect(loki.url, ca_file=str(certificates / "ca.pem")).reports["applog"]
        shown = collect(loki.url, ca_file=str(certificates / "ca.pem"), **pair).reports["applog"]
    assert without.status == "error" and "client_cert" in without.note
    assert shown.status == "ok" and shown.lines == 1


def test_plain_http_on_a_tls_address_is_told(certificates: Path) -> None:
    with FakeLoki() as loki:
        secure = loki.url.replace("http:", "https:")
        report = collect(secure, ca_file=str(certificates / "ca.pem")).reports["applog"]
    assert report.status == "error" and "does not speak TLS" in report.note
