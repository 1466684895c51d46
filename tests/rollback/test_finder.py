"""Which plan a rollback acts on where homes, runs and sites name different ones."""

from __future__ import annotations

import errno
import os
import pwd
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.common import paths
from console.common.errors import ConsoleError, Exit
from console.frontends.cli import rollback as cli_rollback
from console.host import process
from console.recovery.rollback import command, finder, records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.finder import Finder, SelectedPlan
from console.recovery.rollback.progress import Result
from console.recovery.rollback.sealed_plan import Candidate, SealedPlan
from console.runtime.probe import Health, health
from tests.ports import free_port
from tests.rollback.conftest import NOBODY, Stage, as_root, open_up, selected, standin
from tests.rollback.test_command import run_of_nobody
from tests.runtime.serving import in_child
from tests.waiting import until


def never() -> SealedPlan:
    raise AssertionError("there is no site to make a plan of")


BehindSudo = Callable[..., Callable[[Callable[[], SealedPlan]], list[object]]]


@pytest.fixture
def behind_sudo(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> BehindSudo:
    """Puts a user with these things at home behind sudo; what the finder selects then, and who
    this process is by that."""

    def put(uid: int, has: str = "site") -> Callable[[Callable[[], SealedPlan]], list[object]]:
        home = stage.root / "home"
        (home / ".config/omni-console").mkdir(parents=True)
        if "site" in has:
            (home / ".config/omni-console/site.yaml").touch()
        if "runs" in has:
            (home / ".local/state/omni-console/runs").mkdir(parents=True)
        for path in (home, *home.rglob("*")):
            os.chown(path, uid, uid)
        open_up(stage.root)
        entry, real = SimpleNamespace(pw_name="behind", pw_gid=uid, pw_dir=str(home)), pwd.getpwuid
        monkeypatch.setattr(finder.pwd, "getpwuid", lambda one: entry if one == uid else real(one))
        monkeypatch.setattr(os, "initgroups", lambda *_: None)
        monkeypatch.setenv("SUDO_UID", str(uid))

        def find(seal: Callable[[], SealedPlan]) -> list[object]:
            found = Finder(seal, False, print).find()
            return [found and found.plan.site_name, os.getuid()]

        return find

    return put


@as_root
@pytest.mark.parametrize("root_has_one", [True, False])
@pytest.mark.parametrize("user_has", ["site and runs", "site", "runs"])
def test_whose_site_counts_is_asked_of_the_user_behind_sudo(
    stage: Stage, behind_sudo: BehindSudo, root_has_one: bool, user_has: str
) -> None:
    """Root's own home says nothing about the user that root becomes."""
    if root_has_one:
        stage.usual_site()
    find, plan = behind_sudo(NOBODY, user_has), stage.of_site(site_name="theirs")
    own = "site" in user_has
    found = in_child(lambda: find((lambda: plan) if own else never))
    assert found == ["theirs" if own else None, NOBODY]


@as_root
def test_the_directories_that_sudo_passes_on_are_that_users(
    stage: Stage, behind_sudo: BehindSudo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `sudo -E` root would act on them as root, and leave files of root's in them."""
    find, plan = behind_sudo(NOBODY, "nothing"), stage.of_site(site_name="theirs")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(stage.root / "theirs"))
    stage.usual_site()
    for path in ((own := stage.root / "theirs"), *own.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    assert in_child(lambda: find(lambda: plan)) == ["theirs", NOBODY]


@as_root
@pytest.mark.parametrize("root_has_site", [True, False])
@pytest.mark.parametrize("is_on", [True, False])
def test_another_users_run_ends_first_for_a_user_behind_sudo_who_has_none_on(
    stage: Stage, behind_sudo: BehindSudo, monkeypatch: pytest.MonkeyPatch, root_has_site: bool,
    is_on: bool,
) -> None:  # fmt: skip
    """The rollback then restores the baseline of the user behind sudo."""
    if root_has_site:
        stage.usual_site()
    find, plan = behind_sudo(2222), stage.of_site(site_name="mine")
    run_of_nobody(stage, holds=is_on)
    first = rolled_back(monkeypatch)
    assert in_child(lambda: [*find(lambda: plan), first]) == ["mine", 2222, ["theirs"]]


def rolled_back(monkeypatch: pytest.MonkeyPatch, well: bool = True) -> list[str]:
    """The runs that other users' own rollbacks have ended."""
    first: list[str] = []

    def roll_back_first(one: records.Pointer, _: object) -> bool:
        first.append(one.run_id)
        return well

    monkeypatch.setattr(records, "roll_back_first", roll_back_first)
    return first


def pointed(stage: Stage, uid: int, run: str, **more: Any) -> None:
    os.chown(stage.point(uid=uid, run_id=run, **more), uid, uid)


@as_root
def test_a_forged_pointer_hides_no_run_of_another_user(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither root nor a user behind sudo has anything: all that is interrupted comes back."""
    pointed(stage, NOBODY, "theirs", started_at=5.0)
    pointed(stage, 2222, "forged", started_at=4e9)
    monkeypatch.setattr(finder, "become", lambda _: None)
    first, found = rolled_back(monkeypatch, well=False), Finder(None, False, print)
    monkeypatch.setattr(found, "_select_for", lambda one, _: one.run_id)
    assert found.find() == "theirs"
    assert first == ["forged"]
    monkeypatch.setattr(command, "Finder", lambda *_: found)
    monkeypatch.setattr(found, "find", lambda: None)
    result = command.rollback(None, False, None)
    assert result.exit_code == Exit.ROLLBACK_FAILED, (
        "what another user's rollback did not do counts"
    )
    assert "run forged" in result.detail


@as_root
def test_a_forged_pointer_makes_no_failure_of_a_baseline_that_serves(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointed(stage, NOBODY, "forged")
    rolled_back(monkeypatch, well=False)
    stage.usual_site()
    stage.start_baseline()
    until(lambda: health(stage.plan.baseline.url)[0] is Health.SERVING, "it serves")
    result = command.rollback(lambda: stage.of_site(), False, None)
    assert (result.exit_code, result.nothing_to_do) == (Exit.OK, True)
    assert "not rolled back: run forged of nobody" in result.detail


@as_root
@pytest.mark.parametrize("over", [None, "theirs", "mine"])
def test_of_two_interrupted_runs_of_root_and_the_user_behind_sudo_both_come_back(
    stage: Stage, behind_sudo: BehindSudo, monkeypatch: pytest.MonkeyPatch, over: str | None
) -> None:
    """One that is over is left alone: clients may be meant to stay at its candidate."""
    find, plan = behind_sudo(2222), stage.of_site(site_name="mine")
    stage.point(over=over == "mine")
    pointed(stage, 2222, "theirs", over=over == "theirs")
    first = rolled_back(monkeypatch)
    _, uid, runs = in_child(lambda: [*find(lambda: plan), first])
    assert (uid, runs) == (2222 if over == "mine" else 0, [] if over else ["theirs"])


@as_root
def test_root_finds_a_pointer_whose_usual_place_is_blocked(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointed(stage, 2222, "planted")
    home = SimpleNamespace(pw_dir=str(stage.root / "home"))
    monkeypatch.setattr(records.pwd, "getpwuid", lambda _: home)
    own = paths.own_host_dir(stage.root / "home/.local/state/omni-console") / "pointer.json"
    own.parent.mkdir(parents=True)
    Path(paths.pointer(2222)).rename(own)
    paths.pointer(2222).touch()  # root's, so it counts for nothing
    assert [one.run_id for one in records.find_all()] == ["planted"]


@as_root
@pytest.mark.parametrize("odd", ["²", "-1", "99999999999", "x"])
def test_an_odd_sudo_uid_is_nobody(stage: Stage, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    monkeypatch.setenv("SUDO_UID", odd)
    stage.point()
    assert selected(never).plan == stage.plan


@as_root
@pytest.mark.parametrize("reached", [True, False])
def test_root_acts_itself_where_the_user_behind_sudo_may_not_use_the_engine(
    stage: Stage, behind_sudo: BehindSudo, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    find, socket = behind_sudo(NOBODY), stage.root / "docker.sock"
    site = stage.root / "home/.config/omni-console/site.yaml"
    base = replace(stage.plan.baseline, kind="container", container_name="b", process=None)
    sealed.write(
        replace(stage.plan, site_path=str(site), baseline=base),
        paths.runs_dir() / "r/rollback/plan.json",
    )
    socket.touch()
    socket.chmod(0o666 if reached else 0o660)
    monkeypatch.setattr(finder, "DEFAULT_SOCKET", str(socket))
    assert in_child(lambda: find(lambda: stage.plan))[1] == (NOBODY if reached else 0)


def test_a_run_that_ended_without_its_baseline_is_the_one_to_roll_back(stage: Stage) -> None:
    """That run comes before the default site's newest plan, with what its site file says now."""
    other = replace(stage.plan, run_id="newer", site_path=str(stage.usual_site()), sealed_at=9e9)
    sealed.write(other, paths.runs_dir() / "newer/rollback/plan.json")
    site = stage.root / "site.yaml"
    site.touch()
    stage.seal(site_path=str(site), sealed_at=9e9)
    stage.point()
    records.mark_over(stage.plan.run_id)
    made = replace(stage.plan.baseline, name="made")
    now = stage.of_site(baseline=made, candidates=())

    def again() -> SelectedPlan:
        return selected(lambda: other, False, print, lambda path: replace(now, site_path=path))

    assert again().plan == stage.plan
    stage.seal(sealed_at=1.0, candidates=(Candidate("cand", "process"),))
    found = again()
    assert found.plan == replace(stage.plan, baseline=made), "what the run has left is known"
    assert found.anew, "the run's standby has the earlier plan"


@pytest.mark.parametrize("points", [False, True])
def test_the_run_that_a_reboot_interrupted_is_the_one_to_roll_back(
    stage: Stage, points: bool
) -> None:
    other = replace(stage.plan, run_id="newer")
    sealed.write(other, paths.runs_dir() / "newer/rollback/plan.json")
    if points:
        stage.point(run_id="newer", run_dir=str(paths.runs_dir() / "newer"))
    assert selected(never, run_dir=stage.plan.run_dir).plan.run_id == stage.plan.run_id


@pytest.mark.parametrize("broken", ["listdir", "stat", "open"])
def test_a_disk_that_gives_errors_hides_one_source_and_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    stage.usual_site()
    runs = paths.runs_dir()
    sealed.write(stage.plan, runs / "r/rollback/plan.json")
    real = getattr(os, broken)

    def failing(path: Any, *more: Any, **named: Any) -> Any:
        if str(path).startswith(str(runs)):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path, *more, **named)

    monkeypatch.setattr(os, broken, failing)
    assert selected(lambda: stage.of_site(site_name="mine")).plan.site_name == "mine"


def broken() -> SealedPlan:
    raise ConsoleError("the site file cannot be used")


def other_site(stage: Stage) -> tuple[Path, SealedPlan]:
    """A site file that is asked for, and its plan; the pointer names a run of another site."""
    stage.seal(site_name="theirs", site_path=str(stage.root / "theirs.yaml"))
    asked = stage.root / "asked.yaml"
    asked.touch()
    return asked, stage.of_site(site_name="asked", site_path=str(asked))


def test_a_site_that_is_asked_for_comes_before_what_a_run_left_behind_on_another(
    stage: Stage,
) -> None:
    asked, mine = other_site(stage)
    stage.point(site=stage.plan.site_path, over=True)
    notes: list[str] = []
    found = selected(lambda: mine, True, notes.append, site=str(asked))
    assert (found.plan, found.first) == (mine, False)
    assert any(f"omni-console rollback --site {stage.plan.site_path}" in note for note in notes)
    pointed = records.read(os.getuid())
    assert pointed is not None
    assert pointed.run_id == stage.plan.run_id, "the next rollback of its own site finds it"


@pytest.mark.parametrize("over", [True, False])
def test_what_a_run_of_this_site_set_aside_at_another_stays_if_it_is_over(
    stage: Stage, over: bool
) -> None:
    """A rollback ends this site's run first, and then what was interrupted before it: clients that
    are meant to stay at a candidate of another site are not that."""
    asked, _ = other_site(stage)
    stage.point(site=stage.plan.site_path, over=over)
    words = finder.stays_at_other_site(stage.plan.run_dir, str(asked))
    assert (f"omni-console rollback --site {stage.plan.site_path}" in words) is over
    assert finder.stays_at_other_site(stage.plan.run_dir, str(asked), automatic=True)
    assert not finder.stays_at_other_site(stage.plan.run_dir, stage.plan.site_path)


def test_a_restore_by_the_watch_rolls_back_no_run_of_another_site_that_no_pointer_names(
    stage: Stage,
) -> None:
    asked, _ = other_site(stage)
    assert finder.stays_at_other_site(stage.plan.run_dir, str(asked), automatic=True)
    assert not finder.stays_at_other_site(stage.plan.run_dir, str(asked))
    assert not finder.stays_at_other_site(stage.plan.run_dir, stage.plan.site_path, automatic=True)
    assert not finder.stays_at_other_site("/nowhere", str(asked), automatic=True)


def test_the_rollback_of_one_of_two_sites_leaves_the_finished_cutover_of_the_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both serve on this machine; the later run has set the earlier one's pointer aside."""
    ours, theirs = stage.root / "our site.yaml", stage.root / "their site.yaml"
    stage.seal(site_name="theirs", site_path=str(theirs))
    stage.point(over=True, site=str(theirs))
    clients_at = stage.recorded("process", "cand")
    plan = stage.plan
    port, run = free_port(), stage.root / "runs" / "later"
    base = replace(
        plan.baseline, url=f"http://127.0.0.1:{port}", process=standin(port),
        records_dir=str(paths.records_dir("ours")), log=str(stage.root / "ours.log"),
    )  # fmt: skip
    later = replace(
        plan, run_id="later", run_dir=str(run), baseline=base, site_name="ours",
        site_path=str(ours),
    )  # fmt: skip
    (run / "rollback").mkdir(parents=True)
    sealed.write(later, run / "rollback" / sealed.PLAN)
    records.set_aside(os.getuid(), run / "rollback")
    records.write(records.Pointer("later", str(run), "me", os.getuid(), 1, 1, started_at=2.0))
    left = iter([plan.run_dir])
    monkeypatch.setattr(cli_rollback, "_interrupted", lambda done: next(left, None))
    monkeypatch.setattr(cli_rollback, "_left_down", lambda run_dir: True)
    monkeypatch.setattr(
        cli_rollback, "_site_plan", lambda path: later if path == str(ours) else plan
    )
    given = SimpleNamespace(rehearse=False, if_interrupted=False, by="person", json=False)
    try:
        given.site = str(ours)
        assert cli_rollback.rollback(given) == 0  # type: ignore[arg-type]
        said = capsys.readouterr().out
        assert health(base.url)[0] is Health.SERVING
        assert process.alive(*clients_at)
        assert stage.baseline_process() is None
        assert f"omni-console rollback --site '{theirs}' ends it" in said
        given.site = str(theirs)
        stage.point(over=True, site=str(theirs))
        assert cli_rollback.rollback(given) == 0  # type: ignore[arg-type]
        assert not process.alive(*clients_at)
        assert stage.baseline_process() is not None
        assert health(base.url)[0] is Health.SERVING, "the first site's baseline stays"
    finally:
        started = process.read_record(Path(base.records_dir), base.name)
        if started is not None:
            process.stop_group(*started, grace_s=0.0)


def test_the_same_site_by_another_path_is_the_runs_own(stage: Stage) -> None:
    asked, mine = other_site(stage)
    stage.point(site=stage.plan.site_path)

    for seal in (lambda: replace(mine, site_name="theirs"), broken):
        assert selected(seal, True, print, site=str(asked)).plan == stage.plan
    asked.unlink()
    asked.symlink_to(stage.plan.site_path)
    assert selected(never, True, print, site=str(asked)).plan == stage.plan


def test_two_sites_of_one_name_are_two(stage: Stage) -> None:
    asked, mine = other_site(stage)
    stage.point(site=stage.plan.site_path)
    mine = replace(mine, site_name="theirs", baseline=replace(mine.baseline, url="http://[::1]:9"))
    assert selected(lambda: mine, True, print, site=str(asked)).first


@pytest.mark.parametrize(("theirs", "code"), [(True, Exit.OK), (False, Exit.ROLLBACK_FAILED)])
@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("lost", [True, False])
def test_a_run_in_its_outage_at_another_site_is_rolled_back_first(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, alive: bool, lost: bool, theirs: bool, code: Exit
) -> None:
    """The run in its outage holds the host; the result counts for the baselines of both sites."""
    asked, mine = other_site(stage)
    stage.point(site=stage.plan.site_path, alive=alive)
    if lost:
        pid, start = stage.sleeper("no") if alive else (1, 1)
        stage.point(site=stage.plan.site_path, pid=pid, start=start)
        (stage.plan.rollback_dir / sealed.PLAN).unlink()
        sealed.write(stage.plan, paths.state_dir() / "rollback/theirs.json")
    rolled_back: list[str] = []

    def roll_back(one: SelectedPlan, *_: object) -> Result:
        site = one.plan.site_name
        rolled_back.append(site)
        return Result(theirs or site == "asked", detail="what there is to say")

    monkeypatch.setattr(command, "_run", roll_back)
    result = command.rollback(lambda: mine, True, None, site=str(asked))
    assert rolled_back == ["theirs", "asked"]
    assert result.exit_code == code
    assert ("theirs" in result.detail) is not theirs


@pytest.mark.parametrize("known", [True, False])
def test_a_run_at_another_site_than_a_broken_one_that_is_asked_for_comes_first(
    stage: Stage, known: bool
) -> None:
    """The newest plan that was sealed of the broken file says which site it is."""
    asked, mine = other_site(stage)
    stage.point(site=stage.plan.site_path)
    if known:
        sealed.write(mine, paths.state_dir() / "rollback/asked.json")
    found = selected(broken, True, print, site=str(asked))
    assert (found.plan, found.first) == (stage.plan, known)


@pytest.mark.parametrize("run_is_there", [True, False])
def test_a_site_that_is_asked_for_and_broken_has_the_plan_that_was_sealed_of_it(
    stage: Stage, run_is_there: bool
) -> None:
    asked, mine = other_site(stage)
    run = paths.runs_dir() / "mine"
    mine = replace(mine, run_id="mine", run_dir=str(run))
    sealed.write(stage.plan, paths.runs_dir() / "newer/rollback/plan.json")
    asked.unlink()
    notes: list[str] = []

    with pytest.raises(ConsoleError, match="cannot be used"):
        selected(broken, True, notes.append, site=str(asked))
    sealed.write(mine, paths.state_dir() / "rollback/asked.json")
    if run_is_there:
        sealed.write(mine, run / "rollback/plan.json")
    found = selected(broken, True, notes.append, site=str(asked))
    run_dir = str(run) if run_is_there else ""
    assert found.plan == replace(mine.name_first, run_dir=run_dir)
    words = ("no plan can be made", "the site file cannot be used")
    assert any(all(word in note for word in words) for note in notes)


# -- a run of another site that goes on --------------------------------------------------------


def rolled_back_sites(
    monkeypatch: pytest.MonkeyPatch, during: Callable[[], object] = lambda: None
) -> list[str]:
    """The sites that a command rolls back; `during` happens in each rollback."""
    sites: list[str] = []

    def roll_back(chosen: SelectedPlan, *_: object) -> Result:
        sites.append(chosen.plan.site_name)
        during()
        return Result(serving=True)

    monkeypatch.setattr(command, "_run", roll_back)
    return sites


def in_soak(stage: Stage, **changes: Any) -> None:
    """The run that the pointer names is beside its baseline, which serves."""
    if stage.baseline_process() is None:
        stage.start_baseline()
    stage.until_it_is()
    stage.point(site=stage.plan.site_path, **changes)


@pytest.mark.parametrize(("alive", "words"), [(True, "goes on"), (False, "is left alone")])
def test_a_run_of_another_site_goes_on_while_its_baseline_serves(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, alive: bool, words: str
) -> None:
    asked, mine = other_site(stage)
    in_soak(stage, alive=alive)
    sites, lines = rolled_back_sites(monkeypatch), stage.lines
    result = command.rollback(
        lambda: mine, True, lines.append, site=str(asked), left_down=lambda run_dir: False
    )
    assert (sites, result.serving) == (["asked"], True)
    run = stage.plan.run_id
    assert f"run {run} of site theirs {words}: its baseline serves" in stage.said("plan", "note")
    pointed = records.read(os.getuid())
    assert pointed is not None
    assert process.alive(pointed.pid, pointed.start) is alive


@pytest.mark.parametrize("doubt", ["journal", "unknown", "down", "exclusive"])
def test_a_run_of_another_site_that_may_be_in_its_outage_is_still_rolled_back_first(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, doubt: str
) -> None:
    """Journal and baseline both have to say that it is not; memory for one alone is another doubt.
    The emergency key of a console knows no journal."""
    asked, mine = other_site(stage)
    stage.seal(exclusive=doubt == "exclusive")
    if doubt == "down":
        stage.point(site=stage.plan.site_path, alive=True)
    else:
        in_soak(stage, alive=True)
    sites = rolled_back_sites(monkeypatch)
    left_down = None if doubt == "unknown" else lambda run_dir: doubt == "journal"
    command.rollback(lambda: mine, True, None, site=str(asked), left_down=left_down)
    assert sites == ["theirs", "asked"]


def test_a_run_of_this_site_is_rolled_back_though_its_baseline_serves(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.seal(site_name="mine", site_path=str(stage.usual_site()))
    in_soak(stage, alive=True)
    sites = rolled_back_sites(monkeypatch, lambda: records.clear(stage.plan.run_id))
    for site in (stage.plan.site_path, ""):
        in_soak(stage, alive=True)
        command.rollback(
            stage.of_site, bool(site), None, site=site, left_down=lambda run_dir: False
        )
    assert sites == ["mine", "mine"]


def test_a_run_of_another_site_that_is_just_starting_goes_on(stage: Stage) -> None:
    asked, mine = other_site(stage)
    (stage.plan.rollback_dir / sealed.PLAN).unlink()
    pid, start = stage.sleeper("no")
    stage.point(site=stage.plan.site_path, pid=pid, start=start)
    found = selected(
        lambda: mine, True, print, lambda path: stage.plan, site=str(asked),
        left_down=lambda run_dir: False,
    )  # fmt: skip
    assert found.plan.site_name == "asked"
    assert process.alive(pid, start)


@pytest.mark.parametrize("automatic", [True, False])
def test_a_run_of_another_site_that_begins_during_a_rollback_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, automatic: bool
) -> None:
    asked, mine = other_site(stage)
    sites = rolled_back_sites(monkeypatch, lambda: in_soak(stage, alive=True))
    result = command.rollback(
        lambda: mine, True, None, site=str(asked), left_down=lambda run_dir: False,
        automatic=automatic,
    )  # fmt: skip
    assert (sites, result.serving) == (["asked"], True)


@pytest.mark.parametrize("named", [True, False])
def test_an_automatic_restore_ends_no_live_run_of_another_site(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Its outage takes the other baseline away, and its candidate the memory: the restore waits.
    A site of the same address is in that outage itself."""
    asked, mine = other_site(stage)
    elsewhere = replace(mine, baseline=replace(mine.baseline, url="http://127.0.0.1:9"))
    stage.point(site=stage.plan.site_path, alive=True)
    sites = rolled_back_sites(monkeypatch)
    given: dict[str, Any] = {"site": str(asked) if named else "", "automatic": True}
    with pytest.raises(ConsoleError, match="not restored beside a run of another site"):
        command.rollback(lambda: elsewhere, named, None, left_down=lambda run_dir: True, **given)
    assert sites == []
    command.rollback(lambda: mine, named, None, left_down=lambda run_dir: True, **given)
    assert sites[:1] == ["theirs"]
