"""The sealed copy: what is in it, that it stands alone, and that rollback.sh uses it, or does
without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import console
from console.common import paths
from console.host import process
from console.recovery.rollback import command, procedure, records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.records import Pointer
from console.recovery.rollback.shell import launcher, program_gone, sealed_copy
from console.recovery.rollback.shell.printing import Seconds
from tests.rollback.conftest import DASH, Stage, run_launcher

PYTHON = os.path.realpath(sys.executable)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return sealed_copy.make()


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd="/")


def test_every_module_of_a_copy_is_imported_without_any_library(copy: Path) -> None:
    """All but those that ask an engine through the docker library, or are programs."""
    names = [
        ".".join(path.relative_to(copy).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((copy / "console").rglob("*.py"))
    ]
    names = [
        name for name in names
        if "runtime.docker" not in name and name != "console.host.cgroup_exec"
    ]  # fmt: skip
    lines = ("import sys", f"sys.path[:0] = [{str(copy)!r}]", *(f"import {n}" for n in names))
    ran = run(PYTHON, "-I", "-S", "-B", "-c", "\n".join(lines))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(names) > 100


def test_a_process_of_a_copy_starts_modules_of_its_copy(copy: Path) -> None:
    argv = paths.module_argv("console.common.spans", str(copy))
    assert argv[:1] == (PYTHON,)
    ran = run(*argv)
    assert "console" in ran.stderr, "it is started, and lacks its input"
    assert "No module" not in ran.stderr
    asks = f"import sys; sys.path[:0] = [{str(copy)!r}]; from console.common import paths; "
    ran = run(PYTHON, "-I", "-S", "-c", asks + "print(*paths.module_argv('a.b'))")
    assert ran.stdout.split() == [*paths.sealed_argv(str(copy)), "-m", "a.b"]
    assert paths.own_copy() == "", "this is an installed console"


def test_the_compiled_code_of_a_copy_is_used(copy: Path) -> None:
    compiled = next(copy.rglob("text.cpython-*.pyc"))
    source = copy / "console/common/text.py"
    source.write_text("raise RuntimeError('compiled anew')\n")
    asks = f"import sys; sys.path[:0] = [{str(copy)!r}]; import console.common.text"
    assert run(PYTHON, "-I", "-S", "-B", "-c", asks).returncode == 0
    compiled.unlink()
    assert "compiled anew" in run(PYTHON, "-I", "-S", "-B", "-c", asks).stderr


def test_runs_of_a_version_share_a_copy_and_another_version_has_its_own(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    date = (copy / "__main__.py").stat().st_mtime_ns
    assert sealed_copy.make() == copy
    assert (copy / "__main__.py").stat().st_mtime_ns == date, "it is not written again"
    monkeypatch.setattr(sealed_copy, "START", sealed_copy.START + b"# another version\n")
    assert sealed_copy.make() != copy
    assert sealed_copy.is_whole(copy)
    assert sorted(copy.parent.iterdir()) == sorted([copy, sealed_copy.make()]), "nothing is left"


def test_a_copy_that_no_run_uses_goes_with_the_next_new_one(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = copy.parent / "of an upgrade"
    shutil.copytree(copy, made)
    long_ago = time.time() - sealed_copy.UNUSED_S - 60
    for old in (copy, made):
        os.utime(old, (long_ago, long_ago))
    assert sealed_copy.make() == copy, "a run seals it again"
    monkeypatch.setattr(sealed_copy, "START", sealed_copy.START + b"# another version\n")
    newer = sealed_copy.make()
    assert sorted(copy.parent.iterdir()) == sorted([copy, newer])


@pytest.mark.parametrize("damage", ["changed", "lost", "empty", "no list", "half a list"])
def test_a_damaged_copy_is_made_again(copy: Path, damage: str) -> None:
    path, manifest = copy / "console/host/process.py", copy / sealed_copy.MANIFEST
    if damage == "changed":
        path.write_bytes(path.read_bytes()[:-10])
    elif damage == "lost":
        path.unlink()
    elif damage == "empty":
        manifest.write_text("")
    elif damage == "no list":
        manifest.unlink()
    else:
        manifest.write_text(manifest.read_text()[:-30])
    assert not sealed_copy.is_whole(copy)
    assert sealed_copy.make() == copy
    assert sealed_copy.is_whole(copy)


def test_without_room_for_a_copy_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("no directory")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert sealed_copy.place() == ""


def test_the_copy_has_what_the_package_has(copy: Path) -> None:
    package = Path(console.__file__).parent
    for room in sealed_copy.ROOMS:
        of_package = {
            str(path.relative_to(package)) for path in (package / room).rglob("*")
            if path.suffix in sealed_copy.KINDS
        }  # fmt: skip
        assert of_package == {
            str(path.relative_to(copy / "console")) for path in (copy / "console" / room).rglob("*")
            if path.suffix in sealed_copy.KINDS
        }  # fmt: skip
        assert of_package


# -- rollback.sh ----------------------------------------------------------------------------------

needs_dash = pytest.mark.skipif(DASH is None, reason="needs dash")


@needs_dash
def test_the_script_runs_the_copy_and_no_installed_console(stage: Stage) -> None:
    candidate = stage.sleeper()
    done = run_launcher(stage, PYTHONPATH="/no/such", PYTHONHOME="/no/such")
    assert done.returncode == 0, done.stdout
    assert "the baseline serves, back in" in done.stdout, "words of the procedure"
    assert "without Python" not in done.stdout
    assert not process.alive(*candidate)


@needs_dash
@pytest.mark.parametrize("fault", ["lost", "crashes", "nothing to do", "is killed"])
def test_where_the_copy_fails_the_shell_brings_the_baseline_back(stage: Stage, fault: str) -> None:
    copy = sealed_copy.make()
    ends = {
        "crashes": "raise RuntimeError('!')", "nothing to do": "raise SystemExit(2)",
        "is killed": "import os; os.kill(os.getpid(), 9)",
    }  # fmt: skip
    if fault == "lost":
        shutil.rmtree(copy)
        copy.mkdir()
    else:
        (copy / "__main__.py").write_text(ends[fault])
    stage.seal(copy=str(copy))
    done = run_launcher(stage)
    assert done.returncode == 0, done.stdout
    assert "without Python" in done.stdout or f"{copy} is gone" in done.stdout
    assert "serves" in done.stdout


@needs_dash
def test_a_failed_rollback_of_the_copy_is_the_end(stage: Stage) -> None:
    """It has the more careful checks: what it leaves alone, the shell leaves alone."""
    copy = sealed_copy.make()
    (copy / "__main__.py").write_text("raise SystemExit(7)")
    stage.seal(copy=str(copy))
    done = run_launcher(stage)
    assert (done.returncode, done.stdout) == (7, "")


@needs_dash
def test_without_room_for_a_copy_the_script_is_that_of_the_shell(stage: Stage) -> None:
    path = stage.plan.rollback_dir / "rollback.sh"
    launcher.write(stage.plan, path)
    assert "find_client" in path.read_text()
    assert not launcher.without_python_path(path).exists()


def test_a_person_can_read_the_script(stage: Stage) -> None:
    text = launcher.render(stage.seal(copy="/copy"), Path("/otherwise"))
    assert len(text.splitlines()) <= 80
    assert max(map(len, text.splitlines())) <= 110


@needs_dash
@pytest.mark.parametrize("state", ["none", "alive", "interrupted"])
def test_at_boot_a_script_rolls_back_what_was_interrupted_alone(stage: Stage, state: str) -> None:
    """As the boot unit runs it where the program is gone, and no Python of it is left."""
    stage.seal(copy=str(sealed_copy.make()))
    script = sealed.site_script("local")
    script.parent.mkdir(parents=True, exist_ok=True)
    launcher.write(stage.plan, script)
    candidate = stage.sleeper(stage.plan.run_id)
    if state != "none":
        runner = stage.sleeper() if state == "alive" else (1 << 22, 5)
        records.write(Pointer(stage.plan.run_id, stage.plan.run_dir, "me", os.getuid(), *runner))
    done = run(*program_gone.or_newest_script(["/nowhere/python"], program_gone.IF_INTERRUPTED))
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("the baseline serves" in done.stdout) is (state == "interrupted")
    assert ("nothing to do" in done.stdout) is (state != "interrupted")
    assert process.alive(*candidate) is (state != "interrupted")


@needs_dash
def test_without_python_nobody_knows_what_was_interrupted(stage: Stage) -> None:
    stage.seal(copy="/gone")
    script = sealed.site_script("local")
    script.parent.mkdir(parents=True, exist_ok=True)
    launcher.write(stage.plan, script)
    done = run(*program_gone.or_newest_script(["/nowhere/python"], program_gone.IF_INTERRUPTED))
    assert done.returncode == 7
    assert f"sh {launcher.without_python_path(script)} brings the baseline back" in done.stdout


def test_a_command_of_its_own_that_runs_has_the_last_word(stage: Stage) -> None:
    for code in (0, 2, 7):
        argv = ["/bin/sh", "-c", f"exit {code}"]
        assert run(*program_gone.or_newest_script(argv, "x")).returncode == code
        assert run(*program_gone.or_script(argv, stage.root / "script")).returncode == code
    done = run(*program_gone.or_newest_script(["/nowhere/python"], "x"))
    assert done.returncode == 127
    assert "no run has sealed a script: install it again" in done.stderr


@needs_dash
def test_the_first_signal_leaves_a_rollback_and_the_second_one_ends_it(stage: Stage) -> None:
    copy = sealed_copy.make()
    (copy / "__main__.py").write_text(
        "import os, signal, sys\n"
        "got = []\n"
        "def take(number, _):\n"
        "    got.append(number)\n"
        "    os.write(1, b'got %d\\n' % number)\n"
        "    if len(got) == 2: sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, take)\n"
        "os.write(1, b'begun\\n')\n"
        "while True: signal.pause()\n"
    )
    stage.seal(copy=str(copy))
    path = stage.plan.rollback_dir / "rollback.sh"
    launcher.write(stage.plan, path)
    with subprocess.Popen([str(DASH), str(path)], stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "begun\n"
        for _ in range(2):
            script.terminate()
            assert script.stdout.readline() == "got 15\n"
        assert script.wait(60) == 7


@needs_dash
@pytest.mark.parametrize("moved", ["run", "site"])
def test_a_script_that_was_moved_finds_what_lies_beside_it(stage: Stage, moved: str) -> None:
    stage.seal(copy="/gone")
    path = stage.plan.rollback_dir / ("rollback.sh" if moved == "run" else "local.sh")
    launcher.write(stage.plan, path)
    place = stage.root / "elsewhere"
    place.mkdir()
    for script in (path, launcher.without_python_path(path)):
        script.rename(place / script.name)
    done = subprocess.run(
        [str(DASH), str(place / path.name)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_dash
@pytest.mark.parametrize("what", ["run", "site"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_home_that_was_moved_has_its_copy_its_plan_and_its_progress(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, what: str, inside: bool
) -> None:
    """The script went on without Python, of the copy that lay beside it, and wrote to nowhere."""
    home, moved = stage.root / "home", stage.root / "moved"
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    copy, run_dir = sealed_copy.make(), paths.runs_dir() / "r1"
    stage.seal(run_dir=str(run_dir), copy=str(copy))
    script = run_dir / "rollback/rollback.sh" if what == "run" else sealed.site_script("local")
    script.parent.mkdir(parents=True, exist_ok=True)
    launcher.write(stage.plan, script)
    records.write(Pointer(stage.plan.run_id, str(run_dir), "me", os.getuid(), 1 << 22, 5))
    home.rename(moved)
    monkeypatch.delenv("XDG_STATE_HOME")
    place = moved / script.relative_to(home)
    done = subprocess.run(
        [str(DASH), place.name if inside else str(place)], capture_output=True, text=True,
        timeout=120, check=False, cwd=place.parent if inside else "/",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "the baseline serves" in done.stdout
    assert "the run that was asked for" in done.stdout
    assert (moved / run_dir.relative_to(home) / "rollback/ladder.jsonl").is_file()
    assert not home.exists()


def test_the_seconds_of_a_rollback_that_a_standby_takes_over_never_run_back() -> None:
    """`0.52 s` stood above `0.00 s`: the standby counts from the byte that woke it."""
    seconds = Seconds()
    rows = [("command", 100.0, 0.0), ("command", 100.5, 0.5), ("standby", 100.6, 0.01),
            ("standby", 103.0, 2.41), ("standby", 99.0, 3.0), ("command", 104.2, 4.2)]  # fmt: skip
    shown = [seconds.of({"trigger": who, "at": at, "t": t}) for who, at, t in rows]
    assert shown == pytest.approx([0.0, 0.5, 0.6, 3.0, 3.0, 4.2])
    assert Seconds().of({}) == 0.0
    assert Seconds().of({"t": 2.5}) == 2.5


@needs_dash
def test_a_script_that_lies_alone_says_what_to_type(stage: Stage) -> None:
    stage.seal(copy="/gone")
    path = stage.plan.rollback_dir / "rollback.sh"
    launcher.write(stage.plan, path)
    launcher.without_python_path(path).unlink()
    done = run(str(DASH), str(path))
    assert done.returncode == 7
    assert "type omni-console rollback" in done.stderr


@needs_dash
def test_a_newer_run_of_the_site_is_rolled_back_by_an_older_script(stage: Stage) -> None:
    """It has the baseline down now; as without Python, it is ended first."""
    stage.seal(site_path="/etc/o’s.yaml")
    newer = replace(stage.plan, run_id="newer", run_dir=str(stage.root / "runs" / "newer"))
    newer.rollback_dir.mkdir(parents=True)
    sealed.write(newer, newer.rollback_dir / sealed.PLAN)
    runner, candidate = stage.sleeper("no"), stage.sleeper("newer")
    records.write(Pointer("newer", newer.run_dir, "me", os.getuid(), *runner, site="/etc/o’s.yaml"))
    done = run_launcher(stage)
    assert done.returncode == 0, done.stdout
    assert not process.alive(*runner), done.stdout
    assert not process.alive(*candidate), done.stdout
    assert "this user's run, newer" in done.stdout


@needs_dash
def test_a_newer_run_of_another_site_is_left_alone_by_an_older_script(stage: Stage) -> None:
    stage.seal(site_path=f"{stage.root}/a.yaml")
    runner = stage.sleeper("no")
    place = stage.root / "runs" / "b"
    place.mkdir()
    records.write(Pointer("b", str(place), "me", os.getuid(), *runner, site=f"{stage.root}/b.yaml"))
    done = run_launcher(stage)
    assert done.returncode == 0, done.stdout
    assert process.alive(*runner), done.stdout
    assert done.stdout.count("a run has begun meanwhile") == 0


# -- an upgrade in the middle of a run ------------------------------------------------------------


def test_the_command_rolls_back_by_the_code_that_began_the_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And this console would not bring the baseline back."""
    stage.seal(copy=str(sealed_copy.make()))
    monkeypatch.setattr(sealed_copy, "START", sealed_copy.START + b"# upgraded\n")
    monkeypatch.setattr(procedure, "Procedure", None)
    candidate = stage.sleeper()
    lines: list[dict[str, object]] = []
    result = command.rollback(None, False, lines.append, run_dir=stage.plan.run_dir)
    assert result.serving, lines
    assert not process.alive(*candidate)
    assert {"fence", "stop", "start", "completion", "done"} <= {line["rung"] for line in lines}


@pytest.mark.parametrize("fault", ["same version", "damaged", "ends", "hangs"])
def test_the_command_rolls_back_itself_where_the_copy_is_no_use(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    copy = sealed_copy.make()
    stage.seal(copy=str(copy))
    if fault != "same version":
        monkeypatch.setattr(sealed_copy, "START", sealed_copy.START + b"# upgraded\n")
    if fault == "damaged":
        (copy / "console/host/process.py").write_text("raise SystemExit(0)")
    if fault in ("ends", "hangs"):
        program = ("false",) if fault == "ends" else ("sleep", "600")
        monkeypatch.setattr(paths, "sealed_argv", lambda *words: program)
        monkeypatch.setattr(command, "FIRST_LINE_S", 0.5)
    started: list[str] = []
    true_argv = paths.sealed_argv
    monkeypatch.setattr(
        paths, "sealed_argv", lambda *words: (started.append(words[0]), true_argv(*words))[1]
    )
    lines: list[dict[str, object]] = []
    assert command.rollback(None, False, lines.append, run_dir=stage.plan.run_dir).serving, lines
    assert started == ([str(copy)] if fault in ("ends", "hangs") else [])
