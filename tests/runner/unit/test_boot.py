"""What systemd is told: a runner as its unit, and the boot unit, which asks what was left down.

systemd itself stands in: what is asserted is the command that it would get.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from console.cli import main
from console.common import paths
from console.common.errors import Exit, HostBusy, UsageError
from console.host import systemd
from console.host.systemd import Detachment
from console.journal import events
from console.journal.run_dir import RunDir
from console.recovery.rollback import live, records
from console.recovery.rollback.progress import Result
from console.recovery.rollback.trigger import Lock, flocks
from console.runner import claim, launch
from console.runner.launch import NotStarted
from console.runner.recover import refuse_resume
from console.runner.unattended import boot
from tests.runner.unit.conftest import Bench
from tests.runner.unit.journals import BEGUN, Told, shelved


def pointed(run: RunDir, earlier: RunDir | None = None) -> None:
    """As a runner of another boot left it, which has set the earlier one aside."""
    if earlier is not None:
        pointed(earlier)
        run.rollback.mkdir()
        records.set_aside(os.getuid(), run.rollback)
    records.write(records.Pointer(run.id, str(run.path), "me", os.getuid(), 2, 3))


DOWN: Told = BEGUN
BACK: Told = [*BEGUN, ("outage", "", 0, {"down": False, "restore_s": 1.0})]
FAILED: Told = [*BEGUN, ("run.state", "", 0, {"state": "rollback_failed"})]
CASES = [
    (DOWN, True, True), (BACK, True, False), (BEGUN[:2], True, False),
    (FAILED, False, True), (BACK, False, False),
]  # fmt: skip


@pytest.mark.parametrize(("told", "points", "down"), CASES)
def test_only_an_outage_that_never_ended_counts(told: Told, points: bool, down: bool) -> None:
    run = shelved(told)
    if points:
        pointed(run)
    assert (boot.left_down() is not None) == down


def test_one_that_the_run_pointed_at_has_set_aside_counts() -> None:
    first = shelved(DOWN)
    pointed(shelved(BEGUN[:2], "20260102-000000-x-1a2b"), first)
    found = boot.left_down()
    assert found is not None
    assert found.path == first.path


@pytest.mark.parametrize("serving", [True, False])
def test_every_interrupted_run_is_rolled_back_once(
    monkeypatch: pytest.MonkeyPatch, serving: bool
) -> None:
    """And a site that is named is not started for itself: it may have been stopped on purpose."""
    first, second = shelved(DOWN), shelved(DOWN, "20260102-000000-x-1a2b")
    pointed(second, first)
    asked: list[object] = []

    def roll_back(_: object, explicit_site: bool, *more: object, **given: object) -> Result:
        asked.append((explicit_site, given["run_dir"], given["site"]))
        return Result(serving=serving or given["run_dir"] == str(first.path))

    monkeypatch.setattr("console.frontends.cli.rollback.roll_back", roll_back)
    code = main(["rollback", "--if-interrupted", "--site", "/s/named.yaml", "--json"])
    assert code == (Exit.OK if serving else Exit.ROLLBACK_FAILED)
    assert asked == [(False, str(second.path), ""), (False, str(first.path), "")]


def test_a_broken_site_file_of_one_run_keeps_no_other_from_its_rollback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = shelved(DOWN), shelved(DOWN, "20260102-000000-x-1a2b")
    pointed(second, first)
    asked: list[str] = []

    def roll_back(*_: object, run_dir: str, **given: object) -> Result:
        asked.append(run_dir)
        if run_dir == str(second.path):
            raise UsageError("the site file is broken", "/s/b.yaml: line 3", "mend it")
        return Result(serving=True)

    monkeypatch.setattr("console.frontends.cli.rollback.roll_back", roll_back)
    assert main(["rollback", "--if-interrupted"]) == Exit.USAGE, "a restart would not mend it"
    assert asked == [str(second.path), str(first.path)]
    said = capsys.readouterr()
    assert "the site file is broken\n  /s/b.yaml: line 3\n  hint: mend it" in said.err
    assert "the baseline serves" in said.out


def test_no_run_at_all_and_a_broken_journal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollback", "--if-interrupted", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nothing_to_do"] is True
    run = shelved(BACK)
    run.journal.write_bytes(b"\0" * 4096)
    assert boot.left_down() is None
    pointed(run)
    assert boot.left_down() is not None


def test_a_word_in_the_unit_file_stays_one_word() -> None:
    one = systemd.Unit(True, "ann")
    text = boot.text_of(
        systemd.Unit(False, "root"), '/s/a "b" $c %d.yaml', {"PATH": "/x y", "KEY": "s"}
    )
    assert '"/s/a \\"b\\" $$c %%d.yaml"' in text
    assert ('Environment="PATH=/x y"' in text, "KEY" in text) == (True, False)
    assert "User=ann" in boot.text_of(one, None, {})
    with pytest.raises(UsageError):
        boot.text_of(one, None, {"PATH": "a\nExecStart=b"})


def test_without_systemd_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "SYSTEMD", tmp_path / "no")
    units = tmp_path / "units"
    units.mkdir()
    monkeypatch.setattr(systemd, "SYSTEM_UNITS", units)
    assert main(["boot", "install"]) == main(["boot", "install", "--system"]) == 2
    assert main(["boot", "status"]) == 5
    assert main(["boot", "remove"]) == 0
    assert [*units.iterdir(), *tmp_path.glob("CONFIG/**/*")] == []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Stands for systemd-run and systemctl."""
    made = Mock(return_value=(0, b"", b""))
    monkeypatch.setattr(launch, "detachment", lambda: Detachment(True))
    monkeypatch.setattr(launch.children, "run", made)
    return made


@pytest.mark.parametrize(
    ("told", "acting"),
    [
        ("ActiveState=activating\nJob=12", True),  # ExecStartPre, or the wait before the next try
        ("ActiveState=active", True), ("ActiveState=inactive\nJob=12", True),
        ("ActiveState=inactive\nJob=0", False), ("ActiveState=inactive", False),
        ("ActiveState=failed", False), ("", False),
    ],
)  # fmt: skip
def test_a_unit_acts_until_systemd_says_that_it_is_over(
    asked: Mock, monkeypatch: pytest.MonkeyPatch, told: str, acting: bool
) -> None:
    monkeypatch.setattr(systemd, "installed", lambda: systemd.Unit(False, "ann"))
    asked.return_value = (0, told.encode(), b"")
    assert boot.is_acting() is acting
    asked.return_value = (1, b"", b"Failed to connect to bus")
    assert boot.is_acting() is False
    monkeypatch.setattr(systemd, "installed", lambda: None)
    assert boot.is_acting() is False


def test_the_kernels_oom_killer_leaves_the_runner_of_a_unit(asked: Mock, tmp_path: Path) -> None:
    def begun(argv: Sequence[str], *_: object, **__: object) -> tuple[int, bytes, bytes]:
        (tmp_path / "runner.word").write_text('{"ok": true}')
        return 0, b"", b""

    asked.side_effect = begun
    assert launch.launch(RunDir(tmp_path)).unit
    (call,) = asked.call_args_list
    assert {"--property=KillMode=process", "--property=OOMPolicy=continue"} <= {*call.args[0]}


@pytest.mark.parametrize(
    ("fails", "raised"),
    [(None, NotStarted), (subprocess.TimeoutExpired("systemd-run", 30), NotStarted),
     (KeyboardInterrupt(), KeyboardInterrupt)],
)  # fmt: skip
def test_what_nobody_waits_for_does_not_begin(
    asked: Mock, tmp_path: Path, fails: BaseException | None, raised: type[BaseException]
) -> None:
    begun = fails or asked.return_value
    asked.side_effect = chain([begun], repeat(asked.return_value))
    with pytest.raises(raised):
        launch.launch(RunDir(tmp_path), timeout_s=0.1)
    argv = asked.call_args.args[0]
    assert argv[:3] == ["systemctl", "--user", "kill"]
    assert argv[-1] == launch.unit_of(RunDir(tmp_path))


def test_nothing_is_started_by_a_program_whose_files_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(NotStarted, match="files of omni-console itself are gone") as refused:
        launch.launch(RunDir(tmp_path))
    assert refused.value.detail == "/nowhere/python"


def test_it_is_known_before_it_looks_for_a_rollback(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = bench.context.run, []

    def look(directory: Path) -> bool:
        for found in records.find_all():
            seen.append((found.run_id, [e.kind for e in live.read(run.live)], directory))
        return False

    monkeypatch.setattr(claim, "is_held", look)
    claim.announce(run)
    known = (run.id, ["runner"])
    assert seen[:2] == [(*known, run.rollback), (*known, paths.state_dir() / "rollback")]
    claim.withdraw(run)
    assert records.find_all() == []


def test_a_run_that_never_was_leaves_the_pointer_of_an_interrupted_one(bench: Bench) -> None:
    """Its baseline may be down, and its steps may be alive."""
    run = bench.context.run
    pointed(RunDir(Path("/runs/earlier")))
    claim.announce(run)
    assert [one.run_id for one in records.find_all()] == [run.id]
    for _ in range(2):
        claim.withdraw(run)
        assert [one.run_id for one in records.find_all()] == ["earlier"]


@pytest.mark.parametrize("planted", [False, True])
def test_a_pointer_names_the_lock_that_its_runner_holds(bench: Bench, planted: bool) -> None:
    if planted:
        paths.host_lock(os.getuid()).mkdir()
    held = claim.host_lock(patient=False)
    claim.announce(bench.context.run)
    [found] = records.find_all()
    assert (os.getpid(), found.lock) in flocks()
    held.release()
    assert (os.getpid(), found.lock) not in flocks()


@pytest.mark.parametrize("holder", ["ends", "stays", "is named"])
def test_a_run_waits_for_a_holder_without_a_name_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    """A `bisect` right behind a `rollback` was refused: that run's end was still recorded."""
    held, slept = claim.host_lock(patient=False), list[float]()
    if holder == "is named":
        claim.announce(bench.context.run)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if holder == "ends":
            held.release()

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: sum(slept))
    monkeypatch.setattr(claim, "time", clock)
    if holder == "ends":
        claim.host_lock(patient=False).release()
    else:
        with pytest.raises(HostBusy, match="another run holds this host"):
            claim.host_lock(patient=False)
        held.release()
    assert (sum(slept) >= claim.CHANGES_S, bool(slept)) == (holder == "stays", holder != "is named")


@pytest.mark.parametrize("back", [False, True])
def test_an_interrupted_run_is_pointed_at_again_after_one_in_between(
    bench: Bench, back: bool
) -> None:
    """Through two runs that are over, and not where its baseline is back."""
    first = shelved([*BEGUN, ("outage", "", 0, {"down": not back})])
    second = shelved([*BEGUN, ("outage", "", 0, {"down": False})], "20260102-000000-x-1a2b")
    pointed(second, first)
    claim.announce(bench.context.run)
    claim.leave(bench.context.run)
    assert [one.run_id for one in records.find_all()] == ([] if back else [first.id])


@pytest.mark.parametrize("whose", ["the run's", "the site's", "an earlier run's"])
def test_it_does_not_begin_beside_a_rollback(bench: Bench, tmp_path: Path, whose: str) -> None:
    run, earlier = bench.context.run, RunDir(tmp_path / "earlier")
    pointed(earlier)
    directory = {
        "the run's": run.rollback, "the site's": paths.state_dir() / "rollback",
        "an earlier run's": earlier.rollback,
    }[whose]  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    ladder = Lock(directory)
    assert ladder.taken()
    with pytest.raises(HostBusy, match="a rollback"):
        claim.announce(run)
    ladder.close()
    claim.announce(run)


@pytest.mark.parametrize(
    ("trigger", "known", "refused"),
    [("command-1", "", True), ("warm-1", "warm-0", True), ("command-1", "command-1", False),
     ("runner-1", "", False)],
)  # fmt: skip
def test_what_a_rollback_has_ended_does_not_go_on(
    bench: Bench, trigger: str, known: str, refused: bool
) -> None:
    if known:
        bench.context.record(events.Rung(trigger=known, rung="done", state="ok"))
    line = {"trigger": trigger, "rung": "done", "state": "ok", "serving": True}
    bench.context.run.ladder.write_text(json.dumps(line) + "\n")
    ended = pytest.raises(UsageError, match="a rollback has ended run")
    with ended if refused else nullcontext():
        refuse_resume(bench.context.run)


def test_the_lock_of_a_rollback_is_its_owners_alone(tmp_path: Path) -> None:
    """Whoever may open a file may hold its lock, and a rollback would wait for that."""
    (tmp_path / "lock").touch(0o644)
    Lock(tmp_path).close()
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
