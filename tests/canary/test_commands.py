"""Every command beside servers, runs and files full of planted secrets: none of them is printed."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.frontends.cli.arguments import described
from tests.canary.planting import LIVE, Canaries, leaks, planted, stranger
from tests.runner.e2e.world import COMMAND, LIMIT_S
from tests.testbed.nvml import Nvml
from tests.ui.hostile import Standing
from tests.ui.place import Place

LAST = ("abort", "rollback")
"""Commands that change what the others show: they come at the end."""
FOLLOWING = {
    "attach": "omni-console tell", "abort": "omni-console tell", "web": "/enter#",
    "watch run": "planned: ",
}  # fmt: skip
"""How commands begin that follow or serve until they are ended, and what they print once all that
they have to say is said: then they are ended as Ctrl-C does."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run a-good-one", "run a-good-one --json"),
    "tune": ("tune",),
    "bisect": ("bisect a-good-one --over pick",),
    "attach": (f"attach {LIVE}",),
    "resume": (f"resume {LIVE}",),
    "tell": (f"tell {LIVE} next",),
    "plan": (
        "plan a-good-one",
        "plan a-good-one --json",
        "plan b-{broken}",
        "plan e-service",
        "plan g-kept",
        "plan g-kept --json",
    ),
    "lint": ("lint .", "lint {site}"),
    "schema": ("schema site",),
    "runs": ("runs", "runs --json"),
    "show": ("show", "show --json", f"show {LIVE}"),
    "report": ("report", f"report {LIVE}", "report --json"),
    "logs": ("logs", "logs cand", "logs two"),
    "playbooks": ("playbooks",),
    "keys": ("keys",),
    "lessons": ("lessons", "lessons F-001"),
    "doctor": ("doctor", "doctor --json"),
    "gauges": ("gauges", "gauges --json"),
    "recorder": ("recorder", f"recorder {LIVE}"),
    "bench": ("bench {base}", "bench {stranger}", "bench {stranger} --json"),
    "check": ("check model {model}", "check fit {model}"),
    "clean": ("clean", "clean --all", "clean --json"),
    "init": ("init --list", "init --pick :{port} --to {root}/made.yaml", "init --list --json"),
    "adopt": ("adopt", "adopt --yes"),
    "notify": ("notify", "notify --json", "notify --test", "notify --test --json"),
    "schedule": ("schedule",),
    "fleet": ("fleet", "fleet --json", "fleet show far"),
    "bridge": ("bridge",),
    "boot": ("boot", "boot status"),
    "watch": ("watch", "watch status", "watch run"),
    "metrics": ("metrics",),
    "web": ("web --port 0",),
    "promote": ("promote",),
    "demo": ("demo --help",),  # the whole of it is a rehearsal, whose words are our own
    "completion": ("completion bash",),
    "man": ("man",),
    "abort": (f"abort {LIVE}",),
    "rollback": ("rollback", "rollback --json"),
}


def said(place: Place, line: str, argv: list[str]) -> str:
    """What a command prints, to its end."""
    child = subprocess.Popen(
        [COMMAND, *argv], env=place.env, cwd=place.root, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    assert child.stdout is not None
    late = threading.Timer(LIMIT_S, child.kill)  # what hangs is no end
    late.start()
    sign, out = next((FOLLOWING[one] for one in FOLLOWING if line.startswith(one)), ""), ""
    with child, late_is_over(late):
        for row in child.stdout:
            out += row
            if sign and sign in row:
                child.send_signal(signal.SIGINT)
    assert child.returncode >= 0, f"{line}: {child.returncode}\n{out}"
    assert not sign or sign in out, f"{line}: {child.returncode}\n{out}"
    return out


@contextlib.contextmanager
def late_is_over(timer: threading.Timer) -> Iterator[None]:
    try:
        yield
    finally:
        timer.cancel()


def test_every_command_has_its_words_here() -> None:
    assert set(COMMANDS) == set(described()), "a new command: say how it is called"


@pytest.mark.full
def test_no_command_prints_a_secret(tmp_path: Path, nvml: Nvml) -> None:
    with planted(tmp_path / "place", nvml) as (place, standing, words):
        pid = stranger(place, words, place.cand_port)
        out = printed(place, standing, words)
        got = {argv: leaks(words, text) for argv, text in out.items()}
        assert {argv: found for argv, found in got.items() if found} == {}
        assert "Traceback" not in "".join(out.values())
        seen = "".join(out.values())
        assert f"pid {pid}" in seen or f":{place.cand_port}" in seen, "the stranger was looked at"
        assert seen.count("*****") > 20, "what was planted was read"


def printed(place: Place, standing: Standing, words: Canaries) -> dict[str, str]:
    """What each command prints, the ones that change something last."""
    broken = next(path.stem for path in place.root.glob("b-*.yaml")).removeprefix("b-")
    given = {
        "site": str(place.site), "base": place.base_url, "stranger": place.cand_url,
        "model": str(place.model), "port": str(place.cand_port), "root": str(place.root),
        "broken": broken,
    }  # fmt: skip
    order = sorted(COMMANDS, key=lambda name: name in LAST)
    out = {}
    for line in (line for name in order for line in COMMANDS[name]):
        argv = [re.sub(r"\{(\w+)\}", lambda key: given[key[1]], word) for word in line.split()]
        out[line] = said(place, line, argv)
    return out
