"""One test's world of real processes: the installed command, runners, sentinels and engines."""

import contextlib
import glob
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from console.config.site.site import load_site
from console.host import process
from console.host.process import ProcessSpec
from tests.runner.world import LONGEST_S, Outcome, WorldBase, free_port
from tests.waiting import until

__all__ = ["COMMAND", "LIMIT_S", "Outcome", "World", "free_port", "until"]

COMMAND = str(Path(sys.executable).with_name("omni-console"))
LIMIT_S = LONGEST_S
QUIET = """
import re
from console.bench import interference as context
context.ENGINES = context.SPINNERS = re.compile("(?!)")
"""
"""What else runs on this machine is not the test's: an engine of somebody else's makes no run void.
The run's own services are known by their pids, and count."""


class World(WorldBase):
    """Everything one test has; every process in it carries its XDG_STATE_HOME."""

    def __init__(self, root: Path, model: Path) -> None:
        super().__init__(root, model)
        names = ("OMNI_", "PYTHONPATH", "SUDO_", "DOCKER_", "XDG_STATE_HOME")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(names)}
        self.env = {**kept, **self.env}
        self.children: list[subprocess.Popen[str]] = []
        self.runner_with(QUIET)

    def runner_with(self, text: str) -> None:
        """Every runner of this world runs this text first."""
        place = self.root / "first"
        place.mkdir(exist_ok=True)
        with (place / "sitecustomize.py").open("a") as file:
            body = textwrap.indent(text, "    ")
            file.write(f"import sys\nif 'runner' in sys.orig_argv:\n{body}\n")
        self.env["PYTHONPATH"] = str(place)

    def engine(self, model: Path, port: int) -> list[str]:
        return [
            sys.executable, "-m", "console.rehearsal.demo.engine", "--model", str(model),
            "--port", str(port), "--cache-ram", "0",
        ]  # fmt: skip

    def bring_up(self) -> tuple[int, int]:
        spec = load_site(self.site).baseline_spec().runs
        assert isinstance(spec, ProcessSpec)
        path = [(k, v) for k, v in self.env.items() if k.startswith("XDG_")]
        started = process.spawn(
            spec, log=self.root / "baseline.log", cookie="earlier", extra_env=path
        )
        process.write_record(self.records, "baseline", spec, *started)
        until(self.serves, "the baseline serves")
        return started

    # -- commands ------------------------------------------------------------------------------

    def console(self, *args: str, **env: str) -> Outcome:
        done = subprocess.run(
            [COMMAND, *args], env={**self.env, **env}, cwd=self.root, timeout=LIMIT_S,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr)

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """The command in the background; ended with the test."""
        child = subprocess.Popen(
            [COMMAND, *args], env={**self.env, **env}, cwd=self.root, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.children.append(child)
        return child

    # -- the end -------------------------------------------------------------------------------

    def mine(self) -> list[tuple[int, int]]:
        """Every process of this world, by its environment."""
        word = f"XDG_STATE_HOME={self.root / 'state'}".encode()
        found = []
        for stat in process.all_stats():
            with contextlib.suppress(OSError):
                if word in Path(f"/proc/{stat.pid}/environ").read_bytes().split(b"\0"):
                    found.append((stat.pid, stat.start))
        return found

    def close(self) -> None:
        """End every process of this world, again and again until none is left."""
        deadline = time.monotonic() + 60
        while (left := self.mine()) and time.monotonic() < deadline:
            for pid, start in left:
                with contextlib.suppress(OSError):
                    process.send(pid, start, signal.SIGKILL)
            for child in self.children:
                child.poll()
            time.sleep(0.01)
        for child in self.children:
            child.wait(timeout=60)
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
        for run in self.runs:  # a sentinel that was killed with its runner left its recorder
            for ring in Path("/dev/shm").glob(f"omni-console.*.{glob.escape(run.id)}.ring"):
                ring.unlink()
        assert not left, f"processes outlived the test: {left}"
