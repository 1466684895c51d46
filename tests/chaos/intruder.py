"""Another local user: plants files, holds locks and opens sockets until it is ended. That user may
not be able to read the repository. `python intruder.py HOST_DIR SEED PORT...`"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import socket
import sys
import time
from pathlib import Path

ABSURD = (float("inf"), 1e999, 1 << 70, -1, "x", None, [], {"a": 1})
MAX_SOCKETS = 12


def pointer(dice: random.Random, host: Path, uid: int) -> str:
    """A pointer that names root's processes, its own, or nonsense."""
    value: dict[str, object] = {
        "run_id": "20260101-000000-evil", "run_dir": str(host), "owner": "mallory", "uid": uid,
        "pid": dice.choice((1, os.getpid())), "start": 1, "started_at": 4e9,
    }  # fmt: skip
    if dice.random() < 0.6:
        value[dice.choice(list(value))] = dice.choice(ABSURD)
    text = json.dumps(value)
    return dice.choice((text, text, text[: dice.randrange(len(text))], "[" * 5000))


def plant(dice: random.Random, host: Path) -> None:
    """Something under a name that the console uses, or might."""
    uid = dice.choice((os.getuid(), 0, 1, 1000))
    names = (f"omni-console.{uid}.json", f".omni-console.{uid}.json.new", "omni-console.lock")
    path = host / dice.choices(names, (6, 3, 1))[0]
    with contextlib.suppress(OSError):
        if dice.random() < 0.5:
            path.unlink()
        kind = dice.choices(range(4), (3, 3, 1, 8))[0]
        if kind == 0:
            os.mkfifo(path, 0o666)
        elif kind == 1:
            path.symlink_to(dice.choice(("/dev/null", "/etc/passwd", str(host / "missing"), "/")))
        elif kind == 2:
            path.mkdir()
        else:
            path.write_text(pointer(dice, host, uid))
            path.chmod(0o644)


def hold(dice: random.Random, host: Path) -> None:
    """A flock on whatever can be opened, for a moment."""
    held = []
    for path in [*host.glob("omni-console*"), *host.parent.glob("state/omni-console/**/lock")]:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            held.append(descriptor)
            if path.name != "omni-console.lock":  # one lock a host: a user who holds it, has it
                fcntl.flock(descriptor, dice.choice((fcntl.LOCK_EX, fcntl.LOCK_SH)) | fcntl.LOCK_NB)
    time.sleep(dice.uniform(0, 0.05))
    for descriptor in held:
        os.close(descriptor)


def knock(dice: random.Random, ports: list[int], kept: list[socket.socket]) -> None:
    """A connection that says little, and stays."""
    with contextlib.suppress(OSError):
        kept.append(socket.create_connection(("127.0.0.1", dice.choice(ports)), timeout=0.2))
        kept[-1].sendall(dice.choice((b"GET /heal", b"\0\xff", b"POST / HTTP/1.1\r\nX: ")))
    while len(kept) > MAX_SOCKETS:
        kept.pop(0).close()


def main() -> None:
    host, dice = Path(sys.argv[1]), random.Random(sys.argv[2])
    ports, kept = [int(port) for port in sys.argv[3:]], list[socket.socket]()
    while True:
        dice.choice((plant, hold))(dice, host)
        knock(dice, ports, kept)
        time.sleep(dice.uniform(0.01, 0.1))


if __name__ == "__main__":
    main()
