"""`make run`'s command: real engines, a real measurement, a verdict that the thresholds decide."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.run.e2e.world import World

STATE = "state/omni-console"


@pytest.fixture
def demo(bare: World) -> World:
    """A world in which nothing was ever configured."""
    del bare.env["OMNI_SITE"]
    return bare


def mine(world: World) -> list[int]:
    """Processes of this world."""
    mark = f"XDG_STATE_HOME={world.root / 'state'}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def test_the_demo_shows_progress_decides_reports_and_leaves_nothing_behind(demo: World) -> None:
    fast = demo.console("demo")
    assert fast.code == 0, fast
    lines = fast.out.splitlines()
    assert any(re.match(r"\[4/\d+\] ✓ bench succeeded in .* tok/s over \d+ runs", x) for x in lines)
    assert any(line.startswith("decision: GO (migrate)") for line in lines)
    assert demo.run.report.read_text().startswith("# Does the candidate beat")
    site = (demo.root / STATE / "demo/site.yaml").read_text()
    url = re.search(r"http://127\.0\.0\.1:\d+", site)
    assert url is not None
    assert demo.serves(url[0])

    slow = demo.console("demo", "--candidate", "slow", "--json")
    assert (slow.code, slow.json["decision"], slow.json["outcome"]) == (3, "no_go", "retain"), slow

    swapped = [
        "--input",
        "runs=3",
        "--input",
        "go=< 0.7 x baseline",
        "--input",
        "no_go=> 1 x baseline",
    ]
    for candidate, code in (("slow", 0), ("fast", 3)):
        done = demo.console("run", "demo", "--input", f"candidate={candidate}", "--json", *swapped)
        assert done.code == code, done

    assert demo.serves(url[0])
    assert demo.console("demo", "--stop").code == 0
    assert not demo.serves(url[0])
    assert list((demo.root / "state").rglob("*")) in ([], [demo.root / STATE])
    assert mine(demo) == []
    assert demo.console("demo", "--stop").code == 0
