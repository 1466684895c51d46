"""An operator at the far end of ssh: logs in, opens the console, loses the line, logs in again."""

import os
import shlex
import shutil
import signal
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from console.host import process
from tests.runner.e2e.boxes import LABEL, Boxes, boxes
from tests.runner.e2e.world import COMMAND, World
from tests.runtime.serving import serving
from tests.testbed.door import door
from tests.testbed.engine import Engine
from tests.testbed.models import tiny_deepseek2, tiny_llama
from tests.testbed.ssh import Ssh
from tests.ui.terminal import Terminal
from tests.waiting import until

TERM = "xterm-256color"
FROM_SSH = ("TERM", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
"""What the console sees of the login itself, as the login shell has it."""


@dataclass
class Login:
    """What every login of one test shares. `short` is a folder with a short path, for sockets."""

    ssh: Ssh
    box: Boxes
    short: Path
    open: list[Terminal] = field(default_factory=list)

    # -- command lines on the server -----------------------------------------------------------

    @property
    def env(self) -> dict[str, str]:
        """All that the console is given: nothing of this process's own, no home of anybody's."""
        world = self.box.world
        home = world.root / "home"
        home.mkdir(exist_ok=True)
        kept = {
            key: value for key, value in world.env.items()
            if key.startswith(("OMNI_", "XDG_", "DOCKER_")) or key == "PATH"
        }  # fmt: skip
        return {
            **kept, "HOME": str(home), "LANG": "C.UTF-8", "SHELL": "/bin/sh",
            "USER": self.ssh.user, "LOGNAME": self.ssh.user, "TMUX_TMPDIR": str(self.short),
        }  # fmt: skip

    def command(self, *argv: str) -> str:
        env = [f'{name}="${name}"' for name in FROM_SSH]
        env += [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        place = shlex.quote(str(self.box.world.root))
        return f"cd {place} && exec env -i {' '.join(env)} {shlex.join(argv)}"

    def bare(self) -> str:
        """The console alone: it dies with its line."""
        return self.command(COMMAND)

    def tmux(self, *, status: bool = True) -> str:
        """The console in tmux: `new-session -A` makes the session, or joins it again.

        `status`: whether tmux keeps its own line, as it does where nobody changed that.
        """
        settings = self.short / "tmux.conf"
        line = "on" if status else "off"
        settings.write_text(f"set -g default-terminal tmux-256color\nset -g status {line}\n")
        return self.command(
            shutil.which("tmux") or "tmux", "-u", "-L", "ops", "-f", str(settings),
            "new-session", "-A", "-s", "ops", COMMAND,
        )  # fmt: skip

    # -- terminals -----------------------------------------------------------------------------

    def log_in(self, command: str, *, ssh: Ssh | None = None) -> Terminal:
        """An ssh client in a terminal of 80x24 of its own; closed with the test."""
        env = {
            "PATH": os.environ["PATH"],
            "TERM": TERM,
            "LANG": "C.UTF-8",
            "HOME": self.env["HOME"],
        }
        made = Terminal((ssh or self.ssh).argv(command), env)
        self.open.append(made)
        return made

    def lose(self, terminal: Terminal) -> None:
        """The client dies at once, without a word to the other side."""
        terminal.child.send_signal(signal.SIGKILL)
        terminal.child.wait(60)
        terminal.close()
        self.open.remove(terminal)

    # -- processes on the server ---------------------------------------------------------------

    def consoles(self) -> list[tuple[int, int]]:
        """(pid, start ticks) of the consoles that are open in this test's world."""
        found = self.box.world.mine()
        return [one for one in found if _argv(one[0])[1:] == [COMMAND]]

    def close(self) -> None:
        """Close every terminal, and end this test's tmux server by its pid."""
        while self.open:
            self.open.pop().close()
        for pid, start in self.box.world.mine():
            if Path(_argv(pid)[0]).name.startswith("tmux"):
                process.send(pid, start, signal.SIGTERM)


def _argv(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [""]
    return [word.decode("utf-8", "replace") for word in words if word] or [""]


@contextmanager
def login(root: Path, models: Path, engine: Engine, image: str, ssh: Ssh) -> Iterator[Login]:
    world = World(root, models / "tiny.gguf")
    scope = uuid.uuid4().hex[:10]
    with ExitStack() as stack:
        short = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        socket = stack.enter_context(door(short / "engine.sock", engine.socket, (LABEL, scope)))
        made = contextmanager(boxes)(world, engine, image, f"unix://{socket}", scope)
        box = stack.enter_context(made)
        world.site.write_text(box.site(container=box.base_name))
        box.baseline()
        logins = Login(ssh, box, short)
        stack.callback(logins.close)
        yield logins
        logins.close()
        until(lambda: not logins.consoles(), "no console is left behind")


def write_models(place: Path) -> Path:
    """The two models of these tests, where a container can read them."""
    tiny_llama(place / "tiny.gguf")
    tiny_deepseek2(place / "deepseek2.gguf")
    place.chmod(0o755)
    return place


@contextmanager
def slow_line(server_port: int, *, delay_s: float, bytes_s: float) -> Iterator[int]:
    """The port of a line to a server on loopback: a delay each way, few bytes in each direction."""
    ends: list[socket.socket] = []

    def carry(source: socket.socket, sink: socket.socket) -> None:
        """What has come while the line was taken goes on in one piece."""
        with suppress(OSError):
            while data := source.recv(65536):
                time.sleep(delay_s + len(data) / bytes_s)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def talk(client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", server_port)) as server:
            ends.extend((client, server))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=carry, args=(server, client), daemon=True)
            back.start()
            carry(client, server)
            back.join()

    listener = socket.create_server(("127.0.0.1", 0))
    with serving(listener, talk):
        yield listener.getsockname()[1]
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
