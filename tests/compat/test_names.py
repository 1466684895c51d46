"""Every module that scripts, plans, units and site files of an earlier version name is there and
starts: they were written into files that nobody writes anew."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.compat.world import BINARY, Past

NAMED = re.compile(rb"\bconsole(?:\[?\.\]?[a-z_]+)+")
STARTS = {
    "console.cli": ("--version",),
    "console.demo.engine": ("--help",),
    "console.guard.helper": ("--help",),
    "console.services.relay": ("192.0.2.1:9", "127.0.0.1:9", "cand"),
    "console.rehearsal.demo.engine": ("--help",),
    "console.recovery.guard.kill.root_helper": ("--help",),
}
"""What each is started with here, so that it ends by itself; the relay
is given an address that no machine has."""
OF = {
    "2026-11-23": {
        "console.cli", "console.demo.engine", "console.guard.helper", "console.services.relay",
    },
    "2026-11-29": {
        "console.cli", "console.rehearsal.demo.engine", "console.recovery.guard.kill.root_helper",
    },
}  # fmt: skip


def test_what_files_start_or_look_for_is_known_here(
    version: str, trials: Past, cutover: Past
) -> None:
    named = set()
    for path in (trials.root / "state").rglob("*"):
        if path.is_file() and not path.name.endswith(BINARY):
            named |= {one.decode().replace("[.]", ".") for one in NAMED.findall(path.read_bytes())}
    unit = (trials.root / "helper.service").read_bytes()
    named |= {one.decode() for one in NAMED.findall(unit)}
    assert {one for one in named if not one.startswith("console.baseline")} == OF[version]


@pytest.mark.parametrize("module", STARTS)
def test_it_starts(module: str) -> None:
    assert find_spec(module) is not None
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, *STARTS[module]], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    if module == "console.services.relay":
        assert "cannot listen on 192.0.2.1:9" in done.stdout
    else:
        assert done.returncode == 0, done.stderr
