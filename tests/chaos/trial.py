"""One trial: a world of real processes, the drawn acts, and what is left when it is over."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from console.host import process
from console.recovery.rollback.records import read as read_pointer
from tests.chaos import facts, intruder
from tests.chaos.draw import BY_SCRIPT, Act, Plan
from tests.chaos.facts import Command, Facts
from tests.chaos.neighbours import Neighbours
from tests.chaos.worlds import Hostile, build_clock, limit_files
from tests.rollback import standin
from tests.runner.e2e.sites import UP, book, host_site
from tests.runner.e2e.world import World
from tests.waiting import until

NOBODY = 65534
LIMIT_S, SETTLE_S = 90.0, 75.0
"""A ladder that nobody needs looks once a minute whether it is, and leaves."""
ANNOUNCED_S = 1.0
"""A runner that was known for this long when a rollback ended may not outlive it."""
OWN = ("follower", "rollback", "command")
"""Kinds that the driver started itself, and ends."""
STARTED = ("run", "resume", "rollback", "attach")
KINDS = (
    ("closer", "--close"), ("runner", " runner "), ("ladder", "console.recovery.rollback.standby"),
    ("sentinel", "console.recovery.guard.daemon"), ("follower", "omni-console attach"),
    ("rollback", "omni-console rollback"), ("rollback", "/omni-console/sealed/"),
    ("rollback", "/rollback/rollback.sh"), ("rollback", "/rollback/without-python.sh"),
    ("command", "omni-console "),
)  # fmt: skip


SLANDERED = 0.5
"""How often a run's own records name the neighbours as its processes."""


class ChaosWorld(World):
    """A world whose engines are stand-ins, or llama.cpp where the plan says so."""

    def __init__(self, root: Path, model: Path, plan: Plan) -> None:
        self.plan = plan
        super().__init__(root, model)

    def engine(self, model: Path, port: int) -> list[str]:
        if self.plan.real:
            return super().engine(model, port)
        more = self.plan.baseline if port == self.base_port else self.plan.candidate
        return [self.interpreter, "-I", "-S", standin.__file__, str(port), *more]

    def start_script(self) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            ["/bin/sh", str(self.run.script)], env=self.env, cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.children.append(child)
        return child

    @property
    def interpreter(self) -> str:
        """Of the engines. They are there in every world: a copy is no Python that a rollback
        knows of."""
        if self.plan.world not in BY_SCRIPT:
            return sys.executable
        copy = self.root / "interpreter"
        if not copy.exists():
            shutil.copy(os.path.realpath(sys.executable), copy)
        return str(copy)

    def bring_up(self) -> tuple[int, int]:
        started = super().bring_up()
        until(lambda: facts.healthy(self.base_port), "the baseline has loaded")
        return started


class Trial:
    def __init__(self, plan: Plan, root: Path, model: Path) -> None:
        self.plan, self.root = plan, root
        root.chmod(0o755)
        shim = build_clock(root) if plan.world == "clock" else None
        self.world = ChaosWorld(root, model, plan)
        (root / "host").chmod(0o1777)
        self.hostile = Hostile(plan.world, root, shim)
        self.dice = random.Random(f"{plan.seed}/{plan.number}/acts")
        self.seen = Facts()
        self.commands: list[Command] = []
        self.running: list[tuple[str, subprocess.Popen[str]]] = []
        self.killed: set[int] = set()
        self.baseline_killed = 0.0
        """When a baseline was killed last, Unix time."""
        self.said: list[str] = []
        self.begun = time.monotonic()
        self.over = threading.Event()
        self.refused = False
        """A run was refused, as another user can bring about: less of the trial took place."""

    def run(self) -> list[str]:
        """The promises that were broken."""
        self.hostile.enter()
        self.world.site.write_text(host_site(self.world))
        self.world.bring_up()
        self.neighbours = Neighbours(self.world.records)
        until(lambda: not self.neighbours.ended(), "the neighbours serve")
        watcher = threading.Thread(target=self._watch_both)
        watcher.start()
        other = self._intruder() if self.plan.intruder else None
        broken: list[str] = []
        try:
            broken = self._acts()
        finally:
            self.over.set()
            watcher.join()
            if other is not None:
                other.kill()
                other.wait()
            if not broken:
                broken = facts.violations(self._look())
            self._end()
        return broken

    # -- what is done --------------------------------------------------------------------------

    def _acts(self) -> list[str]:
        if self.plan.moment != "served":
            self._start("run")
            if not self._await_moment():
                return ["stuck: the run does not come to its moment"]
            if any("follower" in act.what for act in self.plan.acts):
                self._start("attach")
        if self.dice.random() < SLANDERED:
            self.neighbours.slander(self.root / "state/omni-console/runs")
        self.hostile.turn(self.dice.random, [pid for _, pid, _ in self.living()])
        begun = time.monotonic()
        for act in self.plan.acts:
            while (left := begun + act.at - time.monotonic()) > 0:
                self._collect(judge=False)
                time.sleep(min(left, 0.02))
            self._do(act)
        hung = self._wait_all()
        if hung:
            return hung
        if self.plan.way == "race" and not any(a.do == "kill" and a.at for a in self.plan.acts):
            self._settled_race()
        self._last("rollback")
        if self.plan.world != "plain":
            self.hostile.lift()
            self._last("rollback")
        return []

    def _do(self, act: Act) -> None:
        if act.do == "start":
            self._start(act.what)
            return
        number = signal.SIGSTOP if self.plan.world == "stop" else signal.SIGKILL
        for kind, pid, start in self.living():
            if kind in act.what.split(","):
                self.note(f"{signal.Signals(number).name} {kind} {pid}")
                self.killed.add(pid)
                self.seen.kills += 1
                if kind == "baseline":
                    self.baseline_killed = time.time()
                with contextlib.suppress(OSError):
                    process.send(pid, start, number)

    def _start(self, what: str) -> None:
        argv = [what, "--json"]
        if what == "resume" and self.world.runs:
            argv.append(self.world.run.id)
        if what == "run":
            argv.append(str(self._book()))
        self.note(f"start {what}")
        by_script = what == "rollback" and self.hostile.turned and self.plan.world in BY_SCRIPT
        child = self.world.start_script() if by_script else self.world.start(*argv)
        if self.hostile.files:
            limit_files(child.pid)
        self.running.append((what, child))

    def _book(self) -> Path:
        def act(name: str, more: str = "") -> str:
            line = f"echo $OMNI_RUN {name} >> {self.world.effects}{more}"
            return f'id: {name}, script: "{line}"'

        steps = (act("mark"), UP, act("inside", "; sleep 0.5"), act("late", "; sleep 0.3"))
        return self.world.write("b.yaml", book(*steps, final=act("last")))

    def _await_moment(self) -> bool:
        """The run has begun, or its candidate is there; True as well where it was refused."""
        [(_, child)] = self.running

        def come() -> bool:
            begun = self.plan.moment == "begun"
            there = bool(self.world.runs) if begun else self._alive("candidate")
            return there or child.poll() is not None

        return self._until(come, LIMIT_S)

    # -- what is awaited and judged ------------------------------------------------------------

    def _wait_all(self) -> list[str]:
        """Every command that was started comes to its end."""
        if self._until(lambda: not self._collect(judge=True), LIMIT_S):
            return []
        hung = [what for what, child in self.running if child.pid not in self.killed]
        for _, child in self.running:
            child.kill()
        return [f"stuck: {', '.join(hung)} did not end in {LIMIT_S:g} s"] if hung else []

    def _collect(self, judge: bool) -> bool:
        """Take what has ended; whether something of it still goes on."""
        for what, child in list(self.running):
            if child.poll() is not None:
                self.running.remove((what, child))
                ended = time.time()
                out, err = child.communicate()
                self.note(f"{what} ended with {child.returncode}")
                if child.pid not in self.killed:
                    beside = self._beside(ended) if what == "rollback" else ""
                    alone = judge and not self.running and not self._alive("runner")
                    serves = self._serves() if alone else None
                    self.refused |= what == "run" and '"exit_code"' in out and "error" in out
                    self._judge(what, child.returncode, out + err, serves, beside)
        # whoever follows a stopped runner waits, and says so
        awaited = ("rollback",) if self.plan.world == "stop" else STARTED
        return any(c.pid not in self.killed for what, c in self.running if what in awaited)

    def _judge(self, what: str, code: int, text: str, serves: bool | None, beside: str) -> None:
        if what != "rollback" and self.plan.world in BY_SCRIPT:
            return  # its program is gone
        if serves is False and facts.after_the_proof(text, self.baseline_killed):
            serves = None
        self.commands.append(Command(what, code, text, serves, beside))
        (self.root / "said").open("a").write(f"--- {what} ended with {code}\n{text}\n")

    def _beside(self, ended: float) -> str:
        """The runner of this user's that a rollback which said 0 should have ended."""
        mine = read_pointer(os.getuid())
        path = self.root / "host" / f"omni-console.{os.getuid()}.json"
        with contextlib.suppress(OSError):
            known = ended - path.stat().st_mtime > ANNOUNCED_S
            runners = {pid for kind, pid, _ in self.living() if kind == "runner"}
            if mine is not None and known and mine.pid in runners:
                return f"runner {mine.pid} of {mine.run_id}"
        return ""

    def _settled_race(self) -> None:
        """All three have ended: the baseline serves, or a run is on that may have it down."""
        if not self._alive("runner"):
            words = " ".join(f"{c.name}={c.code}" for c in self.commands)
            serves = self._serves() or self._alive("closer")
            self._judge(f"race ({words})", 0, "", serves, "")

    def _last(self, what: str) -> None:
        self._start(what)
        [(_, child)] = [one for one in self.running if one[0] == what][-1:]
        if not self._until(lambda: child.poll() is not None, LIMIT_S):
            child.kill()
            self.note(f"the last {what} did not end")
        self._collect(judge=True)

    def _alive(self, kind: str) -> bool:
        return any(one == kind for one, _, _ in self.living())

    def _serves(self) -> bool:
        return facts.completes(self.world.base_port) and self._holders() == ["baseline"]

    def _holders(self) -> list[str]:
        kinds = {pid: kind for kind, pid, _ in self.living()}
        found = facts.listeners(self.world.base_port, list(kinds))
        return sorted({kinds[pid] for pid in found})

    def _until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)  # each look reads every process of the machine
        return True

    # -- what is seen --------------------------------------------------------------------------

    def living(self) -> list[tuple[str, int, int]]:
        """(kind, pid, start) of every process of this world."""
        mine = self.world.mine()
        kinds = {pid: self._kind(pid) for pid, _ in mine}
        found = []
        for pid, start in mine:
            stat, kind = process.stat(pid), kinds[pid]
            if stat is None or not kind:
                continue
            if kind == "step" and kinds.get(stat.parent) == "sentinel":
                kind = "sentinel-child"
            found.append((kind, pid, start))
        return found

    def _kind(self, pid: int) -> str:
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            return ""
        words = argv.replace("\0", " ")
        for port, kind in ((self.world.base_port, "baseline"), (self.world.cand_port, "candidate")):
            if f" {port} " in words and ("standin.py" in words or "demo.engine" in words):
                return kind
        return next((kind for kind, sign in KINDS if sign in words), "step") if words else ""

    def _left(self) -> list[tuple[str, int, int]]:
        return [one for one in self.living() if one[0] not in ("baseline", *OWN)]

    def _look(self) -> Facts:
        for _, pid, start in self.living() if self.plan.world == "stop" else ():
            with contextlib.suppress(OSError):  # what was stopped and goes on may harm nothing
                process.send(pid, start, signal.SIGCONT)
        self._until(lambda: not self._left(), SETTLE_S)
        self.note("at rest")
        seen, world = self.seen, self.world
        seen.serves = facts.completes(world.base_port)
        seen.holders = self._holders()
        seen.candidate_listens = _connects(world.cand_port)
        seen.orphans = [f"{kind} {pid}" for kind, pid, _ in self._left()]
        temp = [p for part in ("host", "state") for p in (self.root / part).rglob(".*.new")]
        # Whom a rollback ends may be about to write, like whom a trial kills. The directory of a
        # run that never began is gone, with what its rollback wrote there.
        told = [*(self.root / "state").rglob("ladder.jsonl"), self.root / "said"]
        seen.kills += sum(
            path.read_text(errors="replace").count("runner killed")
            for path in told if path.exists()
        )  # fmt: skip
        seen.temp = [str(p) for p in temp if p.lstat().st_uid == os.getuid()]
        seen.effects = world.effects.read_text().splitlines() if world.effects.exists() else []
        seen.journals = facts.journals(self.root / "state/omni-console/runs")
        seen.commands = self.commands
        seen.ended = self.neighbours.ended()
        return seen

    def _watch_both(self) -> None:
        """The longest time for which both engines listened, as the watcher saw it."""
        since = None
        while not self.over.wait(0.1):
            both = _connects(self.world.cand_port) and _connects(self.world.base_port)
            since = (since or time.monotonic()) if both else None
            if since is not None:
                self.seen.both_s = max(self.seen.both_s, time.monotonic() - since)

    def note(self, text: str) -> None:
        self.said.append(f"{time.monotonic() - self.begun:6.2f} s  {text}")

    # -- around it -----------------------------------------------------------------------------

    def _intruder(self) -> subprocess.Popen[bytes] | None:
        if os.getuid() != 0:
            return None
        source = Path(intruder.__file__).read_text()
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
        ports = (str(self.world.base_port), str(self.world.cand_port))
        log = (self.root / "intruder.log").open("wb")
        with log:
            return subprocess.Popen(
                [python, "-I", "-c", source, str(self.root / "host"), str(self.plan.seed), *ports],
                user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", env={},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def _end(self) -> None:
        if self.plan.world == "read-only" and self.hostile.turned:
            self.hostile.lift()
        self.neighbours.close()
        (self.root / "acts").write_text("\n".join([self.plan.words(), *self.said, ""]))
        self.world.close()


def _connects(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5):
        return True
    return False
