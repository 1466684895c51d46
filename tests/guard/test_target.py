"""Who may be killed: recorded identities; never baseline, protected services or ourselves."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from console.host import cgroup, process
from console.host.cgroup import Hierarchy
from console.recovery.guard.config import GuardConfig
from console.recovery.guard.kill.targets import Deny, Target, deny_of, refreshed, refusal, sort_out
from console.recovery.rollback.live import Live
from tests.guard.conftest import ID, OTHER, Den, line, made_up
from tests.waiting import until

NONE: tuple[Hierarchy, ...] = ()


def container(identity: str = ID, name: str = "cand", kind: str = "container") -> Live:
    return Live(kind, name, container=identity)


def test_processes_and_steps_are_found_by_pid_and_start(lair: Den) -> None:
    one, step, (pid, start) = lair.sleeper(), lair.sleeper(), lair.sleeper()
    entries = [line("process", "cand", one), line("step", "build", step)]
    found = sort_out([*entries, line("process", "cand", (pid, start - 1))], Deny(), NONE)[0]
    assert [(t.kind, t.name, t.pid, t.start) for t in found] == [
        ("process", "cand", *one), ("step", "build", *step)
    ]  # fmt: skip
    assert not any(target.pending for target in found)


@pytest.mark.parametrize("cookie", ["", "OMNI_RUN"])
def test_what_is_older_than_the_run_has_to_be_a_runs(cookie: str) -> None:
    """A wrong record must not cost somebody else's process."""
    env = {"PATH": os.environ["PATH"]} | ({cookie: "of before"} if cookie else {})
    with subprocess.Popen(["sleep", "600"], start_new_session=True, env=env) as child:
        start = process.start_time(child.pid) or 0
        until(Path(f"/proc/{child.pid}/environ").read_bytes, "the kernel has set its environment")
        entry = line("process", "cand", (child.pid, start))
        first = sort_out([entry], Deny(since=start), NONE)[0]
        found, refused = sort_out([entry], Deny(since=start + 1), NONE)
        child.kill()
    assert (len(first), len(found), len(refused)) == (1, int(bool(cookie)), int(not cookie))


@pytest.mark.parametrize("run", ["", "another"])
def test_a_group_without_its_leader_has_to_be_this_runs(run: str, lair: Den) -> None:
    """Every daemon is in such a group, and may have got the number of an entry of long ago."""
    body = "import os\nif os.fork(): os._exit(0)\nprint('left', os.getpid(), flush=True)\n"
    pid, start = lair.spawn(body + "import time; time.sleep(600)")
    until(lambda: lair.said("left") and process.stat(pid) is None, "its leader is gone")
    entry = line("process", "cand", (pid, start))
    assert sort_out([entry], Deny(run=run), NONE)[0] == ()
    (target,) = sort_out([entry], Deny(run=lair.run_id), NONE)[0]
    assert target.run == lair.run_id


def test_one_look_at_all_processes_is_enough_for_any_number(
    lair: Den, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [line("process", "cand", lair.sleeper()) for _ in range(3)]
    entries += [Live("container", "old", container=f"{number:064x}") for number in range(9)]
    listings = []
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listings.append(path) or listed(path))
    found = sort_out(entries, Deny(), NONE)[0]
    assert sum(target.pending for target in found) == 9
    assert len(found) == 12
    assert listings == ["/proc", "/proc"]


def test_a_container_without_a_group_is_pending_and_found_when_it_starts(tmp_path: Path) -> None:
    trees = (Hierarchy(str(tmp_path)),)
    (target,) = sort_out([container()], Deny(), trees)[0]
    assert target.pending
    assert refreshed(target, trees) is target
    made_up(tmp_path)
    found = refreshed(target, trees)
    (group,) = found.cgroups
    assert (found.pending, group.inode) == (False, (tmp_path / "docker" / ID).stat().st_ino)
    anew = replace(found, cgroups=(replace(group, inode=group.inode + 1),))
    assert anew.pending, "a group that was made anew is another"
    assert refreshed(anew, trees) == found


def test_what_is_no_full_id_is_no_container(tmp_path: Path) -> None:
    trees = made_up(tmp_path)
    for word in ("x", "..", "baseline", ID[:12], ID + "/..", "../" + ID):
        assert sort_out([container(word)], Deny(), trees) == ((), ()), word


def test_only_what_a_run_started_is_a_target(lair: Den) -> None:
    for kind in ("runner", "ladder", "sentinel", "something-new"):
        entries = [line(kind, "x", lair.sleeper()), container(kind=kind)]
        assert sort_out(entries, Deny(), NONE) == ((), ()), kind


def test_a_forged_line_does_not_reach_the_baselines_container(tmp_path: Path) -> None:
    trees = made_up(tmp_path)
    for word in (ID, ID[:12], ID[:40]):
        targets, refused = sort_out([container()], Deny((word,)), trees)
        assert (targets, len(refused)) == ((), 1), word
    assert len(sort_out([container()], Deny(("ab",)), trees)[0]) == 1, "a name, and no id"


def test_a_service_may_be_called_like_a_container_that_is_denied(tmp_path: Path, lair: Den) -> None:
    """Only the container is protected: the service is something else, and has to be stoppable."""
    entries = [container(ID, "qdrant"), line("process", "qdrant", lair.sleeper())]
    targets, refused = sort_out(entries, Deny(("qdrant", OTHER)), made_up(tmp_path))
    assert (len(targets), refused) == (2, ())


def test_a_forged_line_does_not_reach_the_baselines_process(lair: Den) -> None:
    base = lair.spawn(
        "import os, time\n"
        "child = os.fork()\n"
        "if not child: print('child', os.getpid(), flush=True)\n"
        "time.sleep(600)"
    )
    until(lambda: lair.said("child"), "it has said so")
    (child,) = lair.said("child")
    deny = Deny((), (base,))
    for who in (base, (child, process.start_time(child) or 0)):
        targets, refused = sort_out([line("process", "cand", who)], deny, NONE)
        assert (targets, len(refused)) == ((), 1)
    assert {base[0], child} <= deny.pids()


def test_this_process_its_ancestors_and_init_are_denied(lair: Den) -> None:
    for pid in (os.getpid(), os.getppid(), 1):
        start = process.start_time(pid) or 0
        assert refusal(Target("process", "x", pid=pid, start=start), Deny(), NONE), pid
    assert {os.getpid(), os.getppid(), 1} <= Deny().pids()


def test_a_pid_of_the_deny_list_that_is_anothers_by_now_denies_nobody(lair: Den) -> None:
    pid, start = lair.sleeper()
    assert pid not in Deny((), ((pid, start - 5),)).pids()
    assert len(sort_out([line("process", "x", (pid, start))], Deny((), ((pid, 1),)), NONE)[0]) == 1


def test_a_group_in_which_a_spared_one_runs_is_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container in a container: killing the outer one kills the inner one as well."""
    trees = made_up(tmp_path)
    for inner, denied in ((f"/docker/{ID}/docker/{OTHER}", 1), (f"/docker/{ID}x", 0)):
        monkeypatch.setattr(cgroup, "paths_of", lambda pid, inner=inner: [("", inner)])
        targets, refused = sort_out([container()], Deny(), trees)
        assert (len(targets), len(refused)) == (1 - denied, denied)


def test_the_sheet_with_runner_and_ladder_makes_the_deny_list(tmp_path: Path) -> None:
    config = GuardConfig("r", str(tmp_path), "", spare=("baseline", ID, ""), spare_pids=((7, 70),),
                  runner=(8, 80))  # fmt: skip
    deny = deny_of(config, [line("ladder", "warm", (9, 90)), line("process", "cand", (10, 100))])
    assert deny.spare == ("baseline", ID)
    assert set(deny.spare_pids) == {(7, 70), (8, 80), (9, 90)}
    assert deny.since == 80
    resumed = deny_of(config, [line("runner", "", (3, 30)), line("runner", "", (8, 80))])
    assert resumed.since == 30, "what an earlier runner started is the run's"
