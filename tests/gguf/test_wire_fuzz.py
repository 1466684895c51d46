"""Any bytes of a server, and any address, give a typed answer."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from console.common.text import clean
from console.models.gguf.byte_source import GgufError, follow, parse_address
from console.models.gguf.read import read_header

LINES = st.sampled_from(
    [b"HTTP/1.1 206 x", b"HTTP/1.1 200 OK", b"HTTP/1.0 302 x", b"HTTP/1.1 429 x", b"HTTP/1.1 100 x",
     b"Content-Length: 5", b"Content-Length: " + b"9" * 5000, b"Content-Length: -1", b"", b"GGUF",
     b"Content-Range: bytes 0-4/5", b"Content-Range: bytes 0-4/" + b"9" * 5000, b"Location: /x",
     b"Location: http://[", b"Location: \xff\x1b[2J", b"Transfer-Encoding: chunked", b"5", b"0",
     b"ffffffffffffffffff", b"RateLimit: a;t=99999999999999999999", b"Retry-After: Mon, 99 Foo",
     b"X-Linked-Size: 99999999999999999999999", b"ETag: \x00", b"Connection: close"]
)  # fmt: skip
ANSWERS = st.lists(LINES | st.binary(max_size=30), max_size=12).map(b"\r\n".join)
FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


class Raw(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    said = b""

    def handle_error(self, request: object, address: object) -> None:
        pass  # the client hung up


class Says(socketserver.StreamRequestHandler):
    """Answers every request with the same bytes, and hangs up."""

    server: Raw

    def handle(self) -> None:
        self.request.recv(65536)
        self.request.sendall(self.server.said)


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    with Raw(("127.0.0.1", 0), Says) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@FUZZ
@given(said=ANSWERS)
@example(said=b"HTTP/1.1 206 x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")
@example(said=b"HTTP/1.1 302 x\r\nLocation: /%0d%0a\r\nContent-Length: 99999999\r\n\r\n")
@example(said=b"HTTP/1.1 429 x\r\nRetry-After: Mon, 01 Jan 0001 00:00:00 -2359\r\n\r\n")
def test_any_answer(raw: Raw, said: bytes) -> None:
    raw.said = said
    with pytest.raises(GgufError) as caught:
        read_header(f"http://127.0.0.1:{raw.server_address[1]}/x?5ecret", deadline_s=5.0)
    words = "".join(caught.value.lines())
    assert clean(words, len(words) + 1) == words
    assert "5ecret" not in words


@FUZZ
@given(st.text(max_size=60))
@example("[")
@example("//[::1]:x/")
@example("https://[::1%25eth0]/")
def test_any_address(text: str) -> None:
    start = parse_address("https://host/a/b?q")
    for work in (
        lambda: parse_address(text),
        lambda: parse_address(f"https://{text}"),
        lambda: follow(start, text, start),
    ):
        try:
            found = work()
        except GgufError:
            continue
        assert found.target.isascii()
        assert found.target.isprintable()
        assert found.authority.isascii()
        assert " " not in found.authority + found.target
