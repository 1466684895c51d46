"""One test's world inside the test's own process: commands through `cli.main`, scripted engines, no
sentinel, no gauges, no driver of cards. Threads stand for processes: see `machine`."""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO, cast

import pytest
from ruamel.yaml import YAML

from console import cli
from console.bench.interference import Surroundings
from console.common.clock import SystemClock
from console.common.spans import Spans, here
from console.config.site.site import load_site
from console.frontends.cli import follow
from console.host import cgroup, matching, process
from console.host.gpu import inventory
from console.host.process import ProcessSpec
from console.journal.lock import HostLock
from console.journal.store import Journal
from console.recovery.rollback import standby
from console.runner import claim, cutover, fault, launch
from console.runner import main as runner
from console.runner.context import Attempt, Context
from console.runner.control import Control, Server
from console.runner.executors import benchmark
from console.runner.services import RunServices
from tests.runner.whole.machine import ENGINE, KillableQueue, Machine, Scripted, module_of
from tests.runner.world import Outcome, WorldBase

CLI, WARM = "console.cli", "console.recovery.rollback.standby"
ASK_CARDS = inventory.ask
REAL_PAUSE_S = 0.02
"""No pause of a scripted process takes longer; its clock says that it did."""
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")


FIND = matching.find
"""What looks for a pattern in a process of its own: a pattern that would take years needs it."""


def found_here(
    pattern: str, texts: Sequence[str], *, lines: bool = False, whole: bool = False,
    within_s: float = matching.WALL_S,
) -> list[Spans | None]:  # fmt: skip
    """`matching.find` without a process, and so without a limit."""
    return here(pattern, texts, lines=lines, whole=whole)


PARSE = YAML.parse
MAX_PARSED = 32
_parsed: dict[str, tuple[Any, ...]] = {}


def parsed_once(self: YAML, text: str) -> Iterator[Any]:
    """`YAML.parse`, which each command and runner of a world asks for the same few texts. What was
    not read to its end is parsed anew."""
    if text in _parsed:
        yield from _parsed[text]
        return
    events: list[Any] = []
    for event in PARSE(self, text):
        events.append(event)
        yield event
    if len(_parsed) >= MAX_PARSED:
        del _parsed[next(iter(_parsed))]
    _parsed[text] = tuple(events)


class MachineClock(SystemClock):
    """The machine's clock, moved on by what a pause did not really take. A new one begins where the
    furthest is: else a run would begin before a rollback of the run before has ended."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._skipped = machine.furthest

    def monotonic(self) -> float:
        return super().monotonic() + self._skipped + self._machine.passed

    def now(self) -> float:
        return super().now() + self._skipped + self._machine.passed

    def sleep(self, seconds: float) -> None:
        self.wait(threading.Event(), seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self._machine.check()
        if super().wait(event, min(seconds, REAL_PAUSE_S)):
            return True
        self._skipped += max(0.0, seconds - REAL_PAUSE_S)
        self._machine.furthest = max(self._machine.furthest, self._skipped)
        return False


class Streams(io.TextIOBase):
    """stdout or stderr of all commands: each has a buffer of its own, known by its thread. What a
    helper thread of a command prints goes where the newest command prints."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._local = threading.local()
        self._newest = io.StringIO()

    def capture(self) -> io.StringIO:
        self._newest = self._local.to = io.StringIO()
        return self._newest

    def write(self, text: str) -> int:
        if self._machine.me is not None:
            return len(text)
        to: io.StringIO = getattr(self._local, "to", self._newest)
        return to.write(text)

    def flush(self) -> None:
        pass


class Background:
    """A command in a thread of its own; `communicate` as of a child process."""

    def __init__(self, world: ScriptedWorld, args: Sequence[str], env: dict[str, str]) -> None:
        self.outcome = Outcome(-1, "", "")
        self._thread = threading.Thread(target=self._run, args=(world, args, env), daemon=True)
        self._thread.start()

    def _run(self, world: ScriptedWorld, args: Sequence[str], env: dict[str, str]) -> None:
        self.outcome = world.command(args, env)

    @property
    def returncode(self) -> int:
        return self.outcome.code

    def communicate(self, timeout: float) -> tuple[str, str]:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the command goes on"
        return self.outcome.out, self.outcome.err


class ScriptedWorld(WorldBase):
    """Same words as the world of real processes, so that a test can move between them."""

    def __init__(self, root: Path, model: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(root, model)
        self.machine = Machine()
        self._patch = patch
        for name in list(os.environ):
            if name not in INHERITED:
                patch.delenv(name)
        patch.setenv("OMNI_FAULT", "")
        for name, value in self.env.items():
            patch.setenv(name, value)
        patch.chdir(root)
        self._out, self._err = Streams(self.machine), Streams(self.machine)
        self._handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGPIPE)}
        self.program = self.write(ENGINE, "")
        self.program.chmod(0o755)
        """Looked for before the baseline goes down; never executed."""
        self._install(patch)

    def _install(self, patch: pytest.MonkeyPatch) -> None:
        machine = self.machine
        machine.install(patch)
        machine.programs = {CLI: self._cli, WARM: self._warm}
        popen = SimpleNamespace(
            Popen=self._popen, DEVNULL=-3, TimeoutExpired=subprocess.TimeoutExpired
        )
        patch.setattr(launch, "subprocess", popen)
        patch.setattr(runner, "subprocess", popen)
        none = SimpleNamespace(SIGHUP=0, SIGPIPE=0, SIGTERM=0, SIG_IGN=0, signal=lambda *_: 0)
        patch.setattr(runner, "signal", none)
        patch.setattr(runner, "SystemClock", lambda: MachineClock(machine))
        patch.setattr(runner, "_guard", lambda context: None)
        patch.setattr(runner, "_watch_machine", lambda context, *, resumed: None)
        patch.setattr(claim, "HostLock", self._owned(HostLock, "release"))
        for kind in (Server, Journal, RunServices):
            patch.setattr(runner, kind.__name__, self._owned(kind, "close"))
        patch.setattr(runner, "Control", self._control)
        patch.setattr(Context, "record", self._checked(Context.record))
        patch.setattr(Attempt, "remaining", self._checked(Attempt.remaining))
        patch.setattr(cgroup, "popen", self._child)
        patch.setattr(standby, "lock_memory", lambda: "")
        patch.setattr(fault, "die", machine.die)
        patch.setattr(inventory, "ask", self._cards)
        patch.setattr(benchmark, "Surroundings", self._surroundings)
        # a process for each pattern costs more than the rest of a short run
        patch.setattr(matching, "find", found_here)
        patch.setattr(YAML, "parse", parsed_once)
        patch.setattr(follow, "POLL_S", 0.05)
        patch.setattr(fault, "FAULT", "")  # set by each process here, and taken back at the end
        # a relay is a real child: its readiness is waited for on a clock that skips the pauses
        patch.setattr(cutover, "RELAY_READY_S", 3000.0)

    # -- what a scripted process does ----------------------------------------------------------

    def _cli(self, me: Scripted, arguments: Sequence[str]) -> None:
        fault.FAULT = me.fault
        cli.main(list(arguments))

    def _warm(self, me: Scripted, arguments: Sequence[str]) -> None:
        made = ScriptedStandby(Path(arguments[0]), self.machine)
        made.prepare()
        me.owned.append(lambda: os.close(made.fifo))
        made.run()

    def _popen(self, argv: Sequence[str], **options: Any) -> SimpleNamespace:
        """`subprocess.Popen` of a module of the console's own."""
        module, arguments = module_of(argv)
        passed = [os.dup(fd) for fd in options.get("pass_fds", ())]  # the launcher closes its own
        if passed:
            arguments = [w for w in arguments if not w.startswith("--ready-fd=")]
            arguments.append(f"--ready-fd={passed[0]}")
        path = next(word for word in arguments if word.startswith("/"))
        made = self.machine.run(module, arguments, Path(path) / "scripted.log", passed=passed)
        thread = made.thread
        assert thread is not None
        return SimpleNamespace(
            pid=made.pid, poll=lambda: None if made.alive else 0, wait=thread.join,
            kill=lambda: self.machine.send(made.pid, made.start, signal.SIGKILL),
        )  # fmt: skip

    def _cards(self, *args: Any, **named: Any) -> inventory.Cards:
        """NVML is asked where a test gives a script of it, in a process, which takes a while."""
        there = "OMNI_NVML_SCRIPT" in os.environ
        return ASK_CARDS(*args, **named) if there else inventory.Cards(words="none")

    def _owned(self, make: Any, close: str) -> Any:
        """What a runner opens is closed when its thread has ended, however it did."""

        def made(*args: Any) -> Any:
            found = make(*args)
            if self.machine.me is not None:
                self.machine.me.owned.append(getattr(found, close))
            return found

        return made

    def _child(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """A real child of a step; the kernel would take it over from a runner that was killed."""
        child = subprocess.Popen(list(argv), **options)

        def take_over() -> None:
            if child.stdout is not None:
                child.stdout.close()
            threading.Thread(target=child.wait, daemon=True).start()

        if self.machine.me is not None:
            self.machine.me.owned.append(take_over)
        return child

    def _control(self) -> Control:
        control = Control()
        control.inbox = KillableQueue(self.machine)
        return control

    def _checked(self, method: Any) -> Any:
        def checked(*args: Any, **named: Any) -> Any:
            self.machine.check()
            return method(*args, **named)

        return checked

    def _surroundings(self, server: Any, others: Any) -> Surroundings:
        """A benchmark sees a machine on which nothing else runs, and no card."""
        proc = self.root / "proc"
        proc.mkdir(exist_ok=True)
        (proc / "vmstat").write_text("pswpin 0\npgmajfault 0\n")
        (proc / "stat").write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")
        watch = SimpleNamespace(start=lambda: None, stop=lambda: ({}, "no card"))
        return Surroundings(server, others, proc=proc, watch=cast(Any, watch))

    # -- commands ------------------------------------------------------------------------------

    def console(self, *args: str, **env: str) -> Outcome:
        return self.command(args, env)

    def command(self, args: Sequence[str], env: dict[str, str]) -> Outcome:
        out, err = self._out.capture(), self._err.capture()
        sys.stdout, sys.stderr = cast(TextIO, self._out), cast(TextIO, self._err)
        os.environ.update(self.env)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            try:
                code = cli.main(list(args))
            except SystemExit as ended:  # argparse
                code = int(ended.code or 0)
        return Outcome(code, out.getvalue(), err.getvalue())

    def start(self, *args: str, **env: str) -> Background:
        """The command beside the test."""
        return Background(self, args, env)

    # -- services ------------------------------------------------------------------------------

    def engine(self, model: Path, port: int) -> list[str]:
        return [str(self.program), str(model), str(port)]

    def bring_up(self) -> tuple[int, int]:
        spec = load_site(self.site).baseline_spec().runs
        assert isinstance(spec, ProcessSpec)
        started = self.machine.spawn(spec, log=self.root / "baseline.log", cookie="earlier")
        process.write_record(self.records, "baseline", spec, *started)
        return started

    def mine(self) -> list[tuple[int, int]]:
        """Scripted processes, and children of steps by their environment."""
        found = [(p.pid, p.start) for p in self.machine.table.values() if p.alive]
        word = f"XDG_STATE_HOME={self.root / 'state'}".encode()
        for stat in self.machine.real_stats():
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{stat.pid}/environ").read_bytes()
                if word in environ.split(b"\0") and stat.state not in "ZX":
                    found.append((stat.pid, stat.start))
        return found

    def close(self) -> None:
        """End scripted processes, then what steps left behind."""
        self.machine.close()
        for pid, start in self.mine():
            self.machine.send(pid, start, signal.SIGKILL)
        for number, handler in self._handlers.items():
            signal.signal(number, cast(Any, handler))


class ScriptedStandby(standby.Standby):
    """The warm ladder, in a thread: it notices a kill, and asks the kernel for no protection."""

    def __init__(self, directory: Path, machine: Machine) -> None:
        super().__init__(directory)
        self.clock = MachineClock(machine)
        self._machine = machine

    def _wait_for_bytes(self) -> bytes:
        while not select.select([self.fifo], [], [], REAL_PAUSE_S)[0]:
            self._machine.check()
        return os.read(self.fifo, 64)

    def _protect(self) -> str:
        return "scripted"
