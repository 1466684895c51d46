"""Whole runs of a user who has nothing but the engine's socket: no signal reaches a container's
processes, so its own limit and the engine's API have to do. `make yard` runs it."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guard.yard import memory
from tests.guard.yard.scene import alloc, box
from tests.runner.e2e.sites import book, service
from tests.runner.e2e.world import Outcome, World
from tests.testbed.engine import Engine
from tests.testbed.plugin import PREFIX, lacking

UID, GID = 64123, 64124
"""A user without a name, whose one group is that of the socket."""
PYTHON = "/usr/bin/python3"
MARGIN = 768 * memory.MIB
SMALL = "256MiB"
LIMIT_S = 240.0
CHECK = "import pydantic, docker, xllamacpp; print('ready')"
STEPS = ("id: up, service: {start: hog}", "id: long, run: [sleep, '600']")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that this user can reach, with a copy of the program."""
    made = Path(tempfile.mkdtemp(prefix="omni-member-"))
    tree = Path(__file__).resolve().parents[3]
    shutil.copytree(tree / "console", made / "tree/console")
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def ours(own: tuple[Engine, int]) -> Engine:
    """An engine whose socket that user may open."""
    found = own[0]
    os.chown(found.socket, 0, GID)
    os.chmod(found.socket, 0o660)
    Path(found.socket).parent.chmod(0o755)
    return found


def become() -> None:
    os.setgroups([GID])
    os.setgid(GID)
    os.setuid(UID)


def given(directory: Path) -> None:
    """Give everything below a directory to that user."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, UID, GID)


class Member(World):
    """A world in which every command runs as that user."""

    packages: str = sysconfig.get_paths()["purelib"]

    @property
    def tree(self) -> Path:
        return self.root.parent / "tree"

    def console(self, *args: str, **env: str) -> Outcome:
        argv = [PYTHON, "-P", "-m", "console.cli", *args]
        done = subprocess.run(
            argv, env={**self.env, **env}, cwd=self.root, timeout=LIMIT_S, preexec_fn=become,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr)

    def site_of(self, hog: dict[str, object], engine: Engine, guards: list[object]) -> None:
        """A llama.cpp of this user as the baseline, and a container as the candidate."""
        argv = [PYTHON, *self.engine(self.model, self.base_port)[1:]]
        base = service(argv, self.base_url)
        base["process"]["env"] = {"PYTHONPATH": self.env["PYTHONPATH"]}
        text = {
            "schema": "omni.site/v1", "name": "local", "baseline": base,
            "engine": {"host": engine.host}, "services": {"hog": hog}, "guards": guards,
        }  # fmt: skip
        self.site.write_text(json.dumps(text, indent=1))


@pytest.fixture
def member(place: Path, model: Path, ours: Engine) -> Iterator[Member]:
    """The user's own directory, and a baseline that `rollback` started for the first time."""
    root = place / "home"
    root.mkdir()
    mine = shutil.copy(model, place / "tiny.gguf")
    world = Member(root, Path(mine))
    path = f"{place / 'tree'}:{Member.packages}"
    world.env |= {"PYTHONPATH": path, "HOME": str(root), **ours.env()}
    for name in ("USER", "LOGNAME", "SUDO_USER"):
        world.env.pop(name, None)
    given(place)
    able = subprocess.run(
        [PYTHON, "-c", CHECK], env=world.env, preexec_fn=become, capture_output=True, text=True,
        check=False, cwd=root,
    )  # fmt: skip
    if "ready" not in able.stdout:
        version = ".".join(map(str, sys.version_info[:2]))
        lacking(f"{PREFIX}{PYTHON} of this user cannot use {Member.packages} ({version})")
    yield world
    world.close()


@pytest.fixture
def go(member: Member) -> Path:
    made = member.root / "go"
    made.mkdir()
    return made


def up(world: Member) -> None:
    done = world.console("rollback")
    assert done.code == 0, done
    assert "the baseline serves" in done.out, done
    pid = (world.baseline() or (0, 0))[0]
    assert Path(f"/proc/{pid}").stat().st_uid == UID, "the baseline is this user's"


def restored(world: Member, engine: Engine, done: Outcome) -> dict[str, object]:
    """Check the state after a breach; returns the breach."""
    assert done.code == 6, str(done)
    view = world.view()
    assert (str(view.state), view.reason) == ("rolled_back", "guard"), world.words
    assert world.serves(), "the baseline answers a completion"
    assert not engine.run("ps", "-q").split(), "no container runs"
    assert view.restored_s is not None
    assert view.breach is not None
    return view.breach.body.data()


def test_a_container_past_the_ram_limit_is_killed_through_the_engine(
    member: Member, ours: Engine, go: Path
) -> None:
    hog = box(member.cand_url, ["sh", "-c", f"sleep 1; exec {alloc()}"], go)
    member.site_of(hog, ours, [])
    up(member)
    memory.warm(memory.GIB, 1)
    memory.require(4 * memory.GIB)
    limit = (memory.settled() - MARGIN) // memory.MIB
    guard = {"metric": "host.ram_available", "below": f"{limit}MiB"}
    member.site_of(hog, ours, [guard])
    done = member.go(member.write("hog.yaml", book(*STEPS, name="hog")))
    found = restored(member, ours, done)
    print(done.err, member.console("show", member.run.id).out, sep="\n")
    (killed,) = [row for row in found["killed"] if row["name"].startswith("hog")]  # type: ignore[attr-defined]
    assert "engine" in killed["rung"], killed
    assert "not permitted" in killed["why"] or "may not" in killed["why"], killed
    assert killed["empty_s"] is not None


def test_a_container_past_its_own_limit_is_ended_by_the_kernel(
    member: Member, ours: Engine, go: Path
) -> None:
    """There is enough RAM: the container's memory limit is enforced by the kernel, which needs no
    permission of this user."""
    command = ["sh", "-c", f"sleep 1; /yard/hog alloc {memory.GIB} 0; sleep 600"]
    hog = box(member.cand_url, command, go, limit=SMALL)
    member.site_of(hog, ours, [])
    up(member)
    done = member.go(member.write("hog.yaml", book(*STEPS, name="hog")))
    found = restored(member, ours, done)
    print(done.err, member.console("show", member.run.id).out, sep="\n")
    assert "oom_kills" in str(found["limit"]), found["limit"]
