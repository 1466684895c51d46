"""Reading by ranges from servers that behave: how many bytes and exchanges, to whom; and by TLS."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from console.models.gguf import remote
from console.models.gguf.byte_source import FIRST_READ, GgufError, Kind
from console.models.gguf.header import Array
from console.models.gguf.header import ValueType as T
from console.models.gguf.read import read_architecture, read_header
from console.models.gguf.remote import STEP
from tests.gguf.raw import LLAMA, array, header, string, tensor, text, u64
from tests.gguf.server import Exchange, Server, hub, serving
from tests.tls import made_certificate

TOKENS = array(b"tokenizer.ggml.tokens", T.STRING, 200_000, string(b"0123456789abc") * 200_000)
SCORES = array(b"tokenizer.ggml.scores", T.FLOAT32, 200_000, bytes(800_000))
FAR = text(b"tokenizer.ggml.model", b"gpt2")
DATA = header(LLAMA, TOKENS, SCORES, FAR, tensors=[tensor(b"w", [32])]) + bytes(STEP)
SIZE = len(DATA) - STEP
TOKEN = "hf_tokenTOKEN"


@contextmanager
def repository(data: bytes = DATA) -> Iterator[tuple[Server, Server]]:
    """A hub and the server it sends on to."""
    with ExitStack() as stack:
        far = stack.enter_context(serving(lambda exchange: exchange.part(data, ETag='"e"')))
        near = stack.enter_context(serving(hub(data, lambda: far)))
        yield near, far


def test_an_architecture_is_one_range_behind_one_redirect() -> None:
    with repository() as (near, far):
        found = read_architecture(f"{near.url}/o/r/resolve/main/x.gguf?download=1", token=TOKEN)
    assert found.header.architecture == "llama"
    assert (found.exchanges, found.body_bytes) == (2, FIRST_READ + len("Found"))
    assert [one.range for one in far.requests] == [(0, FIRST_READ - 1)]
    assert near.requests[0].path == "/o/r/resolve/main/x.gguf?download=1"
    assert near.requests[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert near.requests[0].headers["accept-encoding"] == "identity"
    assert found.file_bytes == len(DATA)
    assert found.name == f"{near.url}/o/r/resolve/main/x.gguf"


def test_the_token_is_not_shown_to_another_host_or_port() -> None:
    with repository() as (near, far):
        read_header(near.url, token=TOKEN)
    assert "authorization" in near.requests[0].headers
    assert far.requests
    assert not any("authorization" in one.headers for one in far.requests)
    assert not any(TOKEN in str(one) for one in far.requests)


def test_a_redirect_on_the_same_host_keeps_the_token() -> None:
    def answer(exchange: Exchange) -> None:
        if exchange.path == "/old":
            exchange.redirect("/new")
        else:
            exchange.part(DATA)

    with serving(answer) as server:
        read_architecture(f"{server.url}/old", token=TOKEN)
    assert [one.path for one in server.requests] == ["/old", "/new"]
    assert all(one.headers["authorization"] == f"Bearer {TOKEN}" for one in server.requests)


def test_a_whole_header_without_a_byte_twice() -> None:
    with repository() as (near, far):
        found = read_header(near.url)
    assert len(near.requests) == 1
    ranges = [one.range for one in far.requests]
    assert all(one is not None for one in ranges)
    ends = [(0, -1), *[one for one in ranges if one is not None]]
    assert all(after[0] > before[1] for before, after in pairwise(ends))
    assert found.exchanges == len(ranges) + 1 <= 5
    assert found.body_bytes <= SIZE + STEP
    assert found.header.kv["tokenizer.ggml.tokens"] == Array("STRING", 200_000)
    assert found.header.text("tokenizer.ggml.model") == "gpt2"
    assert found.header.header_bytes == SIZE
    assert found.notes == ()


def test_ranges_of_one_server_share_a_connection() -> None:
    peers = set()

    def answer(exchange: Exchange) -> None:
        peers.add(exchange.client_address)
        if exchange.path == "/":
            exchange.redirect("/blob")
        else:
            exchange.part(DATA)

    with serving(answer) as server:
        assert read_header(server.url).exchanges == 5
    assert len(peers) == 1


def test_a_header_that_jumps_for_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each string of the list is 3 MB long: to pass over it is to ask for the next."""
    part = u64(3 * 10**6) * 8192
    start = header(array(b"tokens", T.STRING, 2**20), count=1)

    def answer(exchange: Exchange) -> None:
        assert exchange.request_seen.range is not None
        first, last = exchange.request_seen.range
        body = ((start + part) if not first else u64(3 * 10**6) * 8192)[: last - first + 1]
        said = f"bytes {first}-{first + len(body) - 1}/{2**50}"
        exchange.send(206, body, Content_Range=said)

    monkeypatch.setattr(remote, "MAX_EXCHANGES", 8)
    with serving(answer) as server, pytest.raises(GgufError) as caught:
        read_header(server.url)
    assert caught.value.kind is Kind.TOO_BIG
    assert len(server.requests) == 8


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda exchange: exchange.part(DATA)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "elsewhere.test")
        found = read_architecture("http://models.test/x.gguf")
    assert found.header.architecture == "llama"
    assert [one.path for one in proxy.requests] == ["http://models.test/x.gguf"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_certificate(tmp_path_factory.mktemp("tls"))


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
