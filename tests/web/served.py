"""`omni-console web` as a process of a place, and a browser that comes in by its link."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.runner.e2e.world import COMMAND
from tests.testbed.cache import Unavailable
from tests.ui.place import Place
from tests.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LINK = re.compile(r"(http://[^/\s]+)/enter#(\S+)")


class Served:
    """The command in a place, its standard input a pipe: what it says, and a link for each line."""

    def __init__(self, place: Place, *args: str) -> None:
        self.child = subprocess.Popen(
            [COMMAND, "web", *args], env=place.env, cwd=place.root, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.said = ""
        self.base, self.token = self._link()

    def _read(self) -> bool:
        assert self.child.stdout is not None
        pipe = self.child.stdout.fileno()
        if select.select([pipe], [], [], 0)[0]:
            data = os.read(pipe, 65536)
            self.said += data.decode()
            assert data, self.said
        return False

    def _link(self) -> tuple[str, str]:
        found = until(
            lambda: self._read() or LINK.search(self.said), "a link", where=lambda: self.said
        )
        self.said = self.said[found.end() :]
        return found[1], found[2]

    def link(self) -> str:
        """Press Enter; the address that is printed."""
        assert self.child.stdin is not None
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        self.base, self.token = self._link()
        return f"{self.base}/enter#{self.token}"

    def close(self) -> int:
        """End it as Ctrl-C does; its exit code."""
        self.child.send_signal(signal.SIGINT)
        code = self.child.wait(60)
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()
        return code


@contextlib.contextmanager
def served(place: Place, *args: str) -> Iterator[Served]:
    """The command with these arguments; it is ended, and ends well."""
    made = Served(place, "--port", "0", *args)
    try:
        yield made
    finally:
        code = made.close()
    assert code == 0, made.said


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium without a window. Raises Unavailable."""
    program = shutil.which("chromium")
    if program is None:
        raise Unavailable("chromium is not installed (Debian's package of that name)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if os.getuid() == 0 else []
        )
        try:
            yield browser
        finally:
            browser.close()
