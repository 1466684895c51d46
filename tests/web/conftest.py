"""A web server of stand-ins in this process: everything of the web side is real, a run is not."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from websockets.sync.client import ClientConnection, connect

from console.frontends.tui.watch.run import Snapshot
from console.frontends.web import desk as desks
from console.frontends.web import server
from console.frontends.web.access import Access, Addresses
from console.frontends.web.desk import Desk
from console.journal.run_dir import RunDir
from tests.clock import FakeClock
from tests.ui import scene
from tests.web.watched import Sent

ECHO = (
    "import os, signal, sys, termios, tty\n"
    "tty.setraw(0)\n"
    "size = lambda *_: os.write(1, b'<%dx%d>' % os.get_terminal_size(0))\n"
    "signal.signal(signal.SIGWINCH, size)\n"
    "os.write(1, ' '.join(sys.argv[1:]).encode() + b' ready')\n"
    "size()\n"
    "while data := os.read(0, 1024):\n"
    "    if data == b'flood':\n"
    "        while True:\n"
    "            os.write(1, b'x' * 4096)\n"
    "    os.write(1, data.upper())\n"
)
"""A program that says its arguments and its size, then shouts what is typed."""


class FakeDesk(Desk):
    """Keeps what it is told, and says what a test wants."""

    def __init__(self, write: bool) -> None:
        super().__init__(site=None, write=write)
        self.told: list[Mapping[str, Any]] = []

    def look(self) -> dict[str, Any]:
        return {"write": self.write, "looks": "well"}

    def tell(self, message: Mapping[str, Any]) -> str:
        self.told.append(message)
        return super().tell(message) if not self.write else ""


@dataclass
class Web:
    """The server of a test, and a browser's side of it."""

    base: str
    access: Access
    desk: FakeDesk
    clock: FakeClock
    client: httpx.Client
    cookies: dict[str, str] = field(default_factory=dict)
    key: str = ""

    @property
    def host(self) -> str:
        return self.base.removeprefix("http://")

    def ask(
        self, method: str, path: str, *, send: Any = None, content: Any = None, **headers: str
    ) -> httpx.Response:
        """A request as a page of this server sends it; `headers` change that, `-` leaves one
        out."""
        said = {"Origin": self.base} if method == "POST" else {}
        said |= self._cookie()
        said |= {"X-Omni-Key": self.key} if self.key else {}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        said = {name: value for name, value in said.items() if value != "-"}
        body = content if send is None else json.dumps(send)
        self.client.cookies.clear()
        return self.client.request(method, self.base + path, headers=said, content=body)

    def _cookie(self) -> dict[str, str]:
        pairs = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {"Cookie": pairs} if pairs else {}

    def enter(self) -> httpx.Response:
        answer = self.ask("POST", "/api/enter", send={"token": self.access.link()})
        if answer.status_code == 200:
            self.cookies, self.key = dict(answer.cookies), answer.json()["key"]
        return answer

    @contextlib.contextmanager
    def console(self, *, first: Any = None, **headers: str) -> Iterator[ClientConnection]:
        """A terminal's socket, with its first message sent."""
        said = {"Origin": self.base, **self._cookie(), **headers}
        said = {name: value for name, value in said.items() if value != "-"}
        with connect(
            f"ws://{self.host}/api/console", additional_headers=said, proxy=None, max_size=None,
            user_agent_header=None, close_timeout=1,
        ) as socket:  # fmt: skip
            socket.send(json.dumps(first or {"key": self.key, "size": [80, 24]}))
            yield socket


@pytest.fixture
def write() -> bool:
    """Whether browsers may answer; tests say `indirect` where it is the other way round."""
    return True


class Door:
    """A server that listens for many tests: what answers is the site of the test that asks."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None
        listening = server.listen("127.0.0.1", 0)
        self.port: int = listening.getsockname()[1]
        self.running = server.Server(cast("server.Site", SimpleNamespace(app=self)), listening)
        self.running.start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            assert self.app is not None
            await self.app(scope, receive, send)
            return
        for part in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{part}.complete"})

    def close(self) -> None:
        self.running.stop()
        self.running.join()


@pytest.fixture(scope="session")
def door() -> Iterator[Door]:
    made = Door()
    yield made
    made.close()


@contextlib.contextmanager
def opened(
    door: Door, *, write: bool, argv: tuple[str, ...] = (sys.executable, "-I", "-c", ECHO, "fixed")
) -> Iterator[Web]:
    """A site of its own behind a door. `argv`: its console."""
    clock = FakeClock()
    access, desk = Access(clock), FakeDesk(write)
    door.app = server.Site(access, Addresses("127.0.0.1", door.port), desk, argv, clock).app
    with httpx.Client(trust_env=False, verify=False) as client:
        yield Web(f"http://127.0.0.1:{door.port}", access, desk, clock, client)


@pytest.fixture
def web(write: bool, door: Door) -> Iterator[Web]:
    with opened(door, write=write) as made:
        yield made


# -- the desk ----------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What was sent to a runner; nobody else's run is live here."""
    found: Sent = []

    def ask(snapshot: Snapshot, verb: str, **words: str) -> str:
        found.append((snapshot, verb, words))
        return "" if verb == "approve" else "the runner refused"

    monkeypatch.setattr(desks, "ask", ask)
    monkeypatch.setattr(desks, "_live", lambda: None)
    return found


@pytest.fixture
def shot(run: RunDir) -> Snapshot:
    return scene.snapshot(run, scene.approval())


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return scene.run_dir(tmp_path)
