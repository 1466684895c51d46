"""The baseline's own secrets are in nothing that a rollback writes, and others read none of it."""

import os
import shutil
import stat
import sys
from ast import literal_eval
from dataclasses import replace
from pathlib import Path

import pytest

from console.common.files import private_mode
from console.host.process import ProcessSpec
from console.recovery.rollback import evidence
from console.recovery.rollback.progress import PROGRESS_FILE
from tests.rollback.conftest import Stage, in_script
from tests.rollback.test_odd_clients import runs_its_own

SAYS = "import os, sys; print('no such key:', sys.argv[2], os.environ['HF_TOKEN']); sys.exit(1)"
KEYS = ("s3cret-Canary7", "it's a s3cret-Canary8", "s3cret-Canary9")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_rollback_that_failed_keeps_no_secret_of_its_baseline(stage: Stage) -> None:
    """The commands to be pasted, and the last line of its log, had them in clear."""
    argv = (sys.executable, "-c", SAYS, "--api-key", KEYS[0], "--admin-api-key", KEYS[1])
    stage.base(process=ProcessSpec(argv, (("HF_TOKEN", KEYS[2]),)), environment=())
    stage.plan = replace(stage.plan, site_name="mine")
    file = stage.plan.rollback_dir / PROGRESS_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(0o644)
    file.chmod(0o644)
    result = stage.roll_back()
    assert not result.serving
    kept = evidence.directory("mine", stage.plan.baseline.url)
    files = [file, *kept.glob("*.json")]
    assert len(files) > 1
    written = "".join(path.read_text() for path in files)
    assert "*****" in written, "what is hidden was there"
    for text in (written, result.detail, *result.manual):
        assert "s3cret" not in text
        assert "Canary" not in text
    assert {mode(path) for path in files} == {0o600}


def test_a_user_reads_what_root_wrote_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert private_mode(tmp_path) == 0o600
    uid = tmp_path.stat().st_uid
    monkeypatch.setattr("os.getuid", lambda: uid + 1)
    assert private_mode(tmp_path) == 0o644
    assert private_mode(tmp_path / "none") == 0o600


@pytest.mark.parametrize("shell", ["dash", "bash --posix", "busybox sh"])
def test_the_script_starts_the_baseline_with_no_secret_in_an_argv(
    stage: Stage, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody reads the argv of a process, and auditd keeps it. What it starts has the sealed
    environment and nothing else, whatever the shell keeps for itself."""
    if shutil.which(shell.split()[0]) is None:
        pytest.skip(f"needs {shell.split()[0]}")
    tools, seen = stage.root / "tools", stage.root / "argv"
    tools.mkdir()
    for name in ("env", "nohup", "setsid"):
        tool, path = tools / name, shutil.which(name)
        tool.write_text(f'#!/bin/sh\necho "$0 $@" >>{seen}\nexec {path} "$@"\n')
        tool.chmod(0o755)
    show = "import os; print(sorted(os.environ.items()))"
    sealed = (
        ("PATH", os.environ["PATH"]), ("HF_TOKEN", KEYS[1]), ("UID", "7"), ("program", "x y"),
        ("name", "two\nPATH=lines"), ("a.b", "odd"),
    )  # fmt: skip
    spec = ProcessSpec((sys.executable, "-S", "-c", show), (("API_KEY", KEYS[0]),))
    stage.base(process=spec, environment=sealed, program=sys.executable)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("program", "not this")
    monkeypatch.setenv("LEFT_OVER", "1")
    code, out = in_script(stage, "spawn_baseline\n", shell)
    assert code == 0
    environment = dict(literal_eval(out))
    expected = dict(sealed) | {"API_KEY": KEYS[0], "OMNI_RUN": "baseline"}
    ignored = {"OMNI_STEP", "LC_CTYPE", "_", "PWD", "SHLVL", "OLDPWD", "EUID"}
    assert {key: value for key, value in environment.items() if key not in ignored} == expected
    words = seen.read_text()
    assert "nohup" in words
    if not (shell == "busybox sh" and runs_its_own(str(shutil.which("busybox")))):
        assert "setsid" in words
    assert not any(key in words for key in KEYS)
