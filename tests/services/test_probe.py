"""HTTP with a total deadline, against servers that behave badly on purpose."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from console.clock import FakeClock
from console.services.probe import Health, ProbeError, busy, complete, fetch, health

Talk = Callable[[socket.socket, int], None]


def _whole(data: bytes) -> bool:
    """Whether a request is there with its body: closing on unread bytes would be a reset."""
    head, end, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    return bool(end) and len(body) >= int(length[1] if length else 0)


@contextmanager
def raw_server(talk: Talk) -> Iterator[str]:
    """A TCP server that reads a request's head and then does what `talk(sock, nth)` says."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(30)
    stopping = threading.Event()

    def serve() -> None:
        count = 0
        while not stopping.is_set():
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            count += 1
            threading.Thread(target=one, args=(peer, count), daemon=True).start()

    def one(peer: socket.socket, count: int) -> None:
        with peer:
            data = b""
            try:
                while not _whole(data):
                    data += peer.recv(65536)
                talk(peer, count)
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stopping.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def reply(status: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def says(data: bytes) -> Talk:
    return lambda peer, _: peer.sendall(data)


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


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
    [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"],
    ids=["status", "headers", "body"],
)
def test_drip_cannot_outlast_the_deadline(head: bytes) -> None:
    def drip(peer: socket.socket, _: int) -> None:
        peer.sendall(head)
        for _ in range(2000):
            peer.sendall(b"x")
            time.sleep(0.05)

    with raw_server(drip) as url, pytest.raises(ProbeError) as caught:
        fetch(url, timeout_s=0.4)
    assert caught.value.kind == "timeout"


def test_silence_is_a_timeout() -> None:
    def silent(peer: socket.socket, _: int) -> None:
        peer.recv(1)

    with raw_server(silent) as url, pytest.raises(ProbeError) as caught:
        fetch(url, timeout_s=0.2)
    assert caught.value.kind == "timeout"


def test_refused() -> None:
    with pytest.raises(ProbeError) as caught:
        fetch(f"http://127.0.0.1:{closed_port()}")
    assert caught.value.kind == "refused"


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
        fetch(url, timeout_s=5, limit=1000)
    assert caught.value.kind == kind
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "ftp://x/", "http://", "http://127.0.0.1:99999/", "file:///x"])
def test_unusable_url_is_garbage(url: str) -> None:
    with pytest.raises(ProbeError) as caught:
        fetch(url)
    assert caught.value.kind == "garbage"


def test_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
    with raw_server(says(reply("200 OK"))) as url:
        assert fetch(url).status == 200


class _KeepAlive(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    peers: set[int] = set()

    def do_GET(self) -> None:
        self.peers.add(self.client_address[1])
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.send_header("Connection", "keep-alive")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_every_call_makes_a_fresh_connection() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _KeepAlive)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        for _ in range(3):
            assert fetch(f"http://127.0.0.1:{server.server_port}/").body == b"ok"
    finally:
        server.shutdown()
        server.server_close()
    assert len(_KeepAlive.peers) == 3


LOADING = b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}'


def test_health_refused() -> None:
    assert health(f"http://127.0.0.1:{closed_port()}")[0] is Health.REFUSED


def test_one_empty_400_is_asked_again() -> None:
    def once(peer: socket.socket, nth: int) -> None:
        peer.sendall(reply("400 Bad Request") if nth == 1 else reply("200 OK"))

    with raw_server(once) as url:
        state, detail = health(url)
    assert state is Health.SERVING
    assert "400" in detail


def test_two_empty_400s_are_unhealthy() -> None:
    with raw_server(says(reply("400 Bad Request"))) as url:
        assert health(url)[0] is Health.UNHEALTHY


def answer(**more: object) -> bytes:
    value = {"choices": [{"message": {"content": "I am ready."}}], **more}
    return reply("200 OK", json.dumps(value).encode())


def test_completion_rate_from_timings() -> None:
    timings = {"predicted_n": 9, "predicted_ms": 800.0}
    with raw_server(says(answer(usage={"completion_tokens": 9}, timings=timings))) as url:
        got = complete(url)
    assert got.ok
    assert got.tokens == 9
    assert got.text == "I am ready."
    assert got.decode_tok_s == pytest.approx(10.0)


def test_completion_rate_without_timings() -> None:
    with raw_server(says(answer(usage={"completion_tokens": 9}))) as url:
        got = complete(url)
    assert got.ok
    assert got.decode_tok_s == pytest.approx(9 / got.elapsed_s)


def test_completion_sends_a_fresh_prompt_each_time() -> None:
    seen: list[dict[str, object]] = []

    class Ask(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.wfile.write(answer(usage={"completion_tokens": 1}))

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Ask)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for _ in range(2):
            url = f"http://127.0.0.1:{server.server_port}/v1"
            assert complete(url, model="m", prompt="Hello", max_tokens=3).ok
    finally:
        server.shutdown()
        server.server_close()
    assert seen[0]["messages"] != seen[1]["messages"]
    assert seen[0]["model"] == "m"
    assert seen[0]["max_tokens"] == 3
    assert seen[0]["stream"] is False


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
        ([[{"id": 0, "is_processing": True, "n_decoded": 1}]] * 1
         + [[{"id": 0, "is_processing": True, "n_decoded": 2}]], True),
        ([{"error": "no slots"}], False),
        ([[None, 3, "x"]], False),
    ],
)  # fmt: skip
def test_busy_is_token_progress(looks: list[object], expected: bool) -> None:
    clock = FakeClock()
    with raw_server(slots(looks)) as url:
        assert busy(url, clock=clock, interval_s=30.0) is expected


def test_import_pulls_in_no_third_party() -> None:
    code = (
        "import sys, console.services.probe, console.services.engine, console.services.process;"
        "bad = {'httpx', 'docker', 'pydantic', 'ruamel', 'psutil', 'textual', 'rich', 'ssl'};"
        "print(sorted(bad & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.stdout.strip() in ("[]", "['ssl']")
