"""One run as a user who has nothing but the engine's socket: no signal reaches a container's
processes, so the container's own limit and the engine's API have to do. `make yard` runs it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.recovery.rollback.live import Live
from tests.guard.yard import memory, programs
from tests.guard.yard.boxed import alloc, on_word
from tests.guard.yard.engine import own_engine
from tests.guard.yard.post import Post, floor
from tests.testbed.cache import Unavailable
from tests.testbed.engine import Engine
from tests.testbed.image import BUSY
from tests.testbed.plugin import PREFIX, lacking
from tests.waiting import until

UID, GID = 64123, 64124
"""A user without a name, whose one group is that of the socket."""
SIZE, MARGIN = 4 * memory.GIB, 768 * memory.MIB
PYTHON = "/usr/bin/python3"


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
def own() -> Iterator[Engine]:
    try:
        with own_engine() as (engine, _):
            os.chown(engine.socket, 0, GID)
            os.chmod(engine.socket, 0o660)
            Path(engine.socket).parent.chmod(0o755)
            yield engine
    except Unavailable as error:
        lacking(PREFIX + error.reason)


def become() -> None:
    os.setgroups([GID])
    os.setgid(GID)
    os.setuid(UID)


def given(directory: Path) -> None:
    """Give everything below a directory to that user."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, UID, GID)


def test_the_engine_kills_where_signals_may_not(place: Path, own: Engine) -> None:
    word = place / "word"
    word.mkdir()
    made = own.run(
        "run", "-d", "--network=none", "--memory=6g", "--memory-swap=6g", "--pids-limit=64",
        "-v", f"{programs.hog().parent}:/yard:ro", "-v", f"{word}:/place", BUSY,
        *on_word(alloc(SIZE)),
    ).strip()  # fmt: skip
    memory.warm(memory.GIB, 1)
    memory.require(SIZE)
    threshold = memory.settled() - MARGIN
    post = Post(
        place / "run", (floor(threshold),), extra={"engine": own.socket},
        argv=(PYTHON, "-m", "console.recovery.guard.daemon"), preexec=become,
        env={"PYTHONPATH": str(place / "tree"), "HOME": str(place)},
    )  # fmt: skip
    try:
        post.prepare()
        given(post.run_dir)
        post.start()
        page = post.ready or {}
        assert page["missing"], "what it may not do is said"
        post.arm(Live("container", "cand", container=made))
        until(lambda: post.armed, f"armed: {post.status}")
        (word / "go").touch()
        found = post.breached()
        killed = found["killed"][0]
        until(lambda: not own.run("ps", "-q").split(), f"it is dead: {killed}", 20)
        killed = (post.breach or {})["killed"][0]
        assert "engine" in killed["rungs"], killed
        assert killed["why"], "that signals were not permitted is said"
        print(page["missing"], killed)
    finally:
        post.close()
