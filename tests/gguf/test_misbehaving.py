"""Servers that lie, stall, refuse or change their mind: a typed answer in words each time."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from console.clock import FakeClock
from console.gguf.errors import GgufError, Kind
from console.gguf.read import read_architecture, read_header
from console.gguf.remote import MAX_REDIRECTS
from console.gguf.window import FIRST_READ
from tests.gguf.hostile import HTML
from tests.gguf.raw import header, text
from tests.gguf.server import Answer, Exchange, serving
from tests.gguf.test_remote import DATA, TOKEN

LATE = header(text(b"general.name", b"x" * 200_000), text(b"general.architecture", b"llama"))
SECRET = "Signature=5ecret"
FIRST = f"bytes 0-{FIRST_READ - 1}/{len(DATA)}"


def refused(
    answer: Answer,
    read: Callable[..., object] = read_header,
    **options: object,
) -> GgufError:
    """The error, which must be harmless and keep every secret."""
    with serving(answer) as server, pytest.raises(GgufError) as caught:
        read(f"{server.url}/x.gguf?{SECRET}", token=TOKEN, **options)
    said = "\n".join(caught.value.lines())
    assert said.replace("\n", "").isprintable()
    assert "5ecret" not in said
    assert TOKEN not in said
    return caught.value


def says(status: int, body: bytes = b"", **headers: str) -> Answer:
    return lambda exchange: exchange.send(status, body, **headers)


def second(answer: Answer) -> Answer:
    """The first range as it should be, then something else."""

    def both(exchange: Exchange) -> None:
        if len(exchange.server.requests) == 1:
            exchange.part(DATA, ETag='"one"', X_Repo_Commit="c1")
        else:
            answer(exchange)

    return both


def test_ranges_ignored_and_the_first_range_are_enough() -> None:
    with serving(lambda exchange: exchange.send(200, DATA + bytes(8 * 2**20))) as server:
        found = read_architecture(server.url)
    assert found.header.architecture == "llama"
    assert found.body_bytes <= FIRST_READ
    assert found.notes == ("the server ignores Range: reading stopped after 60.0 KiB",)
    assert found.file_bytes == len(DATA) + 8 * 2**20


def test_ranges_ignored_and_more_is_needed() -> None:
    for chunked in (False, True):

        def answer(exchange: Exchange, chunked: bool = chunked) -> None:
            if not chunked:
                return exchange.send(200, LATE)
            exchange.send_response(200)
            exchange.send_header("Transfer-Encoding", "chunked")
            exchange.end_headers()
            return exchange.put(b"%x\r\n%s\r\n0\r\n\r\n" % (len(LATE), LATE))

        error = refused(answer, read_architecture)
        assert error.kind is Kind.NO_RANGES
        assert "ignores Range: reading stopped after 60.0 KiB" in error.detail


def test_a_small_file_without_ranges() -> None:
    data = header(text(b"general.architecture", b"llama"))
    with serving(lambda exchange: exchange.send(200, data)) as server:
        found = read_header(server.url)
    assert (found.header.architecture, found.file_bytes) == ("llama", len(data))


def test_a_web_page_instead_of_the_file() -> None:
    error = refused(says(200, HTML, Content_Type="text/html"))
    assert (error.kind, "a web page: Sign in now" in error.detail) == (Kind.NOT_GGUF, True)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (f"bytes 100-{FIRST_READ + 99}/{len(DATA)}", "given bytes 100-61539"),
        (f"bytes 0-{FIRST_READ}/{len(DATA)}", "given bytes 0-61440"),
        (f"bytes 0-99/{len(DATA)}", "a range of 100 bytes"),
        ("bytes 5-1/9", "given bytes 5-1"),
        ("bytes */9", "without a usable place"),
        ("\x1b[31mbytes", "without a usable place: bytes"),
        (f"bytes 0-{FIRST_READ - 1}/100", "malformed"),
    ],
)
def test_a_wrong_content_range(said: str, words: str) -> None:
    error = refused(lambda exchange: exchange.send(206, DATA[:FIRST_READ], Content_Range=said))
    if words != "malformed":
        assert (error.kind, words in error.detail) == (Kind.PROTOCOL, True), error.detail


def test_no_content_range_passes_once_with_a_note() -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send(206, DATA[:FIRST_READ])

    with serving(answer) as server:
        found = read_architecture(server.url)
    assert found.notes == ("the server does not say which range it sends (a mirror?)",)
    assert found.file_bytes is None
    error = refused(answer)
    assert (error.kind, "usable place: none" in error.detail) == (Kind.PROTOCOL, True)


def test_more_than_asked() -> None:
    error = refused(says(206, DATA, Content_Range=FIRST))
    assert (error.kind, "or more" in error.detail) == (Kind.PROTOCOL, True)


def test_compressed_though_not_asked() -> None:
    body = gzip.compress(DATA[:FIRST_READ])
    error = refused(says(206, body, Content_Range=FIRST, Content_Encoding="gzip"))
    assert (error.kind, "compressed (gzip)" in error.detail) == (Kind.PROTOCOL, True)


def test_a_body_that_breaks_off() -> None:
    def answer(exchange: Exchange) -> None:
        length = str(FIRST_READ)
        exchange.send(206, DATA[:9000], Content_Range=FIRST, Content_Length=length)
        exchange.connection.shutdown(socket.SHUT_RDWR)

    error = refused(answer)
    assert (error.kind, "after 9000 bytes" in error.detail) == (Kind.BROKEN_OFF, True)


def test_a_short_range_is_gone_on_from() -> None:
    def answer(exchange: Exchange) -> None:
        assert exchange.request_seen.range is not None
        first, last = exchange.request_seen.range
        last = min(last, first + 150_000, len(DATA) - 1)
        said = f"bytes {first}-{last}/{len(DATA)}"
        exchange.send(206, DATA[first : last + 1], Content_Range=said)

    with serving(answer) as server:
        assert read_header(server.url).header.text("tokenizer.ggml.model") == "gpt2"


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"ETag": '"two"', "X_Repo_Commit": "c1"}, "etag"),
        ({"ETag": '"one"', "X_Repo_Commit": "c2"}, "x-repo-commit"),
    ],
)
def test_another_file_from_one_range_to_the_next(headers: dict[str, str], words: str) -> None:
    error = refused(second(lambda exchange: exchange.part(DATA, **headers)))
    assert (error.kind, words in error.detail) == (Kind.CHANGED, True)


def test_another_size_from_one_range_to_the_next() -> None:
    error = refused(second(lambda exchange: exchange.part(DATA + b"x", ETag='"one"')))
    assert (error.kind, f"{len(DATA)} bytes, then" in error.detail) == (Kind.CHANGED, True)
    linked = str(len(DATA) + 1)
    error = refused(lambda exchange: exchange.part(DATA, X_Linked_Size=linked))
    assert error.kind is Kind.CHANGED


def test_ranges_ignored_from_the_second_on() -> None:
    assert refused(second(says(200, DATA))).kind is Kind.NO_RANGES


def test_a_redirect_that_goes_round() -> None:
    def answer(exchange: Exchange) -> None:
        exchange.redirect("/b" if exchange.path == "/a" else "/a")

    error = refused(answer)
    assert (error.kind, "in a circle" in error.detail) == (Kind.PROTOCOL, True)


def test_redirects_without_end() -> None:
    count = 0

    def answer(exchange: Exchange) -> None:
        nonlocal count
        count += 1
        exchange.redirect(f"/{count}")

    error = refused(answer)
    assert (error.kind, "more than 5" in error.detail) == (Kind.PROTOCOL, True)
    assert count == MAX_REDIRECTS + 1


@pytest.mark.parametrize("where", ["file:///etc/passwd", "http://a b/", "ftp://x/y", "http://["])
def test_a_redirect_to_what_is_no_web_address(where: str) -> None:
    error = refused(lambda exchange: exchange.redirect(where))
    assert (error.kind, "cannot be used" in error.detail) == (Kind.PROTOCOL, True)


@pytest.mark.parametrize(
    ("status", "headers", "kind", "words"),
    [
        (401, {}, Kind.REFUSED, "HTTP 401"),
        (403, {"X_Error_Code": "GatedRepo"}, Kind.REFUSED, "HTTP 403: GatedRepo"),
        (404, {"X_Error_Code": "EntryNotFound"}, Kind.MISSING, "no file of this name"),
        (404, {"X_Error_Code": "RevisionNotFound"}, Kind.MISSING, "no such branch"),
        (404, {}, Kind.MISSING, "check the repository"),
        (429, {"RateLimit": '"api";r=0;t=55'}, Kind.RATE_LIMITED, "try again in 56.0 s"),
        (429, {"Retry_After": "120"}, Kind.RATE_LIMITED, "try again in 2 min 00 s"),
        (429, {"Retry_After": "Mon, 12 Jan 1970 13:46:50 GMT"}, Kind.RATE_LIMITED, "in 10.0 s"),
        (429, {"RateLimit": "junk", "Retry_After": "soon"}, Kind.RATE_LIMITED, "again later"),
        (503, {"Retry_After": "7"}, Kind.SERVER, "try again in 7.00 s"),
        (500, {}, Kind.SERVER, "HTTP 500"),
        (418, {}, Kind.PROTOCOL, "HTTP 418"),
        (204, {}, Kind.PROTOCOL, "HTTP 204"),
        (302, {}, Kind.PROTOCOL, "HTTP 302"),
    ],
)
def test_refusals(status: int, headers: dict[str, str], kind: Kind, words: str) -> None:
    error = refused(says(status, b"", **headers), clock=FakeClock())
    assert (error.kind, words in "\n".join(error.lines())) == (kind, True), error.lines()


def test_what_a_server_says_is_made_harmless_and_secrets_are_taken_out() -> None:
    said = f"no access for {TOKEN} \x1b[31mhere"
    error = refused(says(403, X_Error_Message=said))
    assert error.detail == "HTTP 403: no access for <token> here"
    error = refused(says(200, b'{"error": "bad token %s"}' % TOKEN.encode()))
    assert "JSON: bad token <token>" in error.detail


def test_a_401_tells_with_and_without_a_token() -> None:
    assert "the token given has no access" in refused(says(401)).hint
    with serving(says(401)) as server, pytest.raises(GgufError) as caught:
        read_header(server.url)
    assert "set HF_TOKEN" in caught.value.hint


def test_416_and_an_empty_file() -> None:
    error = refused(lambda exchange: exchange.part(b""))
    assert (error.kind, "the file is empty" in error.detail) == (Kind.TRUNCATED, True)
    error = refused(second(says(416, Content_Range=f"bytes */{len(DATA)}")))
    assert (error.kind, "refuses bytes from" in error.detail) == (Kind.PROTOCOL, True)
    error = refused(second(says(416, Content_Range="bytes */60000")))
    assert error.kind is Kind.CHANGED


def test_a_file_that_ends_inside_its_header() -> None:
    error = refused(lambda exchange: exchange.part(DATA[:100_000]))
    assert (error.kind, "ends at byte 100000" in error.detail) == (Kind.TRUNCATED, True)


@pytest.mark.parametrize("where", ["headers", "body", "redirect"])
def test_a_drip_has_a_deadline_over_all_of_it(where: str) -> None:
    """A byte a second of the injected clock: no read is ever late, all of them together are."""
    clock = FakeClock()

    def answer(exchange: Exchange) -> None:
        head = f"HTTP/1.1 206 x\r\nContent-Length: 65536\r\nContent-Range: {FIRST}\r\n\r\n"
        if where == "redirect":
            head = "HTTP/1.1 302 x\r\nLocation: /y\r\nContent-Length: 9000\r\n\r\n"
        drip = head.encode() + DATA
        if where != "headers":
            exchange.connection.sendall(head.encode())
            drip = DATA
        for at in range(200):
            clock.sleep(1)
            exchange.connection.sendall(drip[at : at + 1])
        exchange.server.stop.wait(60)

    error = refused(answer, clock=clock, deadline_s=60.0)
    assert (error.kind, "not done within 1 min 00 s in all" in error.detail) == (
        Kind.TIMEOUT,
        True,
    )


def test_silence_has_a_deadline() -> None:
    error = refused(lambda exchange: exchange.server.stop.wait(60), deadline_s=0.2)
    assert error.kind is Kind.TIMEOUT


def test_nobody_answers() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(GgufError) as caught:
            read_header(f"http://127.0.0.1:{port}/x.gguf?{SECRET}")
    assert caught.value.kind is Kind.UNREACHABLE
    assert "5ecret" not in "".join(caught.value.lines())


def test_what_is_no_http() -> None:
    def answer(exchange: Exchange) -> None:
        exchange.connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n\x1b[2J")
        exchange.close_connection = True

    assert refused(answer).kind is Kind.PROTOCOL


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://me:5ecret@host/x", "user name"),
        ("http://host/x y", "spaces"),
        ("http://host/\x1b[2J", "control characters"),
        ("http:///x.gguf", "with a host"),
        ("http://host:99999/x", "host or port"),
        ("http://a..b/x", "host or port"),
    ],
)
def test_addresses_that_are_none(url: str, words: str) -> None:
    with pytest.raises(GgufError) as caught:
        read_header(url)
    said = "".join(caught.value.lines())
    assert (caught.value.kind, words in said) == (Kind.UNSUPPORTED, True)
    assert "5ecret" not in said
    assert said.isprintable()


def test_a_token_that_cannot_be_sent_is_not_quoted() -> None:
    with pytest.raises(GgufError) as caught:
        read_header("http://127.0.0.1:1/x", token=f"{TOKEN}\n")
    assert TOKEN not in "".join(caught.value.lines())


def test_a_proxy_that_is_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://me:5ecret@host:1")
    with pytest.raises(GgufError) as caught:
        read_header("http://models.test/x.gguf")
    assert caught.value.kind is Kind.UNSUPPORTED
    assert "5ecret" not in "".join(caught.value.lines())


def test_one_stack_of_servers_ends_clean() -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(says(404))) for _ in range(3)]
        for one in servers:
            with pytest.raises(GgufError):
                read_header(one.url)
    assert all(one.failures == [] for one in servers)
