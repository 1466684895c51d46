"""Protections: what was granted is read back, and each refusal is a sentence."""

import json
import subprocess
import sys
from typing import Any

from console.host.privileges import oom_score, set_nice, set_oom_score

PROGRAM = """
import ctypes, gc, json, os, resource, subprocess, sys
from console.recovery.guard import daemon as protect
if sys.argv[1] == "nobody" and os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
got = protect.protect(tuple(sys.argv[2:]))
child = subprocess.Popen(["sleep", "600"])
protect.lower_priority(child.pid, got)
from console.host.privileges import oom_score
print(json.dumps({
    "was": got.nice_before, "got": got.got, "missing": got.missing,
    "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "score": oom_score(), "gc": gc.isenabled(), "before": got.oom_before,
    "child": [os.getpriority(os.PRIO_PROCESS, child.pid), oom_score(child.pid)],
    "locked": [l for l in open("/proc/self/status") if l.startswith("VmLck")][0].split()[1],
}))
child.kill()
child.wait()
"""


def run(*words: str, who: str = "self") -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, who, *words],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_is_said_is_what_is_and_a_child_gives_it_back() -> None:
    found = run()
    assert found["got"]["priority"] == f"nice {found['nice']}"
    assert found["got"]["oom_score_adj"] == str(found["score"])
    assert found["got"]["kill path"] == "rehearsed"
    assert not found["gc"]
    assert (int(found["locked"]) > 0) == ("locked" in found["got"]["memory"].split())
    missing = " ".join(found["missing"])
    assert ("priority" in missing) == (found["nice"] != -20)
    assert ("oom_score_adj" in missing) == (found["score"] != -1000)
    assert found["child"] == [found["was"], found["before"]]


def test_an_ordinary_user_is_told_what_is_missing() -> None:
    found = run("no pidfd_open", who="nobody")
    assert found["got"]["kill path"] == "no pidfd_open"
    assert found["nice"] > -20
    words = " ".join(found["missing"])
    assert "kill path: no pidfd_open" in words
    assert f"nice {found['nice']}, as -20 is not permitted" in words
    assert "oom_score_adj" in words


def test_a_refusal_is_read_back() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        before = oom_score(child.pid)
        assert before is not None
        assert set_oom_score(before + 5, child.pid) == before + 5
        assert set_oom_score(5000, child.pid) == before + 5  # the kernel takes 1000 at most
        assert set_nice(7, child.pid) == 7
        child.kill()
    assert oom_score(2**22 + 1) is None
    assert set_oom_score(0, 2**22 + 1) is None
