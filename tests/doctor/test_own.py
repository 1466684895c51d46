"""The console's own directories, lock, pointers, runs and ladder, and the login that it runs in."""

import os
from pathlib import Path

import pytest

from console.checks.doctor import user
from console.checks.doctor.facts import Level
from console.cli import main
from console.common import paths
from console.host import process
from console.journal.lock import HostLock
from console.recovery.rollback.live import LIVE, Live, append
from console.recovery.rollback.records import Pointer
from tests.doctor.conftest import GONE, Look, history, on_now

RUNNING = ("run.state", {"state": "running"})


def test_who(look: Look) -> None:
    (found,) = look("console.who")
    assert (found.level, f"(uid {os.getuid()}) on " in found.detail) == (Level.OK, True)


def test_a_state_directory_that_is_not_there_yet(look: Look) -> None:
    (found,) = look("console.state")
    assert found.level is Level.OK
    assert not paths.state_dir().exists()


def test_a_state_directory_and_who_else_may_use_it(look: Look) -> None:
    run = history("20260101-a")
    paths.state_dir().chmod(0o755)
    assert look("console.state")[0].level is Level.OK
    run.path.chmod(0o750)
    (found,) = look("console.state")
    assert (found.level, "20260101-a" in found.detail) == (Level.WARNING, True)
    run.path.chmod(0o700)
    paths.state_dir().chmod(0o775)
    assert look("console.state")[0].level is (
        Level.OK if user._alone(os.getgid()) else Level.WARNING
    )
    os.chown(paths.state_dir(), -1, _another_group())
    assert look("console.state")[0].level is Level.WARNING
    paths.state_dir().chmod(0o777)
    (found,) = look("console.state")
    assert (found.level, found.hint) == (Level.WARNING, f"chmod go-w {paths.state_dir()}")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a directory away")
def test_a_state_directory_of_somebody_else(look: Look) -> None:
    paths.state_dir().mkdir()
    os.chown(paths.state_dir(), 65534, 65534)
    (found,) = look("console.state")
    assert (found.level, "uid 65534" in found.detail) == (Level.FAILED, True)


def test_the_config_directory(tmp_path: Path, look: Look) -> None:
    assert "is not there" in look("console.config")[0].detail
    (tmp_path / "config" / "omni-console").touch()
    (found,) = look("console.config")
    assert (found.level, "Not a directory" in found.detail) == (Level.WARNING, True)


def test_the_host_lock(look: Look) -> None:
    (found,) = look("console.lock")
    assert found.level is Level.OK
    assert not paths.host_lock(os.getuid()).exists(), "a doctor leaves nothing behind"
    held = HostLock()
    on_now("r7")
    try:
        (found,) = look("console.lock")
        assert (found.level, "r7 of op" in found.detail) == (Level.NOTE, True)
        assert "attach" in found.hint
    finally:
        held.release()
    assert look("console.lock")[0].level is Level.OK


def test_a_host_directory_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    monkeypatch.setenv("OMNI_HOST_DIR", "/proc")
    (found,) = look("console.lock")
    assert (found.level, "OMNI_HOST_DIR" in found.hint) == (Level.FAILED, True)


def test_pointers(tmp_path: Path, look: Look) -> None:
    assert look("console.pointer") == []
    on_now()
    assert look("console.pointer") == []
    on_now("r2", pid=GONE, directory=str(tmp_path))
    (found,) = look("console.pointer")
    assert (found.level, "omni-console resume r2" in found.hint) == (Level.WARNING, True)
    on_now("r2", pid=GONE, directory=str(tmp_path / "gone"))
    (found,) = look("console.pointer")
    assert found.hint == f"rm {paths.pointer(os.getuid())}"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to write as another user")
def test_a_pointer_of_somebody_else(look: Look) -> None:
    on_now("r2", pid=GONE)
    mine = paths.pointer(os.getuid())
    text = mine.read_text().replace(f'"uid": {os.getuid()}', '"uid": 65534')
    mine.unlink()
    paths.pointer(65534).write_text(text)
    os.chown(paths.pointer(65534), 65534, 65534)
    (found,) = look("console.pointer")
    assert (found.level, "r2 of op" in found.detail) == (Level.NOTE, True)


def test_a_run_whose_runner_lives_is_not_interrupted(look: Look) -> None:
    run = history("20260102-live", RUNNING)
    (run.path / "rollback").mkdir()
    append(Path(run.live), Live("runner", "runner", os.getpid(), _start()))
    assert [one.level for one in look("console.runs")] == [Level.OK]


def test_a_run_that_cannot_be_read(look: Look) -> None:
    run = history("20260101-a")
    Path(run.journal).write_bytes(b"not a database, and long enough to be looked at")
    history("20260102-b", ("run.state", {"state": "from another make"}))
    assert [one.level for one in look("console.runs")] == [Level.WARNING] * 2


def test_the_ladder_of_a_live_run(tmp_path: Path, look: Look) -> None:
    assert look("console.ladder") == []
    on_now("r1", directory=str(tmp_path))
    (found,) = look("console.ladder")
    assert (found.level, "r1" in found.detail) == (Level.WARNING, True)
    (tmp_path / "rollback").mkdir()
    append(tmp_path / "rollback" / LIVE, Live("ladder", "warm", os.getpid(), _start()))
    (found,) = look("console.ladder")
    assert (found.level, "r1" in found.detail) == (Level.OK, True)


def _another_group() -> int:
    """A group this process may give a directory to, that is not its user's own."""
    if os.getuid() == 0:
        return 65534
    others = [gid for gid in os.getgroups() if not user._alone(gid)]
    if not others:
        pytest.skip("this user is in no other group")
    return others[0]


def _start() -> int:
    return process.start_time(os.getpid()) or 0


def test_interpreter_and_console(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = look("login.python")
    assert (found.level, "omni-console" in found.detail) == (Level.OK, True)
    monkeypatch.setattr(user, "OLDEST_PYTHON", (9, 0))
    assert look("login.python")[0].level is Level.FAILED


LOCALES: list[tuple[dict[str, str], dict[str, str], str]] = [
    ({"LANG": "de_DE.UTF-8"}, {}, "de_DE.UTF-8"), ({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, {}, "C"),
    ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, {"LANG": "C"}, "C"), ({"LC_CTYPE": "C.UTF-8"}, {}, ""),
    ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, {"LC_CTYPE": "C.UTF-8"}, "C.UTF-8"), ({}, {}, ""),
    ({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, {}, "de_DE.UTF-8"),
]  # fmt: skip


def test_the_locale_that_the_operator_chose() -> None:
    for env, first, name in LOCALES:
        assert user.locale_of(env, first) == name


@pytest.fixture
def of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's run is on; this user has none."""
    theirs = Pointer("r9", "/r", "eve", 65534, 4321, 1, "book", "ws", 1.0)
    monkeypatch.setattr("console.journal.lock.live_runs_of_others", lambda mine: [theirs])


@pytest.mark.usefixtures("of_another")
def test_the_run_of_another_user_holds_the_host(look: Look) -> None:
    """It was "no run holds this host", where `run` refuses to start beside it."""
    (finding,) = look("console.lock")
    assert finding.level is Level.NOTE
    assert "run r9 of eve (pid 4321), book" in finding.detail


@pytest.mark.usefixtures("of_another")
@pytest.mark.parametrize("has_run", [False, True])
def test_runs_and_abort_name_the_run_of_another_user(
    has_run: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if has_run:
        history(
            "20260102-mine", ("run.end", {"exit_code": 0}), ("run.state", {"state": "succeeded"})
        )
    assert main(["runs"]) == 0
    assert "run r9 of eve (pid 4321), book" in capsys.readouterr().out
    assert main(["abort", "--reason", "late"]) != 0
    error = capsys.readouterr().err
    assert "run r9 of eve (pid 4321), book" in error
    assert "there is no run yet" not in error
