"""The web server: its pages, its few addresses, and the process that serves them on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from console.common import crash, paths
from console.common.clock import Clock, SystemClock
from console.common.errors import UsageError
from console.common.text import one_line
from console.frontends.tui.terminal.output import LEAVE_S
from console.frontends.web import xterm
from console.frontends.web.access import LOCAL, SESSION_S, Access, Addresses, Rate, Session, knows
from console.frontends.web.apart import Apart, Hangs
from console.frontends.web.desk import Desk
from console.frontends.web.gate import MAX_BODY, Gate, TooLarge
from console.frontends.web.terminal import (
    ENDED,
    MAX_MESSAGE,
    MESSAGE_EVERY_S,
    MESSAGES,
    OVER,
    TOO_MUCH,
    Bridge,
    PtyConsole,
    environment,
    parsed,
    size_of,
)
from console.runner.control import short_address

KEY_HEADER = "x-omni-key"
MAX_CONSOLES = 4
MAX_CONNECTIONS = 64
MAX_LOOKS = 16
"""Looks at once, and verbs at once, of all pages together."""
PATIENCE_S = 5.0
"""Seconds for a body, and for the first message of a socket."""
HOUSE_S = 5.0
"""Seconds between looks whether the watchers may rest."""
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
PAGES = {"/": "status.html", "/console": "console.html", "/enter": "enter.html"}


class Site:
    """Everything that answers a browser. `argv`: the console that a terminal page gets."""

    def __init__(
        self, access: Access, addresses: Addresses, desk: Desk, argv: tuple[str, ...],
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._access, self._desk, self._argv = access, desk, argv
        self._clock = clock or SystemClock()
        self._consoles = 0
        self._endings: set[asyncio.Task[None]] = set()
        self._looks, self._verbs = Apart("look", MAX_LOOKS), Apart("verb", MAX_LOOKS)
        shown = [Route(path, self._file(name)) for path, name in PAGES.items()]
        pages = resources.files("console.frontends.web") / "pages"
        shown += [
            Route(f"/{page.name}", self._file(page.name))
            for page in pages.iterdir()
            if page.name not in PAGES.values()
        ]
        shown += [Route(f"/{name}", self._fetched(name)) for name in xterm.FILES]
        answering = Starlette(
            routes=[
                *shown,
                Route("/api/enter", self._enter, methods=["POST"]),
                Route("/api/leave", self._leave, methods=["POST"]),
                Route("/api/status", self._status),
                Route("/api/verb", self._verb, methods=["POST"]),
                WebSocketRoute("/api/console", self._console),
            ],
            exception_handlers={
                TooLarge: _too_large,
                TimeoutError: _too_slow,
                ClientDisconnect: _gone,
                Hangs: _hangs,
            },
            lifespan=self._house,
        )
        self.app = Gate(answering, addresses)

    @contextlib.asynccontextmanager
    async def _house(self, app: Starlette) -> AsyncIterator[None]:
        """While it serves, let the watchers rest; afterwards end them. Consoles that end by
        themselves have a moment for it."""

        async def keep() -> None:
            while True:
                await asyncio.sleep(HOUSE_S)
                await asyncio.to_thread(self._desk.rest)

        keeper = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeper.cancel()
            if self._endings:
                await asyncio.wait(self._endings, timeout=LEAVE_S)
            await asyncio.to_thread(self._desk.close)

    # -- pages -------------------------------------------------------------------------------

    @staticmethod
    def _file(name: str) -> Callable[[Request], Any]:
        """A page of this program: it holds no facts, so whoever reaches the server may see it."""
        body = (resources.files("console.frontends.web") / "pages" / name).read_bytes()
        kind = TYPES[Path(name).suffix]

        async def page(request: Request) -> Response:
            return Response(body, media_type=kind)

        return page

    def _fetched(self, name: str) -> Callable[[Request], Any]:
        async def file(request: Request) -> Response:
            files = await self._looks.do(xterm.installed)
            if name not in files:
                return Response(f"omni-console web --fetch brings {name}\n", 404)
            return Response(files[name], media_type=TYPES[Path(name).suffix])

        return file

    # -- sessions ----------------------------------------------------------------------------

    async def _enter(self, request: Request) -> Response:
        token = (await _body(request)).get("token")
        session = self._access.enter(token) if isinstance(token, str) else None
        if session is None and not self._access.may_fail():
            return _reply("too many tries: wait a minute", 429)
        if session is None:
            return _reply("this link is not valid: it works once, and only for a while", 403)
        answer = JSONResponse({"key": session.key})
        answer.set_cookie(
            _cookie(request),
            session.cookie,
            max_age=int(SESSION_S),
            httponly=True,
            samesite="strict",
        )
        return answer

    def _session(self, connection: HTTPConnection) -> Session | None:
        """The session of a request that brings its cookie; a page's request brings its key, too."""
        session = self._access.find(connection.cookies.get(_cookie(connection), ""))
        if session is None or connection.scope["type"] == "websocket":
            return session
        return session if knows(session, connection.headers.get(KEY_HEADER, "")) else None

    def _refused(self, session: Session | None) -> Response | None:
        if session is None:
            return _reply("no session: a new link starts one", 401)
        return None if session.rate.take() else _reply("too many requests", 429)

    async def _leave(self, request: Request) -> Response:
        session = self._session(request)
        if session is None:
            return _reply("no session", 401)
        self._access.leave(session)
        answer = _reply("", 200)
        answer.delete_cookie(_cookie(request), httponly=True, samesite="strict")
        return answer

    # -- status and verbs --------------------------------------------------------------------

    async def _status(self, request: Request) -> Response:
        if refused := self._refused(self._session(request)):
            return refused
        return JSONResponse(await self._looks.do(self._desk.look))

    async def _verb(self, request: Request) -> Response:
        if refused := self._refused(self._session(request)):
            return refused
        message = await _body(request)
        no = await self._verbs.do(self._desk.tell, message)
        return _reply(no, 403 if no and not self._desk.write else 409 if no else 200)

    # -- the terminal ------------------------------------------------------------------------

    async def _console(self, websocket: WebSocket) -> None:
        session = self._session(websocket)
        if session is None:
            await websocket.close(OVER)
            return
        await websocket.accept()
        code, words = await self._serve(websocket, session)
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await websocket.close(code, words)

    async def _serve(self, websocket: WebSocket, session: Session) -> tuple[int, str]:
        try:
            async with asyncio.timeout(PATIENCE_S):
                first = parsed(await websocket.receive_text())
        except (TimeoutError, WebSocketDisconnect, KeyError):
            return TOO_MUCH, "the first message did not come"
        size, key = size_of(first), first.get("key")
        if size is None:
            return OVER, "the terminal has no size in whole columns and rows: load the page again"
        if not isinstance(key, str) or not knows(session, key):
            return OVER, "no session: a new link starts one"
        if self._consoles >= MAX_CONSOLES:
            return TOO_MUCH, f"{MAX_CONSOLES} consoles are open here: close one"
        if paths.lost_file():
            return ENDED, "files of omni-console itself are gone: install it again"
        try:
            console = PtyConsole(self._argv, environment(os.environ), size)
        except OSError as error:
            why = error.strerror or str(error)
            return ENDED, f"the console cannot be started: {one_line(why, 60)}"
        self._consoles += 1
        try:
            rate = Rate(MESSAGES, MESSAGE_EVERY_S, self._clock)
            return await Bridge(websocket, console, lambda: self._access.holds(session), rate).run()
        finally:
            self._endings.add(asyncio.create_task(self._end(console)))

    async def _end(self, console: PtyConsole) -> None:
        """Let a console end, which may take minutes: neither its browser nor the end of this server
        waits for that."""
        try:
            await console.end()
        finally:
            self._consoles -= 1
            self._endings = {task for task in self._endings if task is not asyncio.current_task()}


def _cookie(connection: HTTPConnection) -> str:
    """The name of the cookie: two servers of one host name would else take each other's place."""
    port = connection.headers["host"].rpartition(":")[2]
    return f"omni-console-{port if port.isdecimal() else 80}"


async def _body(request: Request) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        return parsed((await request.body()).decode("utf-8", "replace"))


def _reply(words: str, status: int) -> JSONResponse:
    return JSONResponse({"error": words}, status)


async def _too_large(request: Request, error: Exception) -> Response:
    return _reply(f"at most {MAX_BODY} bytes are taken", 413)


async def _too_slow(request: Request, error: Exception) -> Response:
    return _reply("the request did not come in time", 408)


async def _hangs(request: Request, error: Exception) -> Response:
    return _reply("this machine does not answer: a disk may hang", 503)


async def _gone(request: Request, error: Exception) -> Response:
    """For nobody: who asked has gone before the request was whole."""
    return Response(status_code=400)


# -- the process -----------------------------------------------------------------------------------


def listen(address: str, port: int) -> socket.socket:
    """A socket that only this machine reaches. Raises UsageError."""
    if address not in LOCAL:
        raise UsageError(
            f"{one_line(address, 60)} is not a loopback address",
            "this server is for browsers on this machine: 127.0.0.1 or ::1",
            "from elsewhere: ssh -L 8765:127.0.0.1:8765 HOST",
        )
    if not 0 <= port < 65536:
        raise UsageError(f"{port} is no port", "from 1 to 65535, or 0 for any free one")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # the protocol has to be named: only then asyncio sends small answers at once (TCP_NODELAY)
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((address, port))
        made.listen(MAX_CONNECTIONS)
    except OSError as error:
        made.close()
        raise UsageError(
            f"port {port} cannot be had", error.strerror or str(error), "--port N takes another one"
        ) from error
    return made


def listen_at(path: Path) -> socket.socket:
    """A unix socket for this user alone; one that nobody serves any more is replaced. Raises
    UsageError."""
    made = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        with short_address(path) as address:
            _forget(path, address)
            made.bind(address)
            made.listen(MAX_CONNECTIONS)
    except OSError as error:
        made.close()
        raise UsageError(f"{one_line(str(path))} cannot be had", *_why(path, error)) from error
    finally:
        os.umask(mask)
    return made


def _why(path: Path, error: OSError) -> tuple[str, str]:
    """Why no socket can be made there, and what to do: the system calls whatever is there an
    address in use."""
    if path.is_dir():
        inside = one_line(str(path / "omni-web.sock"))
        return "a directory is there", f"name a file in it: --socket {inside}"
    if error.errno == errno.EADDRINUSE:
        if path.is_socket():
            return "another server answers there", "end that one, or name another path"
        return "a file is there that is no socket; it stays", "move it away, or name another path"
    if not path.parent.is_dir():
        parent = one_line(str(path.parent))
        return f"there is no directory {parent}", "make it, or name another path"
    return error.strerror or str(error), "name another path"


def _forget(path: Path, address: str) -> None:
    """Remove the socket of a server that has ended. Raises OSError where one lives."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            path.unlink()


class Server:
    """Serves a site in a thread of its own, so that signals and the terminal stay the caller's."""

    def __init__(self, site: Site, listening: socket.socket) -> None:
        # no log of requests, no forwarded addresses: nothing that names a token or believes one;
        # what others send that is no HTTP is no line in the terminal where the link stands
        config = uvicorn.Config(
            site.app, log_config=None, log_level="error", access_log=False,
            proxy_headers=False, server_header=False,
            http="h11", ws="websockets-sansio", ws_max_size=MAX_MESSAGE, ws_ping_interval=20.0,
            ws_ping_timeout=20.0, ws_per_message_deflate=False, lifespan="on",
            limit_concurrency=MAX_CONNECTIONS, timeout_keep_alive=5,
            h11_max_incomplete_event_size=16384, timeout_graceful_shutdown=3,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._listening = listening
        self._thread = threading.Thread(target=self._run, name="web")

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        crash.clean_logging()
        log = logging.getLogger("uvicorn.error")
        log.addFilter(self._goes_on)
        try:
            with self._listening:
                asyncio.run(self._server.serve(sockets=[self._listening]))
        finally:
            log.removeFilter(self._goes_on)

    def _goes_on(self, record: logging.LogRecord) -> bool:
        """Whether a failure is one to be told: of what is cut off at the end each has a trace."""
        return not self._server.should_exit

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """End it, from any thread or signal handler."""
        self._server.should_exit = True

    def join(self) -> None:
        """Wait until it has ended; every console that it had opened has lost its terminal."""
        self._thread.join()
