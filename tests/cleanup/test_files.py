"""Downloads, runs and layers: what may go, what stays and why, and what it frees."""

import json
import mmap
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import HostBusy, UsageError
from console.config.site.site import Site
from console.host import ports, process
from console.host.process import ProcessSpec
from console.journal.lock import HostLock
from console.models.hub import local_files
from console.recovery.rollback import live
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.sealed_plan import Baseline, Candidate, SealedPlan
from console.runner.cleanup.clean import remove, survey
from console.runner.cleanup.leftover import Leftover, Spared, Stored, together
from tests.children import running
from tests.cleanup.conftest import Attic
from tests.ports import free_port
from tests.waiting import some, until


def one(site: Site, kind: str) -> Leftover:
    [found] = [item for item in survey(site).items if item.kind == kind]
    return found


def gone(site: Site, *ids: str) -> list[int | None]:
    return [done.freed for done in remove(site, list(ids))]


def left(top: Path) -> set[str]:
    return {str(p.relative_to(top)) for p in top.rglob("*")} if top.exists() else set()


def test_a_download_goes_with_what_it_brought_and_nothing_else(attic: Attic) -> None:
    target = attic.root / "big" / "kimi-k2"
    target.mkdir(parents=True)
    (target / "notes.txt").write_text("the operator's own")
    attic.download("big/kimi-k2", {"q3/a-00001.gguf": 4000, "config.json": 50})
    hidden = target / ".cache/huggingface/download/q3"
    hidden.mkdir(parents=True)
    (hidden / "a-00001.gguf.metadata").write_text("etag")
    site = attic.site()
    found = one(site, "download")
    assert (found.bytes, found.where, found.stays) == (4050, str(target), "")
    assert gone(site, found.id) == [4050]
    assert left(target) == {"notes.txt"}
    assert local_files.every_taken() == []
    [line] = (attic.root / "state/omni-console/clean.jsonl").read_text().splitlines()
    assert found.id in line


def test_what_was_there_before_is_not_the_downloads(attic: Attic) -> None:
    target = attic.root / "d-words"
    target.mkdir()
    (target / "mine.gguf").write_bytes(b"w" * 10)
    attic.download("d-words", {"mine.gguf": 10, "theirs.gguf": 20})
    site = attic.site()
    assert one(site, "download").bytes == 20
    gone(site, one(site, "download").id)
    assert left(target) == {"mine.gguf"}


def test_a_second_download_into_it_is_the_same_record(attic: Attic) -> None:
    target = attic.download("d-words", {"a.gguf": 10})
    attic.download("d-words", {"a.gguf": 10, "b.gguf": 5})
    [record] = local_files.every_taken()
    assert (record.target, record.files) == (str(target), {"a.gguf": 10, "b.gguf": 5})


def test_a_file_that_changed_or_became_a_link_is_not_taken(attic: Attic) -> None:
    target = attic.download("d-words", {"a.gguf": 10, "b.gguf": 10, "c.gguf": 10})
    (target / "a.gguf").write_bytes(b"another")
    (target / "b.gguf").unlink()
    precious = attic.root / "precious"
    precious.write_bytes(b"w" * 10)
    (target / "b.gguf").symlink_to(precious)
    site = attic.site()
    found = one(site, "download")
    assert found.bytes == 10
    assert "2 more" in found.what
    gone(site, found.id)
    assert left(target) == {"a.gguf", "b.gguf"}
    assert precious.exists()


@pytest.mark.parametrize("name", ["../precious", "/etc/hostname", "sub/../../precious"])
def test_a_record_cannot_reach_outside(attic: Attic, name: str) -> None:
    precious = attic.root / "precious"
    precious.write_bytes(b"w" * 10)
    target = attic.root / "d-words"
    (target / "sub").mkdir(parents=True)
    taken = local_files.Taken(str(target), "org/x", {name: 10})
    local_files.directory().mkdir(parents=True)
    record = local_files.directory() / f"{taken.key}.json"
    record.write_text(json.dumps(asdict(taken)))
    assert [i for i in survey(attic.site()).items if i.kind == "download"] == []
    assert precious.exists()


def test_a_directory_that_is_a_link_reaches_nowhere(attic: Attic) -> None:
    target = attic.download("d-words", {"sub/a.gguf": 10})
    elsewhere = attic.root / "elsewhere"
    (target / "sub").rename(elsewhere)
    (target / "sub").symlink_to(elsewhere)
    assert [i for i in survey(attic.site()).items if i.kind == "download"] == []


@pytest.mark.parametrize(
    "baseline",
    [
        {"models": ["big/kimi-k2/a.gguf"]},
        {"models": ["big/kimi-k2"]},
        {"models": ["big"]},
        {"args": ["-m", "/models/kimi-k2/a.gguf"]},
        {"process": {"argv": ["serve", "--model=/elsewhere/a.gguf"]}},
    ],
)
def test_what_the_baseline_names_stays(attic: Attic, baseline: dict[str, Any]) -> None:
    target = attic.download("big/kimi-k2", {"a.gguf": 10, "config.json": 3})
    site = attic.site(**baseline)
    found = one(site, "download")
    assert found.stays
    with pytest.raises(UsageError):
        gone(site, found.id)
    assert left(target) == {"a.gguf", "config.json"}


def test_what_a_process_uses_stays(attic: Attic) -> None:
    target = attic.download("kimi-k2-words", {"weights-x.gguf": 8192})
    site = attic.site()
    child = subprocess.Popen(  # as an engine is started
        ["sh", "-c", "sleep 60; :", "x", str(target / "weights-x.gguf")], start_new_session=True
    )
    try:  # for a moment after it is started, the kernel knows no words of it
        words = Path(f"/proc/{child.pid}/cmdline")
        until(lambda: b"weights-x" in words.read_bytes(), "the child's words")
        assert "command line" in one(site, "download").stays
    finally:
        process.stop_group(child.pid, process.start_time(child.pid) or 0, grace_s=0.0)
        child.wait()
    assert one(site, "download").stays == ""
    with (target / "weights-x.gguf").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert "has" in one(site, "download").stays, "mapped, and closed as engines do"
    mapped.close()
    assert one(site, "download").stays == ""


def test_the_end_of_a_longer_name_is_another_file() -> None:
    spared = Spared(frozenset(), frozenset(), frozenset(), ("--model=/x/llama.gguf", "-m=b.gguf"))
    assert [spared.mentions(f"{one}.gguf") for one in ("llama", "a", "b")] == [True, False, True]


def test_runs_but_the_newest_and_those_that_have_not_ended_may_go(attic: Attic) -> None:
    site = attic.site()
    old, open_, failed = attic.run("a-old"), attic.run("b-open", "paused"), attic.run("c", "failed")
    found = {item.where: item for item in survey(site).items if item.kind == "run"}
    assert found[str(old.path)].stays == ""
    assert (found[str(old.path)].bytes or 0) > 100_000
    assert "has not ended" in found[str(open_.path)].stays
    assert gone(site, f"r-{old.id}", f"r-{failed.id}")
    assert left(old.path.parent) & {old.id, failed.id} == set()
    assert open_.path.is_dir()


def test_a_run_that_is_a_link_is_not_followed(attic: Attic) -> None:
    site, run = attic.site(), attic.run("a-old")
    moved = attic.root / "moved"
    run.path.rename(moved)
    run.path.symlink_to(moved)
    assert one(site, "run").stays
    assert left(moved)


@pytest.mark.parametrize("ids", [["d-nothing"], ["all"], ["*"]])
def test_an_unknown_id_removes_nothing_at_all(attic: Attic, ids: Iterable[str]) -> None:
    target = attic.download("kimi-k2-words", {"a.gguf": 10})
    site = attic.site()
    with pytest.raises(UsageError):
        gone(site, one(site, "download").id, *ids)
    assert left(target) == {"a.gguf"}


def test_nothing_goes_while_a_run_is_on(attic: Attic) -> None:
    target = attic.download("kimi-k2-words", {"a.gguf": 10})
    site = attic.site()
    found = one(site, "download")
    lock = HostLock()
    try:
        with pytest.raises(HostBusy):
            gone(site, found.id)
    finally:
        lock.release()
    assert left(target) == {"a.gguf"}


def test_an_engine_that_is_away_is_said(attic: Attic) -> None:
    [note] = survey(attic.site()).notes
    assert "no.sock" in note


LAYERS = {"base": 100, "a": 10, "b": 20, "c": 5, "d": 7}


def images(**made: str) -> tuple[Stored, ...]:
    """Images by name, each the names of its layers; sizes and what is shared as an engine says."""
    piles = {name: tuple(words.split()) for name, words in made.items()}
    found = []
    for name, pile in piles.items():
        others = [one for other, one in piles.items() if other != name]
        deep = max(sum(pile[: n + 1] == one[: n + 1] for n in range(len(pile))) for one in others)
        size, shared = (sum(LAYERS[one] for one in part) for part in (pile, pile[:deep]))
        found.append(Stored(name, size, shared, pile))
    return tuple(found)


TWINS = images(x="base a", y="base a", z="base a", other="base b")


@pytest.mark.parametrize(
    ("going", "freed"),
    [("x", 0), ("x y", 0), ("x y z", 10), ("x y z other", 130), ("other", 20), ("", 0)],
)
def test_a_layer_goes_with_the_last_that_has_it(going: str, freed: int) -> None:
    assert together(going.split(), TWINS) == (freed, True)


def test_the_order_of_the_list_says_nothing() -> None:
    assert together(["x", "y", "z"], TWINS[::-1]) == (10, True)


def test_it_is_at_least_what_is_known() -> None:
    # x and y stand on `base a`, which neither shares with anything as deep as that
    pile = images(x="base a b c", x2="base a b c", y="base a b d", y2="base a b d", far="base d")
    freed, exact = together(["x", "x2", "y", "y2"], pile)
    true = sum(LAYERS[one] for one in "abcd")
    assert (freed <= true, exact) == (True, False)


def test_without_layers_each_has_its_own() -> None:
    blind = (Stored("x", 10, 4), Stored("y", 10, 4))
    assert together(["x", "y"], blind) == (12, False)


def test_what_a_run_left_running_is_named(attic: Attic) -> None:
    """A candidate that daemonised: on record, or known only by its candidate's address."""
    run, port = attic.run("trial"), free_port()
    serve = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1])));"
    argv = [sys.executable, "-S", "-c", f"{serve} time.sleep(600)", str(port)]
    candidate = Candidate("cand", "process", url=f"http://127.0.0.1:{port}")
    base = Baseline("baseline", "process", "http://127.0.0.1:1", process=ProcessSpec(("serve",)))
    sealed.write(SealedPlan(run.id, str(run.path), base, candidates=(candidate,)), run.sealed)
    with running(["sleep", "600"]) as runner:
        live.append(run.live, live.runner(runner.pid, some(process.start_time(runner.pid))))
    with running(argv) as server, running(["sleep", "600"]) as other:
        until(lambda: ports.listener(candidate.url), "it listens")
        start = some(process.start_time(other.pid))
        live.append(run.live, live.Live("process", "side", other.pid, start))
        notes = " ".join(survey(attic.site()).notes)
        assert f"at cand's {candidate.url}: run {run.id} may have left it behind" in notes
        assert f"-p {server.pid}` shows whose it is" in notes
        assert "kill" not in notes
        assert f"pid {other.pid}, side of run {run.id}, still runs" in notes
    assert "kill" not in " ".join(survey(attic.site()).notes)
