"""Servers that lie, stall, refuse or change their mind: a typed answer in words each time."""

import gzip
import socket
from collections.abc import Callable

import httpcore
import pytest

from console.models.gguf.byte_source import FIRST_READ, GgufError, Kind
from console.models.gguf.http import HEADS, PATIENCE_S, SLOW_BYTES, Wire
from console.models.gguf.read import read_architecture, read_header
from console.models.gguf.remote import MAX_REDIRECTS
from tests.clock import FakeClock
from tests.gguf.hostile import HTML
from tests.gguf.raw import header, text
from tests.gguf.server import Answer, Exchange, serving
from tests.gguf.test_remote import DATA, TOKEN

LATE = header(text(b"general.name", b"x" * 200_000), text(b"general.architecture", b"llama"))
SECRET = "Signature=5ecret"
FIRST = f"bytes 0-{FIRST_READ - 1}/{len(DATA)}"


def error_of(url: str, read: Callable[..., object] = read_header, **options: object) -> GgufError:
    """The error, which must be harmless and keep every secret."""
    with pytest.raises(GgufError) as caught:
        read(url, **options)
    said = "\n".join(caught.value.lines())
    assert said.replace("\n", "").isprintable()
    assert "5ecret" not in said
    assert TOKEN not in said
    return caught.value


def refused(
    answer: Answer, read: Callable[..., object] = read_header, **options: object
) -> GgufError:
    with serving(answer) as server:
        return error_of(f"{server.url}/x.gguf?{SECRET}", read, token=TOKEN, **options)


def says(status: int, body: bytes = b"", **headers: str) -> Answer:
    return lambda exchange: exchange.send(status, body, **headers)


def test_ranges_ignored_and_the_first_range_are_enough() -> None:
    with serving(lambda exchange: exchange.send(200, DATA + bytes(8 * 2**20))) as server:
        found = read_architecture(server.url)
    assert found.header.architecture == "llama"
    assert found.body_bytes <= FIRST_READ
    assert len(found.notes) == 1
    assert found.file_bytes == len(DATA) + 8 * 2**20


def test_ranges_ignored_in_a_body_of_chunks() -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send_response(200)
        exchange.send_header("Transfer-Encoding", "chunked")
        exchange.end_headers()
        exchange.put(b"%x\r\n%s\r\n0\r\n\r\n" % (len(LATE), LATE))

    error = refused(answer, read_architecture)
    assert (error.kind, "60.0 KiB" in error.detail) == (Kind.NO_RANGES, True)


def test_a_small_file_without_ranges() -> None:
    data = header(text(b"general.architecture", b"llama"))
    with serving(lambda exchange: exchange.send(200, data)) as server:
        found = read_header(server.url)
    assert (found.header.architecture, found.file_bytes) == ("llama", len(data))


def test_no_content_range_passes_once_with_a_note() -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send(206, DATA[:FIRST_READ])

    with serving(answer) as server:
        found = read_architecture(server.url)
    assert len(found.notes) == 1
    assert found.file_bytes is None
    assert refused(answer).kind is Kind.PROTOCOL


def _breaks_off(exchange: Exchange) -> None:
    exchange.send(206, DATA[:9000], Content_Range=FIRST, Content_Length=str(FIRST_READ))
    exchange.connection.shutdown(socket.SHUT_RDWR)


def _is_no_http(exchange: Exchange) -> None:
    exchange.connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n\x1b[2J")
    exchange.close_connection = True


def _short(said: str) -> Answer:
    return says(206, DATA[:FIRST_READ], Content_Range=said)


def second(answer: Answer) -> Answer:
    """The first range as it should be, then something else."""

    def both(exchange: Exchange) -> None:
        if len(exchange.server.requests) == 1:
            exchange.part(DATA, ETag='"one"', X_Repo_Commit="c1")
        else:
            answer(exchange)

    return both


def sends(data: bytes, **headers: str) -> Answer:
    return lambda exchange: exchange.part(data, **headers)


def leads(where: str) -> Answer:
    return lambda exchange: exchange.redirect(where)


ZIPPED = gzip.compress(DATA[:FIRST_READ])
MISBEHAVING: dict[str, Answer] = {
    "another place": _short(f"bytes 100-{FIRST_READ + 99}/{len(DATA)}"),
    "a byte too far": _short(f"bytes 0-{FIRST_READ}/{len(DATA)}"),
    "too short a range": _short(f"bytes 0-99/{len(DATA)}"),
    "backwards": _short("bytes 5-1/9"),
    "no place": _short("bytes */9"),
    "an escape for a place": _short("\x1b[31mbytes"),
    "beyond its own end": _short(f"bytes 0-{FIRST_READ - 1}/100"),
    "more than asked": says(206, DATA, Content_Range=FIRST),
    "compressed though not asked": says(206, ZIPPED, Content_Range=FIRST, Content_Encoding="gzip"),
    "a body that breaks off": _breaks_off,
    "another ETag": second(sends(DATA, ETag='"two"', X_Repo_Commit="c1")),
    "another commit": second(sends(DATA, ETag='"one"', X_Repo_Commit="c2")),
    "another size": second(sends(DATA + b"x", ETag='"one"')),
    "another linked size": sends(DATA, X_Linked_Size=str(len(DATA) + 1)),
    "ranges ignored from the second on": second(says(200, DATA)),
    "in a circle": lambda exchange: exchange.redirect("/b" if exchange.path == "/a" else "/a"),
    "led to a file": leads("file:///etc/passwd"),
    "led to two words": leads("http://a b/"),
    "led to FTP": leads("ftp://x/y"),
    "led nowhere": leads("http://["),
    "an empty file": sends(b""),
    "416": second(says(416, Content_Range=f"bytes */{len(DATA)}")),
    "416 of another size": second(says(416, Content_Range="bytes */60000")),
    "an end inside the header": sends(DATA[:100_000]),
    "no HTTP": _is_no_http,
    "a web page": says(200, HTML, Content_Type="text/html"),
    "a 403 that repeats the token":
        says(403, X_Error_Message=f"no access for {TOKEN} \x1b[31mhere"),
    "an error as JSON": says(200, b'{"error": "bad token %s"}' % TOKEN.encode()),
    "401": says(401),
    "403": says(403, X_Error_Code="GatedRepo"),
    "404, no file": says(404, X_Error_Code="EntryNotFound"),
    "404, no revision": says(404, X_Error_Code="RevisionNotFound"),
    "404": says(404),
    "429 with a window": says(429, RateLimit='"api";r=0;t=55'),
    "429 with seconds": says(429, Retry_After="120"),
    "429 with a date": says(429, Retry_After="Mon, 12 Jan 1970 13:46:50 GMT"),
    "429 with junk": says(429, RateLimit="junk", Retry_After="soon"),
    "503": says(503, Retry_After="7"),
    **{str(status): says(status) for status in (500, 418, 204, 302)},
}  # fmt: skip


def test_a_short_range_is_gone_on_from() -> None:
    def answer(exchange: Exchange) -> None:
        assert exchange.request_seen.range is not None
        first, last = exchange.request_seen.range
        last = min(last, first + 150_000, len(DATA) - 1)
        said = f"bytes {first}-{last}/{len(DATA)}"
        exchange.send(206, DATA[first : last + 1], Content_Range=said)

    with serving(answer) as server:
        assert read_header(server.url).header.text("tokenizer.ggml.model") == "gpt2"


def test_redirects_without_end() -> None:
    count = 0

    def answer(exchange: Exchange) -> None:
        nonlocal count
        count += 1
        exchange.redirect(f"/{count}")

    assert refused(answer).kind is Kind.PROTOCOL
    assert count == MAX_REDIRECTS + 1


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

    assert refused(answer, clock=clock, deadline_s=60.0).kind is Kind.TIMEOUT


@pytest.mark.parametrize("pause", [1, 4, 9])
def test_chunks_too_slow_to_be_of_use_are_silence(pause: int) -> None:
    clock = FakeClock()
    for brings, ends in ((SLOW_BYTES // 20, True), (SLOW_BYTES, False)):
        wire = Wire(clock, 600.0)
        begun, ended = clock.monotonic(), None
        for _ in range(50):
            try:
                patience = wire.left()
            except httpcore.ReadTimeout:
                ended = clock.monotonic() - begun
                break
            clock.sleep(min(pause, patience))  # a read ends with bytes, or when time is up
            if pause <= patience:
                wire.took(brings)
        assert ended == (PATIENCE_S if ends else None)


def test_an_answer_that_never_comes_to_its_status() -> None:
    def answer(exchange: Exchange) -> None:
        for _ in range(2 * HEADS // 25):
            exchange.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        exchange.server.stop.wait(60)

    assert refused(answer).kind is Kind.PROTOCOL


def test_silence_has_a_deadline() -> None:
    error = refused(lambda exchange: exchange.server.stop.wait(60), deadline_s=0.2)
    assert error.kind is Kind.TIMEOUT


def test_nobody_answers() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert error_of(f"http://127.0.0.1:{port}/x.gguf?{SECRET}").kind is Kind.UNREACHABLE


def test_a_token_that_cannot_be_sent_is_not_quoted() -> None:
    error_of("http://127.0.0.1:1/x", token=f"{TOKEN}\n")


def test_a_proxy_that_is_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://me:5ecret@host:1")
    assert error_of("http://models.test/x.gguf").kind is Kind.UNSUPPORTED
