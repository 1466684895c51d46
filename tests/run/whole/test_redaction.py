"""What playbook and site say is secret is executed, and shown or kept nowhere else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from console.journal.run_dir import RunDir
from tests.run.e2e.sites import host_site
from tests.run.world import WorldBase as World

SEALED = ("playbook.yaml", "site.yaml", "run.json", "rollback", "attempts")
"""Of a run's directory: what is executed, or loaded again. Of attempts only the scripts."""


def book(echo: list[str], secrets: list[str]) -> str:
    """A playbook with a secret in every position in which one is written."""
    flag, equals, header, url, variable, build, script, image, given, check, unless, say = secrets
    run = [
        *echo, "--api-key", flag, f"--hf-token={equals}", "-H", f"Authorization: Bearer {header}",
        f"https://me:{url}@127.0.0.1/x", "${{ inputs.word }}", "--token", "${{ inputs.word }}",
    ]  # fmt: skip
    made = {"context": ".", "tag": "t:1", "args": {"K_TOKEN": build}}
    again = {"file": "/nowhere"} if not unless else {"run": ["false", "--secret", unless]}
    steps = [
        {"id": "say", "run": run, "env": {"MY_TOKEN": variable}, "unless": again},
        {"id": "make", "when": False, "build": made},
        {"id": "text", "script": f'curl -sH "Authorization: Bearer {script}" x || echo {script}'},
        {"id": "look", "check": {"output": [*echo, "--password", check], "matches": "argv"}},
        {"id": "note", "note": f"export API_KEY={say} first"},
        {"id": "up", "service": {"start": "cand"}},
        {"id": "fails", "run": ["sh", "-c", f"echo api_key={image}; exit 3"]},
    ]  # fmt: skip
    return json.dumps({
        "schema": "omni.playbook/v1", "name": "trial", "title": "The trial",
        "inputs": {"word": {"type": "string", "default": given}},
        "phases": [{"title": f"With --token {flag}", "steps": steps}],
    }, indent=1)  # fmt: skip


def holders(root: Path, secrets: list[str]) -> set[str]:
    """Files below `root` in which one of them is."""
    found = set()
    for path in root.rglob("*"):
        if path.is_file() and any(one.encode() in path.read_bytes() for one in secrets):
            found.add(str(path.relative_to(root)))
    return found


def sealed(run: RunDir, root: Path, name: str) -> bool:
    path = root / name
    if not path.is_relative_to(run.path):
        return False
    first, *rest = path.relative_to(run.path).parts
    return first in SEALED and (first != "attempts" or rest[-1].endswith(".sh"))


def test_no_secret_is_shown_or_kept(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    secrets = [f"Zw9{number:02d}x-Pl4nted" for number in range(13)]
    seen = tmp_path_factory.mktemp("seen") / "argv"
    echo = [sys.executable, "-c", f"import sys; open({str(seen)!r}, 'a').write(repr(sys.argv)); "
            "print('argv', sys.argv)"]  # fmt: skip
    site = json.loads(host_site(world))
    site["services"]["cand"]["process"]["argv"] += ["--api-key", secrets[12]]
    world.site.write_text(json.dumps(site))
    written = world.write("b.yaml", book(echo, secrets[:12]))
    given = (str(world.site), str(written))
    done = world.go(written, "--override", "known-blocker=it is a test")
    said = [done.out + done.err]
    assert done.code == 5, done
    assert all(one in seen.read_text() for one in (*secrets[:4], secrets[8], secrets[9]))
    report = world.root / "report.md"
    for args in (
        ("plan", given[1]), ("plan", given[1], "--json"), ("lint", given[1], "--json"), ("runs",),
        ("show",), ("show", "--json"), ("report",), ("report", "--json"), ("logs", "say"),
        ("logs", "fails"), ("logs", "cand"), ("report", "--to", str(report)),
        ("rollback",), ("rollback", "--json"), ("attach",),
    ):  # fmt: skip
        outcome = world.console(*args)
        said.append(outcome.out + outcome.err)
    assert [(one, text) for text in said for one in secrets if one in text] == []
    own = {str(Path(path).relative_to(world.root)) for path in given}
    found = holders(world.root, secrets) - own
    assert [name for name in found if not sealed(world.run, world.root, name)] == []
    assert [n for n in found if (world.root / n).stat().st_mode & 0o077] == []
