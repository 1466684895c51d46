"""Where a container's control groups are, whatever made them, and what processes hold."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from console.host import cgroup, memory
from console.host.cgroup import Cgroup, Hierarchy
from console.host.memory import GIB, Resident
from tests.waiting import some, until

ID = "ab" * 32


def group(root: Path, place: str, procs: str = "", **files: str) -> Path:
    path = root / place
    path.mkdir(parents=True)
    (path / "cgroup.procs").write_text(procs)
    for name, text in files.items():
        (path / name.replace("_", ".")).write_text(text)
    return path


@pytest.mark.parametrize(
    "place",
    [
        f"docker/{ID}",
        f"system.slice/docker-{ID}.scope",
        f"libpod_parent/libpod-{ID}",
        "user.slice/user-{uid}.slice/user@{uid}.service/user.slice/docker-" + ID + ".scope",
        "user.slice/user-{uid}.slice/user@{uid}.service/app.slice/docker.service/docker/" + ID,
    ],
)
def test_every_drivers_place_is_known(tmp_path: Path, place: str) -> None:
    path = group(tmp_path, place.format(uid=os.getuid()))
    (found,) = cgroup.find(ID, [Hierarchy(str(tmp_path))], scan=False)
    assert (found.path, found.inode, found.kind) == (str(path), path.stat().st_ino, "")
    assert found.stands
    assert cgroup.find("cd" * 32, [Hierarchy(str(tmp_path))], scan=False) == ()


@pytest.mark.parametrize(
    "word", ["", "../../etc", ID[:12], ID + "0", ID.upper(), "*" * 64, ID + "\n"]
)
def test_only_a_full_id_has_a_group(tmp_path: Path, word: str) -> None:
    group(tmp_path, "docker")
    assert cgroup.find(word, [Hierarchy(str(tmp_path))]) == ()


def test_version_two_comes_first_and_both_are_found(tmp_path: Path) -> None:
    group(tmp_path / "memory", f"docker/{ID}")
    group(tmp_path / "unified", f"docker/{ID}")
    trees = [Hierarchy(str(tmp_path / "memory"), "memory"), Hierarchy(str(tmp_path / "unified"))]
    assert [one.kind for one in cgroup.find(ID, trees, scan=False)] == ["", "memory"]


def test_mounts_of_both_versions_are_read(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
        "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,relatime,cpu,cpuacct 0 0\n"
        "cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0\n"
        "cgroup2 /sys/fs/with\\040space cgroup2 rw,nsdelegate 0 0\n"
    )
    assert cgroup.hierarchies(str(mounts)) == (
        Hierarchy("/sys/fs/with space"),
        Hierarchy("/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"),
        Hierarchy("/sys/fs/cgroup/systemd", "name=systemd"),
    )
    assert cgroup.hierarchies(str(tmp_path / "none")) == ()


def test_processes_of_groups_below_count(tmp_path: Path) -> None:
    path = group(tmp_path, f"docker/{ID}", "11\n")
    group(path, "worker/deep", "12\n13\n")
    assert cgroup.pids(str(path)) == [11, 12, 13]
    assert cgroup.pids(str(tmp_path / "gone")) == []


def test_empty_is_what_the_kernel_says_or_a_group_that_is_gone(tmp_path: Path) -> None:
    path = group(tmp_path, f"docker/{ID}", "11\n", cgroup_events="populated 1\nfrozen 0\n")
    one = Cgroup(str(path), path.stat().st_ino)
    assert not cgroup.is_empty(one)
    (path / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    assert cgroup.is_empty(one)
    old = Cgroup(str(path), path.stat().st_ino, "memory")
    assert not cgroup.is_empty(old)
    (path / "cgroup.procs").write_text("")
    assert cgroup.is_empty(old)
    (path / "cgroup.procs").write_text("11\n")
    assert cgroup.is_empty(Cgroup(str(path), 1, "memory")), "another group by that name"
    assert cgroup.is_empty(Cgroup(str(tmp_path / "gone"), 5))


def test_a_process_of_it_names_the_groups_nobody_foresaw(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("", f"/custom.slice/box-{ID}.scope/inner"), ("memory", f"/odd/{ID}"), ("cpu", "/")]
    monkeypatch.setattr(cgroup, "processes", lambda: {ID: 77})
    monkeypatch.setattr(cgroup, "paths_of", lambda pid: rows if pid == 77 else [])
    monkeypatch.setattr(
        cgroup, "inode_of", lambda path: 9 if path.startswith(("/two/custom", "/mem/odd")) else 0
    )
    trees = [Hierarchy("/two"), Hierarchy("/mem", "memory"), Hierarchy("/cpu", "cpu")]
    assert cgroup.find(ID, trees) == (
        Cgroup(f"/two/custom.slice/box-{ID}.scope", 9),
        Cgroup(f"/mem/odd/{ID}", 9, "memory"),
    )
    assert cgroup.find(ID, trees, scan=False) == ()


def test_oom_group_is_set_where_the_kernel_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = group(tmp_path, f"docker/{ID}", memory_oom_group="0")
    monkeypatch.setattr(cgroup, "hierarchies", lambda: (Hierarchy(str(tmp_path)),))
    assert cgroup.die_together(ID)
    assert (path / "memory.oom.group").read_text() == "1"
    (path / "memory.oom.group").unlink()
    assert not cgroup.die_together(ID)
    assert not (path / "memory.oom.group").exists()


HOLD = "import sys; held = bytearray(64 << 20); print('up', flush=True); sys.stdin.read()"


def test_what_a_process_holds_for_itself() -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert some(child.stdout).readline() == b"up\n"
        one = memory.resident([child.pid])
        assert 64 << 20 <= one.own <= one.total
        assert memory.resident([child.pid, child.pid]).own >= 2 * (64 << 20)
        child.kill()
        until(lambda: memory.resident([child.pid]) == Resident(0, 0), "it holds nothing any more")


def test_the_wait_grows_with_what_is_held() -> None:
    assert memory.kill_wait_s(Resident(0, 0)) == 10.0
    assert 157 <= memory.kill_wait_s(Resident(377 * GIB, 0)) <= 300, "as long as was measured"


def test_nothing_is_nobodys_container() -> None:
    assert memory.pids_of_container("") == []
    assert os.getpid() not in memory.pids_of_container("f" * 64)
