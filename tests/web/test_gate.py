"""Who may ask the web server, and what every answer carries; asked over real sockets."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from console.common.errors import UsageError
from console.frontends.web import access as rules
from console.frontends.web import server
from console.frontends.web.access import Access, Addresses, Rate
from console.frontends.web.gate import HEADERS, MAX_BODY
from console.journal.state import VERBS
from tests.clock import FakeClock
from tests.waiting import until
from tests.web.conftest import Door, Web, opened

PAGES = ("/", "/console", "/enter", "/omni.js", "/omni.css", "/status.js", "/omni.svg")


# -- what every answer carries ---------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES, "/api/status", "/nothing", "/../secret"])
def test_every_answer_forbids_scripts_frames_and_traces_of_others(web: Web, path: str) -> None:
    answer = web.ask("GET", path)
    assert answer.status_code == (200 if path in PAGES else 401 if "api" in path else 404)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "server" not in answer.headers


def test_no_page_has_a_script_or_a_style_of_its_own(web: Web) -> None:
    for path in ("/", "/console", "/enter"):
        page = web.ask("GET", path).text
        assert "<script" in page
        for inline in ("<style", " style=", "onclick", "javascript:", "<script>"):
            assert inline not in page, (path, inline)
        for script in (one for one in PAGES if one.endswith(".js")):
            assert "innerHTML" not in web.ask("GET", script).text


# -- hosts and origins -----------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1",
                                  "127.0.0.1.evil.example:{port}", "[::1]:{port}", ""])  # fmt: skip
def test_another_host_is_refused_whatever_it_asks(web: Web, host: str) -> None:
    web.enter()
    host = host.format(port=web.host.rpartition(":")[2])
    for method, path in (("GET", "/"), ("GET", "/api/status"), ("POST", "/api/verb")):
        answer = web.ask(method, path, Host=host, Origin=f"http://{host}")
        assert answer.status_code in (400, 403), answer
    assert web.desk.told == []
    with pytest.raises(InvalidStatus), web.console(Host=host, Origin=f"http://{host}"):
        pass


def test_localhost_is_a_name_of_its_own_with_its_own_origin(web: Web) -> None:
    port = web.host.rpartition(":")[2]
    assert web.ask("GET", "/", Host=f"localhost:{port}").status_code == 200
    answer = web.ask("POST", "/api/enter", send={}, Host=f"localhost:{port}")
    assert answer.status_code == 403, "the origin is that of the other name"


@pytest.mark.parametrize(
    "origin", ["-", "null", "http://evil.example", "https://{host}", "http://127.0.0.1:1",
               "http://{host}.evil.example", "http://{host}/", ""],
)  # fmt: skip
def test_a_foreign_page_can_post_and_open_nothing(web: Web, origin: str) -> None:
    web.enter()
    origin = origin.format(host=web.host)
    for path in ("/api/verb", "/api/leave", "/api/enter"):
        assert web.ask("POST", path, send={"verb": "rollback"}, Origin=origin).status_code == 403
    assert web.desk.told == []
    with pytest.raises(InvalidStatus) as refused, web.console(Origin=origin):
        pass
    assert refused.value.response.status_code == 403
    if origin != "-":
        assert web.ask("GET", "/api/status", Origin=origin).status_code == 403
    assert web.ask("GET", "/api/status").status_code == 200, "its own page still may"


def test_only_the_methods_that_an_address_has(web: Web) -> None:
    web.enter()
    for method, path in (("GET", "/api/verb"), ("POST", "/api/status"), ("POST", "/")):
        assert web.ask(method, path, Origin=web.base).status_code == 405
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        assert web.ask(method, "/api/verb").status_code == 403, "without an origin"


# -- the link and sessions -------------------------------------------------------------------------


def test_a_link_works_once_and_gives_a_cookie_that_scripts_cannot_read(web: Web) -> None:
    token = web.access.link()
    answer = web.ask("POST", "/api/enter", send={"token": token})
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert token not in answer.text + cookie
    again = web.ask("POST", "/api/enter", send={"token": token})
    assert again.status_code == 403
    assert "works once" in again.json()["error"]
    assert "set-cookie" not in again.headers


def test_a_link_is_void_after_a_while_and_when_there_is_a_newer_one(web: Web) -> None:
    first, second = web.access.link(), web.access.link()
    assert web.ask("POST", "/api/enter", send={"token": first}).status_code == 403
    web.clock.sleep(rules.LINK_S + 1)
    assert web.ask("POST", "/api/enter", send={"token": second}).status_code == 403
    for token in ("", None, 7, ["x"], "é" * 40):
        assert web.ask("POST", "/api/enter", send={"token": token}).status_code == 403
    assert web.enter().status_code == 200


def test_without_cookie_or_key_nothing_is_told(web: Web) -> None:
    web.enter()
    key, cookies = web.key, web.cookies
    for web.key, web.cookies in (("", {}), (key, {}), ("", cookies), (key[:-1], cookies),
                                 (key, dict.fromkeys(cookies, "x"))):  # fmt: skip
        assert web.ask("GET", "/api/status").status_code == 401
        assert web.ask("POST", "/api/verb", send={"verb": "rollback"}).status_code == 401
        assert web.ask("POST", "/api/leave", send={}).status_code == 401
    assert web.desk.told == []
    web.key, web.cookies = key, cookies
    assert web.ask("GET", "/api/status").json()["looks"] == "well"


def test_a_session_ends_by_time_by_leaving_and_when_there_are_too_many(web: Web) -> None:
    web.enter()
    assert web.ask("POST", "/api/leave", send={}).status_code == 200
    assert web.ask("GET", "/api/status").status_code == 401
    web.enter()
    web.clock.sleep(rules.SESSION_S + 1)
    assert web.ask("GET", "/api/status").status_code == 401
    web.enter()
    oldest = (web.cookies, web.key)
    for _ in range(rules.MAX_SESSIONS):
        web.clock.sleep(rules.TRY_EVERY_S)
        assert web.enter().status_code == 200
    assert web.ask("GET", "/api/status").status_code == 200
    web.cookies, web.key = oldest
    assert web.ask("GET", "/api/status").status_code == 401, "it was silent the longest"


# -- sizes and rates -------------------------------------------------------------------------------


def test_large_bodies_are_refused_with_and_without_a_length(web: Web) -> None:
    web.enter()
    large = b"x" * (MAX_BODY + 1)

    def parts() -> Iterator[bytes]:
        yield from (large[:4096], large[4096:])

    assert web.ask("POST", "/api/verb", content=large).status_code == 413
    assert web.ask("POST", "/api/verb", content=parts()).status_code == 413
    assert web.desk.told == []


def test_a_body_that_does_not_come_is_not_waited_for(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PATIENCE_S", 0.05)
    head = f"POST /api/enter HTTP/1.1\r\nHost: {web.host}\r\nOrigin: {web.base}\r\n"
    address, port = web.host.split(":")
    with socket.create_connection((address, int(port)), 30) as slow:
        slow.sendall(f"{head}Content-Length: 10\r\n\r\n".encode())
        assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "sent",
    [
        "POST /api/enter HTTP/1.1\r\nHost: {host}\r\nOrigin: {base}\r\n"
        "Content-Length: 10\r\n\r\nabc",
        "\x16\x03 no HTTP\r\n\r\n",
    ],
)
def test_what_is_cut_off_or_no_request_writes_nothing_into_the_terminal(
    web: Web, sent: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The link stands there, and anybody on this machine can send it."""
    address, port = web.host.split(":")
    with socket.create_connection((address, int(port)), 30) as cut:
        cut.sendall(sent.format(host=web.host, base=web.base).encode())
        cut.shutdown(socket.SHUT_WR)
        while cut.recv(4096):
            pass
    assert web.ask("GET", "/").status_code == 200
    assert caplog.records == []


def test_looks_that_a_disk_holds_up_keep_no_rollback_from_being_asked_for(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()
    monkeypatch.setattr(web.desk, "look", lambda: {"free": free.wait(60)})
    web.enter()
    cookies = "; ".join(f"{name}={value}" for name, value in web.cookies.items())
    head = f"GET /api/status HTTP/1.1\r\nHost: {web.host}\r\nCookie: {cookies}\r\n"
    head += f"X-Omni-Key: {web.key}\r\n\r\n"
    address, port = web.host.split(":")
    with contextlib.ExitStack() as stack:
        stack.callback(free.set)
        pages = [
            stack.enter_context(socket.create_connection((address, int(port)), 30))
            for _ in range(40)
        ]
        for page in pages:
            page.sendall(head.encode())
        answer = web.ask("POST", "/api/verb", send={"verb": "rollback"})
        assert (answer.status_code, web.desk.told) == (200, [{"verb": "rollback"}])
        refused = web.ask("GET", "/api/status")
        assert (refused.status_code, "a disk may hang" in refused.text) == (503, True)
        free.set()
        assert pages[0].recv(4096).startswith(b"HTTP/1.1 200 ")
    until(lambda: web.ask("GET", "/api/status").status_code == 200, "it answers again")


def test_a_look_that_a_disk_holds_up_makes_no_noise_when_the_server_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    free, door = threading.Event(), Door()
    with opened(door, write=True) as web:
        web.enter()
        web.desk.look = lambda: {"free": free.wait(60)}  # type: ignore[method-assign]
        head = f"GET /api/status HTTP/1.1\r\nHost: {web.host}\r\nX-Omni-Key: {web.key}\r\n"
        head += f"Cookie: {web._cookie()['Cookie']}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", door.port), 30) as page:
            page.sendall(head.encode())
            until(lambda: any(one.name == "look" for one in threading.enumerate()), "it looks")
            door.close()
        free.set()
    assert [one.message for one in caplog.records] == []


def test_a_failure_of_ours_has_the_same_headers(
    web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(web.desk, "look", lambda: 1 / 0)
    web.enter()
    answer = web.ask("GET", "/api/status")
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


def test_two_servers_of_one_host_name_keep_their_cookies(web: Web) -> None:
    web.enter()
    port = web.host.rpartition(":")[2]
    assert list(web.cookies) == [f"omni-console-{port}"]


def test_nonsense_is_no_message(web: Web) -> None:
    web.enter()
    for content in (b"", b"[1]", b"\xff\xfe", b"[" * 5000, b'{"verb": ', b"null"):
        assert web.ask("POST", "/api/verb", content=content).status_code == 200
    assert web.desk.told == [{}] * 6, "none of it reached the desk as a verb"


def test_too_many_requests_and_tries_have_to_wait(web: Web) -> None:
    web.enter()
    codes = [web.ask("GET", "/api/status").status_code for _ in range(rules.REQUESTS + 1)]
    assert codes == [200] * rules.REQUESTS + [429]
    web.clock.sleep(rules.REQUEST_EVERY_S)
    assert web.ask("GET", "/api/status").status_code == 200
    tries = [web.ask("POST", "/api/enter", send={}).status_code for _ in range(rules.TRIES)]
    assert tries == [403] * rules.TRIES
    assert web.ask("POST", "/api/enter", send={}).status_code == 429
    assert web.enter().status_code == 200, "whoever has the link is not kept out by others"


def test_a_rate_never_saves_up_more_than_it_has() -> None:
    clock = FakeClock()
    rate = Rate(2, 1.0, clock)
    clock.sleep(1000)
    assert [rate.take() for _ in range(3)] == [True, True, False]
    clock.sleep(0.5)
    assert not rate.take()
    clock.sleep(0.5)
    assert rate.take()


# -- read-only -------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [False])
def test_read_only_refuses_every_verb(web: Web) -> None:
    web.enter()
    for verb in (*VERBS, "resume", "shell"):
        message = {"verb": verb, "run": None, "why": "x", "confirm": "x"}
        answer = web.ask("POST", "/api/verb", send=message)
        assert answer.status_code == 403, verb
        assert "read-only" in answer.json()["error"]
    assert len(web.desk.told) == len(VERBS) + 2
    assert web.ask("GET", "/api/status").json()["write"] is False


# -- where it listens ------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "127.0.0.2", "localhost", ""])
def test_it_listens_on_loopback_alone(address: str) -> None:
    with pytest.raises(UsageError, match="not a loopback address") as refused:
        server.listen(address, 0)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(UsageError, match="is no port"):
        server.listen("127.0.0.1", port)


def test_small_answers_are_sent_at_once() -> None:
    """asyncio looks at the protocol of the accepted socket; else a key waits for 40 ms."""
    with server.listen("127.0.0.1", 0) as listening:
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP


def test_a_port_that_is_taken_is_named() -> None:
    with (
        server.listen("127.0.0.1", 0) as first,
        pytest.raises(UsageError, match="cannot be had"),
    ):
        server.listen("127.0.0.1", first.getsockname()[1])


def test_a_unix_socket_is_this_users_alone_and_never_taken_from_a_living_server(
    tmp_path: Path,
) -> None:
    path = tmp_path / ("a" * 60) / ("b" * 60) / "web"
    path.parent.mkdir(parents=True)
    with server.listen_at(path):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(UsageError, match="cannot be had"):
            server.listen_at(path)
    with server.listen_at(path):
        assert path.is_socket(), "that of a server which has ended is replaced"


def test_what_is_in_the_way_of_a_unix_socket_is_named_and_kept(tmp_path: Path) -> None:
    file, link, living = (tmp_path / name for name in ("file", "link", "living"))
    file.write_text("kept")
    link.symlink_to(tmp_path / "gone")
    with server.listen_at(living):
        for path, detail, hint in (
            (file, "a file is there that is no socket; it stays", "move it away"),
            (link, "a file is there that is no socket; it stays", "move it away"),
            (tmp_path, "a directory is there", f"--socket {tmp_path}/omni-web.sock"),
            (living, "another server answers there", "end that one"),
            (tmp_path / "no" / "sock", f"there is no directory {tmp_path}/no", "make it"),
        ):
            with pytest.raises(UsageError, match="cannot be had") as refused:
                server.listen_at(path)
            assert refused.value.detail == detail
            assert hint in refused.value.hint
    assert file.read_text() == "kept"
    assert link.is_symlink()


def test_behind_a_unix_socket_any_port_of_loopback_names_is_meant() -> None:
    allows = Addresses().allows
    assert all(map(allows, ("localhost:8765", "127.0.0.1:9", "[::1]:65535", "localhost")))
    wrong = ("evil.example", "localhost.evil:1", "127.0.0.1:999999", "localhost:", "::1:80", "")
    assert not any(map(allows, wrong))


def test_an_address_has_its_own_names_and_no_others() -> None:
    six, four = Addresses("::1", 80), Addresses("127.0.0.1", 8765)
    assert all(map(six.allows, ("[::1]", "[::1]:80", "localhost", "localhost:80")))
    assert not any(map(six.allows, ("127.0.0.1:80", "[::1]:81")))
    assert all(map(four.allows, ("127.0.0.1:8765", "localhost:8765")))
    assert not any(map(four.allows, ("127.0.0.1", "[::1]:8765", "LOCALHOST:8765")))


def test_a_token_is_long_and_never_the_same() -> None:
    access = Access(FakeClock())
    tokens = {access.link() for _ in range(50)}
    assert len(tokens) == 50
    assert min(map(len, tokens)) >= 43
