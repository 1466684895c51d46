"""`omni-console web`: serve the console and the status page to browsers on this machine."""

from __future__ import annotations

import os
import select
import shlex
import signal
import socket
import sys
import time
from argparse import Namespace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from console.common import paths
from console.common.errors import ConsoleError, Exit, UsageError
from console.common.text import clean

if TYPE_CHECKING:
    from console.frontends.web.access import Access
    from console.frontends.web.server import Server

ADDRESS, PORT = "127.0.0.1", 8765
TURN_S = 0.5
"""Seconds between looks whether the server still lives."""
EXTRA = ("starlette", "uvicorn", "websockets")


def web(args: Namespace) -> int:
    """Serve until a signal comes; Enter prints a new link."""
    if args.fetch is not None:
        from console.frontends.web import xterm

        where = xterm.fetch("" if args.fetch is True else args.fetch)
        print(f"the terminal of the page lies in {clean(str(where))}")
        return int(Exit.OK)
    _require_extra()
    warning = _look_at(args.site)
    from console.frontends.web import server, xterm
    from console.frontends.web.access import Access, Addresses
    from console.frontends.web.desk import Desk

    path = Path(args.socket).absolute() if args.socket is not None else None
    if path is not None:
        if args.address is not None:
            raise UsageError(
                "--socket and --address do not go together",
                "a unix socket has no address", "leave one of them out",
            )  # fmt: skip
        listening, addresses, base = server.listen_at(path), Addresses(), f"http://localhost:{PORT}"
    else:
        address = ADDRESS if args.address is None else args.address
        listening = server.listen(address, PORT if args.port is None else args.port)
        port = listening.getsockname()[1]
        addresses = Addresses(address, port)
        base = f"http://{f'[{address}]' if ':' in address else address}:{port}"
    access, desk = Access(), Desk(site=args.site, write=args.write)
    site = server.Site(access, addresses, desk, _console(args))
    for line in [*warning, *_words(args.write, path, base, bool(xterm.installed()))]:
        print(line)
    mine = _file_at(path)
    try:
        _serve(server.Server(site, listening), access, base)
    finally:
        # while this one ended, another may have taken its place there
        if path is not None and _file_at(path) == mine:
            path.unlink(missing_ok=True)
    return int(Exit.OK)


def _file_at(path: Path | None) -> tuple[int, ...] | None:
    """Which file has this name now, by what no later one shares, as an inode's number comes again;
    None for none."""
    try:
        info = path.lstat() if path is not None else None
    except OSError:
        return None
    return (info.st_dev, info.st_ino, info.st_mtime_ns) if info is not None else None


def _require_extra() -> None:
    """Raises UsageError where the optional libraries are missing."""
    from importlib.util import find_spec

    if missing := [name for name in EXTRA if find_spec(name) is None]:
        raise UsageError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed",
            "the web server is an optional part of omni-console",
            f"{sys.executable} -m pip install 'omni-console[web]'",
        )


def _look_at(given: str | None) -> list[str]:
    """What is wrong with the site file, in words. Raises InvalidFile where the file that was named
    cannot even be read, which is a slip. Any other fault ends nothing: a run is rolled back by its
    sealed plan, and Roll back has to stay in reach of whoever is called at night."""
    from console.config.locate import site_file
    from console.config.site.site import TITLE, load_site
    from console.config.yaml import read_text

    if given is not None:
        read_text(Path(given), TITLE)
    try:
        if (file := site_file(given)) is not None:
            load_site(file)
    except (ConsoleError, OSError) as error:
        error_lines = error.lines() if isinstance(error, ConsoleError) else [str(error)]
        words = "this serves all the same: a rollback brings the baseline of a run back without it"
        return [*(clean(line, 300) for line in error_lines), f"  {words}"]
    return []


def _console(args: Namespace) -> tuple[str, ...]:
    """The command of a terminal page; nothing that a browser sends becomes a part of it."""
    site = ("--site", str(Path(args.site).absolute())) if args.site else ()
    return (
        *paths.module_argv("console.cli"), *site, *(() if args.write else ("--readonly",)),
    )  # fmt: skip


def _words(write: bool, path: Path | None, base: str, drawn: bool) -> list[str]:
    """What is served to whom, and how a browser elsewhere gets there."""
    rights = "may answer, change and roll back" if write else "only see (--write: they may answer)"
    lines = [f"browsers with a link {rights}; Ctrl-C ends this, and no run"]
    host = socket.gethostname()
    if path is not None:
        way = shlex.join(["ssh", "-L", f"{PORT}:{clean(str(path))}", host])
        lines.append(f"from your own machine: {way}")
    elif os.environ.get("SSH_CONNECTION"):
        port = base.rpartition(":")[2]
        address = base.removeprefix("http://").rpartition(":")[0]
        lines.append(f"from your own machine: ssh -L {port}:{address}:{port} {host}")
    if not drawn:
        lines.append("no terminal page yet: omni-console web --fetch brings what it needs")
    return lines


def _serve(server: Server, access: Access, base: str) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; each line that is typed gives a new link. A SIGHUP
    that is ignored stays so: with `nohup` this outlives its terminal."""

    def stop(number: int, frame: FrameType | None) -> None:
        server.stop()

    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in (signal.SIGINT, signal.SIGTERM, *(() if outlives else (signal.SIGHUP,))):
        signal.signal(number, stop)
    # in a shell's background nobody types: reading fails then, and must not stop this process
    signal.signal(signal.SIGTTIN, signal.SIG_IGN)
    server.start()
    try:
        print("Enter prints a new link", flush=True)
        _link(access, base)
        typing = [sys.stdin.fileno()]
        while server.alive:
            if not typing:
                server.join()
            elif select.select(typing, [], [], TURN_S)[0]:
                typed = _typed(typing[0])
                if typed:
                    _link(access, base)
                elif typed is None:
                    time.sleep(TURN_S)
                else:
                    typing = []
    finally:
        # also where nobody reads what is printed any more
        server.stop()
        server.join()


def _typed(descriptor: int) -> bool | None:
    """Whether somebody has typed something; None while the terminal is another job's, as what is
    typed there is; False where nobody can type any more."""
    try:
        return bool(os.read(descriptor, 4096))
    except OSError:
        return None if _is_lent(descriptor) else False


def _is_lent(descriptor: int) -> bool:
    """Whether this is in the background of the shell that has the terminal."""
    try:
        return os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:
        return False


def _link(access: Access, base: str) -> None:
    """Print a link; what stands behind the `#` is never sent as part of an address."""
    print(f"open once, within 15 min: {base}/enter#{access.link()}", flush=True)
