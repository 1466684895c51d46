"""Every command beside servers, runs and files full of planted secrets: none of them is printed."""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.common.errors import Exit
from console.frontends.cli.parser import parser_for
from console.frontends.cli.shell.values import KINDS
from tests.canary.planting import (
    LIVE,
    PARTS,
    TWIN,
    Canaries,
    leaks,
    leaks_in_files,
    planted,
    sealed,
    speaker,
    stranger,
)
from tests.runner.e2e.world import COMMAND, LIMIT_S
from tests.testbed.nvml import Nvml
from tests.ui.hostile import Standing
from tests.ui.place import Place

LAST = ("abort", "rollback", "fleet rollback")
"""Commands that change what the others show: they come at the end."""
FOLLOWING = {
    "attach": "omni-console tell", "abort": "omni-console tell", "web": "/enter#",
    "watch run": "planned: ",
}  # fmt: skip
"""How commands begin that follow or serve until they are ended, and what they print once all that
they have to say is said: then they are ended as Ctrl-C does."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("a-good-one.yaml", "a-good-one.yaml --input free={secret}", "g-kept.yaml"),
    "bisect": ("a-good-one.yaml --over pick", "a-good-one.yaml --status"),
    "attach": (LIVE,),
    "resume": (LIVE,),
    "tell": (f"{LIVE} next", f"{LIVE} retry --input free={{secret}}"),
    "runner": ("{root}/nowhere",),
    "plan": ("a-good-one.yaml", "b-{broken}.yaml", "e-service.yaml", "g-kept.yaml"),
    "lint": (". {site}", "--rules"),
    "schema": ("site",),
    "show": ("", LIVE),
    "report": ("", LIVE, f"{LIVE} {TWIN} --markdown", f"{LIVE} --to {{root}}/report.md"),
    "logs": ("two", "cand"),
    "lessons": ("", "F-001", "--due", f"--draft {LIVE}", "--brief"),
    "recorder": ("", LIVE),
    "bench": ("{speaker} --runs 1 --max-runs 1", "{base}", "{stranger}"),
    "check gguf": ("{model}", "{speaker}/m.gguf"),
    "check checkpoint": ("{model}", "{speaker}/m", "{speaker}/m --args --api-key {secret}"),
    "check host": ("--compose {root}/compose.yaml --port {port}",),
    "check build": ("{root} --build-arg TOKEN={secret}",),
    "check contract": (
        "{speaker} --save {root}/seen.json",
        "{stranger} --save {root}/none.json",
        "{speaker} --against {root}/seen.json",
    ),
    "check imports": ("nothing:1 a",),
    "clean": ("", "--all"),
    "init": ("--list", "--pick :{port} --output {root}/made.yaml --yes"),
    "adopt": ("", "{pid}"),
    "notify": ("", "--test"),
    "schedule": ("", "install"),
    "fleet run": ("a-good-one.yaml --on far --yes",),
    "fleet tell": ("far next",),
    "fleet report": ("", LIVE),
    "fleet rollback": ("far",),
    "web": ("--port 0",),
    "demo": ("--stop",),  # the whole of it is a rehearsal, whose words are our own
    "completion values": tuple(KINDS),
    "abort": (LIVE,),
}
"""How commands are called that need more words than their own, or are called more than once; every
other is called by its name. One that can print an object does so, too."""
PLACES = (
    "site", "base", "stranger", "speaker", "model", "port", "root", "broken", "pid", "secret",
)  # fmt: skip


def every_command(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command that the parser takes, the internal ones too, by its words."""
    parts = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if words and not any(one.required for one in parts):
        yield " ".join(words), parser
    for part in parts:
        for name, one in part.choices.items():
            yield from every_command(one, (*words, name))


def calls(given: dict[str, str]) -> dict[str, list[str]]:
    """Every call by how it is shown, the commands that change something last."""
    takes = dict(every_command(parser_for([])))
    found = {}
    for name in sorted(takes, key=lambda name: name in LAST):
        ways = COMMANDS.get(name, ("",))
        as_json = "--json" in takes[name]._option_string_actions
        lines = [f"{name} {line}".strip() for line in ways]
        for line in (*lines, *([f"{name} --json {ways[0]}".strip()] if as_json else [])):
            found[line] = [
                re.sub(r"\{(\w+)\}", lambda key: given[key[1]], word) for word in line.split()
            ]
    return found


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
    refused = child.returncode == Exit.FAILED
    assert not sign or sign in out or refused, f"{line}: {child.returncode}\n{out}"
    return out


@contextlib.contextmanager
def late_is_over(timer: threading.Timer) -> Iterator[None]:
    try:
        yield
    finally:
        timer.cancel()


def test_every_call_is_one_that_its_command_takes() -> None:
    """What ends in the usage of a command has looked at nothing: COMMANDS says what it needs."""
    assert COMMANDS.keys() - dict(every_command(parser_for([]))).keys() == set()
    for line, argv in calls(dict.fromkeys(PLACES, "7")).items():
        try:
            assert parser_for(argv).parse_args(argv).handler, line
        except SystemExit:
            pytest.fail(line)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_no_command_prints_or_keeps_a_secret(tmp_path: Path, nvml: Nvml) -> None:
    with planted(tmp_path / "place", nvml) as (place, standing, words):
        pid = stranger(place, words, place.cand_port)
        spoken = speaker(place, words)
        before = kept(place, words)
        out = printed(place, standing, words, pid, spoken)
        got = {argv: leaks(words, text) for argv, text in out.items()}
        assert {argv: found for argv, found in got.items() if found} == {}
        seen = "".join(out.values())
        assert "Traceback" not in seen
        assert f"pid {pid}" in seen or f":{place.cand_port}" in seen, "the stranger was looked at"
        assert seen.count("*****") > 20, "what was planted was read"
        assert [one for one in kept(place, words) if one not in before] == []


def kept(place: Place, words: Canaries) -> list[tuple[str, str]]:
    """Each file that the console keeps to show it, and each secret in it."""
    found = [
        (f"{part}/{name}", one)
        for part in PARTS
        for name, secrets in leaks_in_files(words, place.root / part).items()
        for one in secrets
        if not sealed(place.root / part / name)
    ]
    written = (place.root / name for name in ("report.md", "seen.json", "none.json", "made.yaml"))
    texts = {path.name: path.read_text() for path in written if path.exists()}
    return found + [(name, one) for name, text in texts.items() for one in leaks(words, text)]


def printed(
    place: Place, standing: Standing, words: Canaries, pid: int, spoken: str
) -> dict[str, str]:
    """What each command prints."""
    broken = next(path.stem for path in place.root.glob("b-*.yaml")).removeprefix("b-")
    given = {
        "site": str(place.site), "base": place.base_url, "stranger": place.cand_url,
        "speaker": spoken, "model": str(place.model), "port": str(place.cand_port),
        "root": str(place.root), "broken": broken, "pid": str(pid),
        "secret": words.secret("argument"),
    }  # fmt: skip
    return {line: said(place, line, argv) for line, argv in calls(given).items()}
