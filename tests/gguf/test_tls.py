"""The same over TLS: certificates are checked, and nobody is led from https to plain http."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from console.models.gguf.byte_source import FIRST_READ, GgufError, Kind
from console.models.gguf.read import read_architecture, read_header
from tests.gguf.server import serving
from tests.gguf.test_remote import DATA, TOKEN

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its own certificate for 127.0.0.1, in one file."""
    place = tmp_path_factory.mktemp("tls")
    key, cert, both = place / "key.pem", place / "cert.pem", place / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    both.write_text(key.read_text() + cert.read_text())
    return both


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))


@pytest.mark.usefixtures("trusted")
def test_a_header_over_tls(tls: ssl.SSLContext) -> None:
    with serving(lambda exchange: exchange.part(DATA), tls=tls) as server:
        found = read_header(server.url, token=TOKEN)
    assert found.header.architecture == "llama"
    assert found.exchanges == len(server.requests) == 4
    assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.usefixtures("trusted")
def test_ranges_ignored_over_tls(tls: ssl.SSLContext) -> None:
    with serving(lambda exchange: exchange.send(200, DATA), tls=tls) as server:
        assert read_architecture(server.url).body_bytes <= FIRST_READ


def test_a_certificate_nobody_vouches_for(tls: ssl.SSLContext) -> None:
    with (
        serving(lambda exchange: exchange.part(DATA), tls=tls) as server,
        pytest.raises(GgufError) as caught,
    ):
        read_header(server.url, token=TOKEN)
    assert caught.value.kind is Kind.UNREACHABLE
    assert "certificate" in caught.value.detail
    assert server.requests == []


@pytest.mark.usefixtures("trusted")
def test_nobody_is_led_from_https_to_http(tls: ssl.SSLContext) -> None:
    with serving(lambda exchange: exchange.part(DATA)) as plain:
        where = f"{plain.url}/x?Signature=5ecret"
        with (
            serving(lambda exchange: exchange.redirect(where), tls=tls) as server,
            pytest.raises(GgufError) as caught,
        ):
            read_header(server.url, token=TOKEN)
    assert (caught.value.kind, plain.requests) == (Kind.PROTOCOL, [])
    assert "5ecret" not in "".join(caught.value.lines())
