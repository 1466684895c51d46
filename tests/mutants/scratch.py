"""A copy of the tree with a Python environment of its own, and a process namespace: a mutated guard
or rollback that ends the wrong process reaches none outside."""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.mutants.coverage_map import PLUGIN, Test, tree_files

MEMORY_KB = 8_000_000
"""What one process may hold: a loop that never ends must not take the machine's memory."""
HANGS_S, START_S = 60.0, 90.0
AWAY = ("COVERAGE_", "COV_", "PYTEST_", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_")


@cache
def enclosed() -> tuple[str, ...]:
    """The command that gives its arguments a process namespace; empty where there is none."""
    user = ("--user", "--map-current-user") if os.geteuid() else ()
    command = ("unshare", *user, "--pid", "--fork", "--mount-proc", "--kill-child", "--")
    done = subprocess.run([*command, "true"], capture_output=True, check=False)
    return command if done.returncode == 0 else ()


class Scratch:
    """One copy. Not shared: each worker has its own."""

    def __init__(self, root: Path) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="om"))
        self.tree = self.place / "r"
        self.python = self.tree / ".venv/bin/python"
        self._running: subprocess.Popen[bytes] | None = None
        (self.place / "v").mkdir()
        self.tree.mkdir()
        copy = ["cp", "--parents", "-p", "-t", str(self.tree), "--", *tree_files(root)]
        subprocess.run(copy, cwd=root, check=True)
        shutil.copy(PLUGIN, self.tree / "mutants_plugin.py")
        self._environment(root / ".venv/bin")

    def _environment(self, owner: Path) -> None:
        """All packages are those of the tree's own environment, except the program's own."""
        venv = self.tree / ".venv"
        subprocess.run([owner / "python", "-m", "venv", "--without-pip", venv], check=True)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        theirs, ours = (subprocess.check_output([python, "-c", ask], text=True).strip()
                        for python in (owner / "python", self.python))  # fmt: skip
        Path(ours, "mutants.pth").write_text(f"{self.tree}\n{theirs}\n")
        for script in owner.iterdir():
            own = self.python.with_name(script.name)
            head, _, rest = script.read_bytes().partition(b"\n")
            if head.startswith(b"#!") and b"python" in head:
                own.write_bytes(f"#!{self.python}\n".encode() + rest)
                own.chmod(0o755)
            elif not own.exists():
                own.symlink_to(script)
        ask = "import console.cli; print(console.cli.__file__)"
        told = subprocess.check_output([self.python, "-P", "-c", ask], text=True, cwd="/")
        if not told.startswith(str(self.tree)):
            raise RuntimeError(f"the copy at {self.tree} loads {told.strip()}")

    def put(self, file: str, text: str) -> None:
        """Write a source file; bytecode of the same second and size would be taken for its own."""
        path = self.tree / file
        path.write_text(text, "utf-8")
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)

    def run(self, tests: list[Test]) -> tuple[Test | None, bool, int]:
        """Run these tests, in this order, until one fails, hangs or cannot begin: that one, whether
        it hung, and how many began."""
        hangs_s = max(HANGS_S, *(3 * test.seconds for test in tests))
        limit_s = START_S + hangs_s + 3 * sum(test.seconds for test in tests)
        events = self.place / "events"
        events.write_text("")
        (self.place / "chosen").write_text("\n".join(test.name for test in tests), "utf-8")
        call = [
            *enclosed(), "sh", "-c", f'ulimit -d {MEMORY_KB}; "$@"; exit $?', "sh",
            str(self.python), "-m", "pytest", "-x", "-q", "-p", "mutants_plugin",
            "-p", "no:cacheprovider", "--hypothesis-seed=0", "-o", f"timeout={hangs_s:.0f}",
            f"--basetemp={self.place}/t", *dict.fromkeys(test.file for test in tests),
        ]  # fmt: skip
        env = {name: value for name, value in os.environ.items() if not name.startswith(AWAY)}
        env |= {"MUTANTS_PLACE": str(self.place), "TMPDIR": f"{self.place}/v"}
        with (self.place / "output").open("wb") as output:
            self._running = subprocess.Popen(
                call, cwd=self.tree, env=env, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                code = self._running.wait(limit_s)
            except subprocess.TimeoutExpired:
                self._running.kill()
                self._running.wait()
                code = -1
        lines = events.read_text("utf-8").splitlines()
        began, failed = ([line.removeprefix(word) for line in lines if line.startswith(word)]
                         for word in ("began ", "failed "))  # fmt: skip
        said = (self.place / "output").read_text("utf-8", "replace")
        if began and not failed and code in (0, 1, 2, 5):
            return None, False, len(began)
        suspect = (failed or began[-1:] or [""])[0]  # a file, where it could not be collected
        found = (test for test in tests if suspect in (test.name, test.file))
        return next(found, tests[0]), code == -1 or "Failed: Timeout" in said, len(began)

    def close(self) -> None:
        """End what runs now and all of its namespace; in a place that is gone no more can begin."""
        if self._running is not None and self._running.poll() is None:
            self._running.kill()
            self._running.wait()
        shutil.rmtree(self.place, ignore_errors=True)
