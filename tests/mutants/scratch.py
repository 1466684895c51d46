"""A copy of the tree with a Python environment of its own, where mutants can do no harm.

Both the tests and every process they start load the copy. They run in a process namespace: a
mutated guard or rollback that ends the wrong process reaches none outside, and what a test left
behind ends with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

MEMORY_KB = 8_000_000
"""What one process may hold: a loop that never ends must not take the machine's memory."""
HANGS_S = 60.0
START_S = 90.0


class Ran(NamedTuple):
    """What one call of pytest came to."""

    failed: str
    """The first test (or file) that failed or hung; empty where all passed."""
    hung: bool
    tests: int
    broken: str
    """Why pytest could not run at all; empty where it did."""


@cache
def enclosed() -> tuple[str, ...]:
    """The command that gives its arguments a process namespace; empty where there is none."""
    user = ("--user", "--map-current-user") if os.geteuid() else ()
    command = ("unshare", *user, "--pid", "--fork", "--mount-proc", "--kill-child", "--")
    try:
        done = subprocess.run([*command, "true"], capture_output=True, check=False)
    except OSError:
        return ()
    return command if done.returncode == 0 else ()


class Scratch:
    """One copy. Not shared: each worker has its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.place = Path(tempfile.mkdtemp(prefix="om"))
        self.tree = self.place / "r"
        self.python = self.tree / ".venv/bin/python"
        self._time = int(time.time()) - 1_000_000
        self._running: subprocess.Popen[bytes] | None = None
        self._copy()
        self._environment()

    def _copy(self) -> None:
        listed = subprocess.check_output(
            ["git", "ls-files", "-coz", "--exclude-standard"], cwd=self.root, text=True
        )
        for name in filter(None, listed.split("\0")):
            if (self.root / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.root / name, self.tree / name)
        shutil.copy(Path(__file__).with_name("plugin.py"), self.tree / "mutants_plugin.py")

    def _environment(self) -> None:
        """All packages are those of the tree's own environment, except the program's own."""
        owner = self.root / ".venv/bin"
        subprocess.run(
            [owner / "python", "-m", "venv", "--without-pip", self.tree / ".venv"], check=True
        )
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        theirs, ours = (
            subprocess.check_output([python, "-c", ask], text=True).strip()
            for python in (owner / "python", self.python)
        )
        Path(ours, "mutants.pth").write_text(f"{self.tree}\n{theirs}\n")
        for script in owner.iterdir():
            own = self.python.with_name(script.name)
            if own.exists() or script.name.startswith("python"):
                continue
            head, _, rest = script.read_bytes().partition(b"\n")
            if head.startswith(b"#!") and b"python" in head:
                own.write_bytes(f"#!{self.python}\n".encode() + rest)
                own.chmod(0o755)
            else:
                own.symlink_to(script)
        where = "import console.cli; print(console.cli.__file__)"
        told = subprocess.check_output([self.python, "-P", "-c", where], text=True, cwd="/")
        if not told.startswith(str(self.tree)):
            raise RuntimeError(f"the copy at {self.tree} loads {told.strip()}")

    def get(self, file: str) -> bytes:
        """A source file of the copy: the checkout itself may change meanwhile."""
        path = self.tree / file
        return path.read_bytes() if path.exists() else b""

    def put(self, file: str, data: bytes) -> None:
        """Write a source file; its time is a new one, or Python would take its old bytecode."""
        self._time += 2
        (self.tree / file).write_bytes(data)
        os.utime(self.tree / file, (self._time, self._time))

    def run(self, tests: Sequence[str], seconds: float, hangs_s: float = HANGS_S) -> Ran:
        """Run these tests, in this order, until one fails or the seconds are used up."""
        events = self.place / "events"
        events.unlink(missing_ok=True)
        (self.place / "chosen").write_text("\n".join(tests), "utf-8")
        files = [file for file in dict.fromkeys(name.split("::")[0] for name in tests)
                 if (self.tree / file).exists()]  # fmt: skip
        if not files:
            return Ran("", False, 0, "the files of these tests are gone")
        call = [
            *enclosed(), "sh", "-c", f'ulimit -d {MEMORY_KB}; "$@"; exit $?', "sh",
            str(self.python), "-m", "pytest", "-x", "-q", "-p", "mutants_plugin",
            "-p", "no:cacheprovider", "--hypothesis-seed=0", "-o", f"timeout={hangs_s:.0f}",
            f"--basetemp={self.place}/t", *files,
        ]  # fmt: skip
        with (self.place / "output").open("wb") as output:
            self._running = process = subprocess.Popen(
                call, cwd=self.tree, env=self._env(seconds), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                code = process.wait(seconds + hangs_s + START_S)
            except subprocess.TimeoutExpired:
                code = None
                self.stop()
        lines = events.read_text("utf-8").splitlines() if events.exists() else []
        began = [line.partition(" ")[2] for line in lines if line.startswith("began ")]
        failed = [line.partition(" ")[2] for line in lines if line.startswith("failed ")]
        said = (self.place / "output").read_text("utf-8", "replace")
        if code is None or (code not in (0, 1, 2, 5) and began and not failed):
            return Ran((failed or began or [""])[-1], True, len(began), "")
        broken = "" if failed or code in (0, 1, 2, 5) else said[-400:]
        hung = bool(failed) and "Failed: Timeout" in said
        return Ran(failed[0] if failed else "", hung, len(began), broken)

    def _env(self, seconds: float) -> dict[str, str]:
        away = ("COVERAGE_", "COV_", "PYTEST_", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(away)}
        spare = self.place / "v"
        spare.mkdir(exist_ok=True)
        return kept | {"MUTANTS_PLACE": str(self.place), "MUTANTS_SECONDS": f"{seconds}",
                       "TMPDIR": str(spare)}  # fmt: skip

    def stop(self) -> None:
        """End what runs now; the namespace takes with it all that was started inside."""
        if self._running is not None and self._running.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)
            self._running.wait()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.place, ignore_errors=True)
