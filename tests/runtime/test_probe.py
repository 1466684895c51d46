"""HTTP with a total deadline, against servers that behave badly on purpose."""

import itertools
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from console.host.ports import connected
from console.runtime.answers.completion import complete, prove
from console.runtime.answers.sanity import Kind
from console.runtime.probe import TLS, Health, ProbeError, busy, fetch, health, speaks_tls
from tests.clock import FakeClock
from tests.ports import free_port
from tests.runtime.serving import serving

Talk = Callable[[socket.socket, int], None]


def _whole(data: bytes) -> bool:
    """Whether a request is there with its body: closing on unread bytes would be a reset."""
    head, end, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    return bool(end) and len(body) >= int(length[1] if length else 0)


@contextmanager
def raw_server(talk: Talk, heard: list[bytes] | None = None) -> Iterator[str]:
    """A TCP server that reads a request and then does what `talk(sock, nth)` says."""
    listener, count = socket.create_server(("127.0.0.1", 0)), itertools.count(1)

    def one(peer: socket.socket) -> None:
        nth, data = next(count), b""
        while not _whole(data):
            more = peer.recv(65536)
            if not more:
                return
            data += more
        if heard is not None:
            heard.append(data)
        talk(peer, nth)

    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with serving(listener, one):
        yield url


def reply(status: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def says(data: bytes) -> Talk:
    return lambda peer, _: peer.sendall(data)


def by_turns(first: bytes, *others: bytes) -> Talk:
    replies = (first, *others)
    return lambda peer, nth: peer.sendall(replies[min(nth, len(replies)) - 1])


def test_fetch_returns_status_and_body() -> None:
    with raw_server(says(reply("200 OK", b"hello"))) as url:
        got = fetch(url)
    assert (got.status, got.body) == (200, b"hello")
    assert got.elapsed_s > 0


def test_chunked_body() -> None:
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with raw_server(says(data)) as url:
        assert fetch(url).body == b"abcde"


def test_body_in_a_later_packet_after_a_closing_head() -> None:
    """HTTP/1.0 closes: the body must still be read when it does not come with the head."""

    def late(peer: socket.socket, _: int) -> None:
        peer.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\n")
        time.sleep(0.05)
        peer.sendall(b"late")

    with raw_server(late) as url:
        assert fetch(url).body == b"late"


@pytest.mark.parametrize(
    "head",
    [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", None],
    ids=["status", "headers", "body", "silence"],
)
def test_drip_cannot_outlast_the_deadline(head: bytes | None) -> None:
    def drip(peer: socket.socket, _: int) -> None:
        if head is None:
            peer.recv(1)
            return
        peer.sendall(head)
        for _ in range(2000):
            peer.sendall(b"x")
            time.sleep(0.05)

    with raw_server(drip) as url, pytest.raises(ProbeError) as caught:
        fetch(url, timeout_s=0.4)
    assert caught.value.kind == ("timeout" if head is None else "slow")


def test_refused() -> None:
    with pytest.raises(ProbeError) as caught:
        fetch(f"http://127.0.0.1:{free_port()}")
    assert caught.value.kind == "refused"
    assert health(f"http://127.0.0.1:{free_port()}")[0] is Health.REFUSED


def linger_reset(peer: socket.socket, _: int) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.close()


@pytest.mark.parametrize(
    ("talk", "kind"),
    [
        (linger_reset, "reset"),
        (says(b""), "reset"),
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), "reset"),
        (says(b"SSH-2.0-OpenSSH_9.6\r\n"), "garbage"),
        (says(b"\x00\xff\x1b[2J" * 50 + b"\r\n\r\n"), "garbage"),
        (says(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500 + b"\r\n"), "garbage"),
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + b"x" * 3000), "garbage"),
    ],
    ids=["rst", "closed", "broken-off", "ssh", "binary", "many-headers", "too-large"],
)
def test_bad_replies_have_a_kind(talk: Talk, kind: str) -> None:
    with raw_server(talk) as url, pytest.raises(ProbeError) as caught:
        fetch(url, timeout_s=60, limit=1000)
    assert caught.value.kind == kind
    assert "\x1b" not in str(caught.value)


def test_a_reply_that_is_not_http_is_not_quoted() -> None:
    """Whoever has the port may say anything, a secret of its own too."""
    for line in (b"-ERR wrong number, pw C4nary\r\n", b"HTTP/C4nary 200 OK\r\n\r\n"):
        with raw_server(says(line)) as url, pytest.raises(ProbeError) as caught:
            fetch(url)
        assert caught.value.kind == "garbage"
        assert "not HTTP" in str(caught.value)
        assert "C4nary" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "ftp://x/", "http://", "http://127.0.0.1:99999/", "file:///x"])
def test_unusable_url_is_garbage(url: str) -> None:
    with pytest.raises(ProbeError) as caught:
        fetch(url)
    assert caught.value.kind == "garbage"


def test_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with raw_server(says(reply("200 OK"))) as url:
        assert fetch(url).status == 200


def test_every_call_makes_a_fresh_connection() -> None:
    peers: set[int] = set()

    def kept(peer: socket.socket, _: int) -> None:
        peers.add(peer.getpeername()[1])
        peer.sendall(reply("200 OK\r\nConnection: keep-alive", b"ok"))
        peer.recv(1)  # until the other side goes: it might ask again

    with raw_server(kept) as url:
        for _ in range(3):
            assert fetch(url).body == b"ok"
    assert len(peers) == 3


LOADING = b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}'


def test_one_empty_400_is_asked_again_and_two_are_unhealthy() -> None:
    def once(peer: socket.socket, nth: int) -> None:
        peer.sendall(reply("400 Bad Request") if nth == 1 else reply("200 OK"))

    with raw_server(once) as url:
        state, detail = health(url)
    assert state is Health.SERVING
    assert "400" in detail
    with raw_server(says(reply("400 Bad Request"))) as url:
        assert health(url)[0] is Health.UNHEALTHY


def answer(**more: object) -> bytes:
    value = {"choices": [{"message": {"content": "I am ready."}}], **more}
    return reply("200 OK", json.dumps(value).encode())


def test_completion_rate() -> None:
    timings = {"predicted_n": 9, "predicted_ms": 800.0}
    with raw_server(says(answer(usage={"completion_tokens": 9}, timings=timings))) as url:
        got = complete(url)
    assert (got.ok, got.tokens, got.text) == (True, 9, "I am ready.")
    assert got.decode_tok_s == pytest.approx(10.0)
    with raw_server(says(answer(usage={"completion_tokens": 9}))) as url:
        got = complete(url)
    assert got.ok
    assert got.decode_tok_s == pytest.approx(9 / got.elapsed_s), "without the server's timings"


def test_completion_sends_a_fresh_prompt_each_time() -> None:
    heard: list[bytes] = []
    with raw_server(says(answer(usage={"completion_tokens": 1})), heard) as url:
        for _ in range(2):
            assert complete(f"{url}/v1", model="m", prompt="Hello", max_tokens=3).ok
    first, second = (json.loads(one.partition(b"\r\n\r\n")[2]) for one in heard)
    assert first["messages"] != second["messages"]
    assert (first["model"], first["max_tokens"], first["stream"]) == ("m", 3, False)


def slots(counts: list[object]) -> Talk:
    def talk(peer: socket.socket, nth: int) -> None:
        body = json.dumps(counts[min(nth, len(counts)) - 1]).encode()
        peer.sendall(reply("200 OK", body))

    return talk


def slot(decoded: int, processing: bool = True, task: int = 7) -> dict[str, object]:
    state = {"id": 0, "id_task": task, "is_processing": processing}
    return {**state, "next_token": [{"n_decoded": decoded}]}


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([[slot(5)], [slot(9)]], True),
        ([[slot(5)], [slot(5)]], False),
        ([[slot(5, False)], [slot(9, False)]], False),
        ([[{"id": 0, "is_processing": True, "n_decoded": count}] for count in (1, 2)], True),
        ([[{"id": 0, "state": 1, "next_token": {"n_decoded": count}}] for count in (1, 2)], True),
        ([[{"id": 0, "state": 0, "next_token": {"n_decoded": count}}] for count in (1, 2)], False),
        ([{"error": "no slots"}], False),
        ([[None, 3, "x"]], False),
    ],
)
def test_busy_is_token_progress(looks: list[object], expected: bool) -> None:
    clock = FakeClock()
    with raw_server(slots(looks)) as url:
        assert busy(url, clock=clock, interval_s=30.0) is expected


def test_a_connection_that_hangs_is_tried_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """From another port; the kernel may drop what comes from the first one."""
    tried: list[float] = []

    def create(address: tuple[str, int], left_s: float) -> str:
        tried.append(round(left_s, 1))
        if len(tried) % 3:
            raise TimeoutError
        return "connected"

    monkeypatch.setattr("socket.create_connection", create)
    assert connected("127.0.0.1", 1, 10.0) == "connected"
    assert tried == [1.0, 2.0, 4.0]
    tried.clear()
    with pytest.raises(TimeoutError):
        connected("127.0.0.1", 1, 2.0)
    assert tried == [1.0, 2.0]


def said(**message: object) -> bytes:
    finish = message.pop("finish", "stop")
    tokens = message.pop("tokens", 8)
    value = {
        "choices": [{"message": message, "finish_reason": finish}],
        "usage": {"completion_tokens": tokens},
    }
    return reply("200 OK", json.dumps(value).encode())


@pytest.mark.parametrize(
    "message",
    [
        {"content": "!!!!!!!!", "finish": "length"}, {"content": "\ufffd" * 8},
        {"content": "        "}, {"content": "I am a dog. " * 30, "finish": "length"},
        {"content": "", "reasoning_content": "\n" * 8}, {"content": ""}, {"content": None},
        {"content": "", "reasoning": "\n" * 8, "finish": "length"},
    ],
)  # fmt: skip
def test_an_answer_of_nothing_is_garbled(message: dict[str, object]) -> None:
    with raw_server(says(said(**message))) as url:
        got = complete(url)
    assert (got.ok, got.status, got.tokens) == (False, 200, 8)
    assert got.garbled is not None
    assert got.detail.startswith("garbled, ")


@pytest.mark.parametrize(
    "message",
    [
        {"content": "Ja.", "tokens": 2}, {"content": "42", "tokens": 1},
        {"content": None, "tool_calls": [{"function": {"name": "ready"}}]},
        {"content": None, "refusal": "I cannot say that."},
        {"content": [{"type": "text", "text": "I am ready."}]}, {"content": "5555555555"},
        {"content": "I am a dog. " * 30},
        {"content": None, "reasoning": "The user wants a", "finish": "length"},
        {"content": "", "reasoning_content": "The user wants a", "finish": "length"},
    ],
)  # fmt: skip
def test_an_odd_answer_is_one(message: dict[str, object]) -> None:
    with raw_server(says(said(**message))) as url:
        got = complete(url)
    assert (got.ok, got.status, got.garbled) == (True, 200, None)


def test_a_few_symbols_at_the_limit_are_asked_for_again_with_a_larger_one() -> None:
    """A table begins with them. What is nothing but symbols in a longer answer, too, is none."""
    head = said(content="| | |\n|---|---|", finish="length")
    table = said(content="| | |\n|---|---|\n| a | b |", tokens=40)
    with raw_server(by_turns(head, table)) as url:
        assert prove(url).ok
    symbols = said(content="*&^%$" * 9, tokens=64, finish="length")
    with raw_server(by_turns(head, symbols)) as url:
        got = prove(url)
    assert got.garbled is not None
    assert (got.garbled.kind, got.garbled.weak) == (Kind.SYMBOLS, False)


def test_a_refusal_says_its_status() -> None:
    with raw_server(says(reply("401 Unauthorized", b'{"error": {"message": "key"}}'))) as url:
        got = complete(url)
    assert (got.ok, got.status, got.refuses) == (False, 401, True)
    with raw_server(says(reply("500 Oh", b"{}"))) as url:
        got = complete(url)
    assert (got.status, got.refuses) == (500, False)


def half(peer: socket.socket, nth: int) -> None:
    peer.sendall(b"\x01half")
    linger_reset(peer, nth)


@pytest.mark.parametrize(
    ("talk", "state"),
    [
        (says(bytes.fromhex("000006040000000000000500004000")), Health.REFUSING),
        (says(b"-ERR unknown command 'GET'\r\n"), Health.REFUSING),
        (lambda peer, _: peer.sendall(b"GET /health HTTP/1.1\r\n"), Health.REFUSING),
        (half, Health.REFUSING),
        (linger_reset, Health.UNHEALTHY),
        (says(b""), Health.UNHEALTHY),
    ],
    ids=["http2", "redis", "echo", "half and reset", "a proxy of nothing", "closed"],
)
def test_what_sends_bytes_lives_and_is_never_taken_for_tls(talk: Talk, state: Health) -> None:
    with raw_server(talk) as url:
        found, words = health(url)
    assert (found, TLS in words) == (state, False), words


def test_a_hello_that_comes_back_is_an_echo() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with serving(listener, lambda peer: peer.sendall(peer.recv(65536))):
        assert not speaks_tls(f"http://127.0.0.1:{listener.getsockname()[1]}")
