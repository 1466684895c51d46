"""A Docker engine for one test, which may be stopped in the middle of its work. It has a network
namespace of its own, because two engines in one overwrite each other's firewall rules."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from console.host import process
from tests.testbed import compose, debian, image
from tests.testbed.cache import Unavailable, command, folder
from tests.testbed.engine import Engine
from tests.waiting import until


@contextmanager
def own_engine() -> Iterator[tuple[Engine, int]]:
    """Run an engine with nothing but the tiny image; yields its pid, too. Raises Unavailable."""
    if os.geteuid() != 0:
        raise Unavailable("only root can start a Docker engine")
    dockerd = debian.require_program("dockerd", ["docker.io", "iptables"])
    client, _ = compose.ensure_compose(["/usr/bin/docker"])
    place = Path(tempfile.mkdtemp(prefix="omni-yard-", dir=folder("work")))
    short = Path(tempfile.mkdtemp(prefix="omni-yard-"))
    host = f"unix://{short}/docker.sock"
    argv = [
        "unshare", "--net", "--kill-child", "--fork", "--", dockerd, "--host", host,
        "--data-root", str(place / "data"), "--exec-root", str(short / "exec"),
        "--pidfile", str(short / "pid"), "--iptables=false", "--bridge=none",
    ]  # fmt: skip
    path = f"{debian.SYSTEM_PATH}:{os.environ.get('PATH', os.defpath)}"
    with (place / "log").open("wb") as log:
        child = subprocess.Popen(
            argv, env={**os.environ, "PATH": path}, cwd="/", stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
    engine = Engine(host, str(short / "docker.sock"), client, str(compose.docker_config()), True)
    try:
        pid = _until_up(engine, short / "pid", child, place / "log")
        image.ensure_busy_image(engine)
        yield engine, pid
    finally:
        _end(engine, child, short)
        shutil.rmtree(short, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)


def _until_up(engine: Engine, pidfile: Path, child: subprocess.Popen[bytes], log: Path) -> int:
    def up() -> int:
        if child.poll() is not None:
            raise Unavailable(f"an engine of one's own does not start: {log.read_text()[-300:]}")
        with contextlib.suppress(Unavailable, OSError, ValueError):
            command([engine.docker, "version"], env=engine.env(), timeout=10)
            return int(pidfile.read_text())
        return 0

    return until(up, "the engine answers")


def _end(engine: Engine, child: subprocess.Popen[bytes], short: Path) -> None:
    """End the containers, then the engine, then what is left of it, as found in its files."""
    files = (short / "pid", short / "exec/containerd/containerd.pid")
    pids = [pid for pid in map(_number, files) if pid]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    with contextlib.suppress(Unavailable):
        if found := engine.run("ps", "-aq", timeout=30).split():
            engine.run("rm", "-f", "-v", *found, timeout=60)
    for pid in pids:
        start = process.start_time(pid) or 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(AssertionError):
            until(lambda pid=pid, start=start: not process.alive(pid, start), "it ends", 15)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(10)
    child.kill()
    child.wait()
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if (point := line.split()[1]).startswith(f"{short}/"):
            subprocess.run(["umount", "-l", point], check=False, capture_output=True)


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
