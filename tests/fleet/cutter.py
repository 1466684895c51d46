"""Stands in front of `ssh`, and lets its line break at a chosen byte: run by path, by the operator
of a test, as `python cutter.py PLAN SSH…`.

PLAN is a file of cuts, one JSON object a line, each for one connection to a bridge; behind the last
one nothing breaks. `bytes`: after how many, both ways together; `after`: once this word has gone
out; `all`: the shared connection dies too, not only this client of it.
"""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys


def taken(plan: str) -> dict[str, object] | None:
    """The next cut; None when all were made."""
    with open(plan, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        first, *rest = file.read().splitlines() or [""]
        file.seek(0)
        file.truncate()
        file.write("".join(f"{line}\n" for line in rest))
    return json.loads(first) if first else None


def relay(argv: list[str], cut: dict[str, object]) -> int:
    """Pass bytes on until the line breaks, or ends by itself."""
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    out, left, word = child.stdout.fileno(), cut.get("bytes"), str(cut.get("after") or "")
    passed, sources = b"", [0, out]
    while out in sources:
        for source in select.select(sources, [], [])[0]:
            size = 65536 if not isinstance(left, int) else max(1, min(65536, left))
            data = os.read(source, size)
            if not data:
                sources.remove(source)
                if source == 0:
                    child.stdin.close()
                continue
            os.write(1 if source == out else child.stdin.fileno(), data)
            passed += data if source == 0 else b""
            if isinstance(left, int):
                left -= len(data)
            if (isinstance(left, int) and left <= 0) or (word and word.encode() in passed):
                child.send_signal(signal.SIGKILL)
                if cut.get("all"):
                    subprocess.run([*argv[:-2], "-O", "exit", argv[-2]], capture_output=True)
                return 255
    return child.wait()


if __name__ == "__main__":
    plan, *argv = sys.argv[1:]
    found = taken(plan) if argv[-1].endswith(" bridge") else None
    if found is None:
        os.execvp(argv[0], argv)
    sys.exit(relay(argv, found))
