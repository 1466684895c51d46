"""The real `hf download` against a hub over loopback: whole, cut, cancelled, out of room."""

import hashlib
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.host.machine import Space
from console.models.hub import checkpoint, local_files
from console.models.hub.download import Download, Phase, Plan, Progress
from console.models.hub.errors import DiskShort, DownloadBusy, RepositoryGated, RevisionMissing
from console.models.hub.listing import Listing, RemoteFile
from console.runner.executors.download import fetch
from tests.clock import FakeClock
from tests.hub.conftest import listed
from tests.testbed.hub import File, LocalHub, Repo, files
from tests.waiting import until

MB = 1 << 20
NAMES = [f"model-{n:05}-of-00004.safetensors" for n in range(1, 5)]


PLENTY = Space(10**15, 10**15)


def data(name: str) -> bytes:
    return hashlib.shake_128(name.encode()).digest(300_000)


def served(hub: LocalHub, extra: dict[str, File] | None = None) -> Listing:
    """A small safetensors repository on the hub, and its listing."""
    held = files({"config.json": "{}", **{name: data(name) for name in NAMES}}) | (extra or {})
    return listed(hub, Repo("org/model", held))


def ready(plan: Plan, **how: Any) -> Download:
    """A download with room enough."""
    return Download(plan, space=lambda path: PLENTY, **how)


def planned(
    listing: Listing, target: Path, include: list[str] | None = None, **how: object
) -> Plan:
    taken = checkpoint.read(listing, include or [])
    return replace(Plan(taken, target, hash_up_to=MB), **how)  # type: ignore[arg-type]


def test_a_whole_download(hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2hunter2")
    plan = planned(served(hub), tmp_path / "deep/r1")
    download = ready(plan)
    before = download.start()
    assert before.to_fetch == 1_200_002
    result = download.finish()
    assert (result.phase, result.wrong, result.cuts) == (Phase.DONE, {}, 0)
    assert result.fetched == 1_200_002
    for name in NAMES:
        assert (plan.target / name).read_bytes() == data(name)
    progress = download.look()
    assert (progress.bytes_done, progress.files_done) == (plan.contents.size, 5)
    assert {seen.token for seen in hub.seen if seen.cdn} == {""}, "the token stays with the hub"
    assert any(seen.token == "hunter2hunter2" for seen in hub.seen)
    assert not any("hunter2" in word for word in [*plan.argv(), *result.output, repr(plan)])


def test_patterns_and_workers_reach_the_command(hub: LocalHub, tmp_path: Path) -> None:
    plan = planned(served(hub), tmp_path, ["*-00002-*", "config.json"])
    argv = plan.argv()
    assert argv[-2:] == ["--max-workers", "16"]
    assert "--include=*-00002-*" in argv
    download = ready(plan)
    download.start()
    assert download.finish().phase is Phase.DONE
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "config.json", NAMES[1]
    ]  # fmt: skip


def test_a_killed_child_is_continued_without_fetching_whole_files_again(
    hub: LocalHub, tmp_path: Path
) -> None:
    listing = served(hub, {"model-big.safetensors": File(30 * MB, b"big")})
    plan = planned(listing, tmp_path, ["*.safetensors"], workers=1, hash_up_to=0)
    hold = hub.hold("model-big.safetensors", 25 * MB)
    pids: list[int] = []
    download = ready(plan, born=pids.append)
    download.start()
    until(hold.reached.is_set, "the first 25 MB", where=lambda: str(download.look()))
    # it is written in pieces of 10 MiB
    until(lambda: download.look().bytes_done >= 20 * MB, "20 MiB on the disk")
    assert (download.look().phase, download.look().files_done) == (Phase.FETCHING, 4)
    os.kill(pids[-1], signal.SIGKILL)
    result = download.finish()
    assert (result.phase, result.cuts) == (Phase.CUT, 1)
    assert list(result.wrong) == ["model-big.safetensors"]
    assert result.error is not None
    assert result.error.hint
    assert sum(local_files.unfinished_sizes(tmp_path).values()) > 10 * MB
    hold.release()
    hub.forget()
    again = download.start()
    assert len(again.whole) == 4
    result = download.finish()
    assert (result.phase, result.cuts, result.error) == (Phase.DONE, 1, None)
    assert [path.rpartition("/")[2] for path in hub.fetched()] == ["model-big.safetensors"]
    assert local_files.unfinished_sizes(tmp_path) == {}, "what the killed child left is gone"


def test_the_disk_is_watched(hub: LocalHub, tmp_path: Path) -> None:
    listing = served(hub, {"model-big.safetensors": File(30 * MB, b"big")})
    plan = planned(listing, tmp_path, ["*big*"], hash_up_to=0)
    free = [Space(100 * MB, 10**12)]
    hold = hub.hold("model-big.safetensors", 25 * MB)
    download = Download(plan, space=lambda path: free[0], floor=lambda total: 50 * MB)
    download.start()
    until(hold.reached.is_set, "the first 25 MB", where=lambda: str(download.look()))
    assert download.look().phase is Phase.FETCHING
    free[0] = Space(50 * MB, 10**12)
    assert download.look().phase is Phase.DISK
    assert not download.running
    result = download.finish()
    assert result.phase is Phase.DISK
    assert isinstance(result.error, DiskShort)
    assert local_files.unfinished_sizes(tmp_path) == {}, (
        "what cannot be continued does not fill the disk"
    )
    hold.release()


def test_too_little_room_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    download = Download(
        planned(served(hub), tmp_path), space=lambda path: Space(MB, 10**12), floor=lambda total: 0
    )
    with pytest.raises(DiskShort):
        download.start()
    assert hub.seen == []


def test_cancelled(hub: LocalHub, tmp_path: Path) -> None:
    hold = hub.hold(NAMES[2], 1000)
    plan = planned(served(hub), tmp_path, workers=1)
    download = ready(plan, grace_s=0.2)
    download.start()
    until(hold.reached.is_set, "the first bytes", where=lambda: str(download.look()))
    with pytest.raises(DownloadBusy):
        ready(plan).start()
    download.stop()
    assert not download.running
    assert download.finish().phase is Phase.CANCELLED
    hold.release()


@pytest.mark.parametrize(
    ("trouble", "kind"), [("gated", RepositoryGated), ("rewritten", RevisionMissing)]
)
def test_what_another_try_will_not_mend(
    hub: LocalHub, tmp_path: Path, trouble: str, kind: type[Exception]
) -> None:
    listing = served(hub)
    if trouble == "gated":
        hub.repos["org/model"].gated = "manual"
    else:
        hub.repos["org/model"].files["new.txt"] = File(1)
    download = ready(planned(listing, tmp_path))
    download.start()
    result = download.finish()
    assert (result.phase, result.cuts) == (Phase.FAILED, 0)
    assert type(result.error) is kind


def test_a_file_that_was_damaged_later_is_fetched_again(hub: LocalHub, tmp_path: Path) -> None:
    """`hf` takes a file for whole that it once noted as such; this download does not."""
    plan = planned(served(hub), tmp_path)
    whole = ready(plan)
    whole.start()
    assert whole.finish().phase is Phase.DONE
    hub.forget()
    (tmp_path / NAMES[0]).write_bytes(b"short")
    (tmp_path / NAMES[1]).write_bytes(b"z" * 300_000)
    os.utime(tmp_path / NAMES[1], (0, 0))  # `hf` looks again at what is younger than its note
    again = ready(plan)
    assert again.start().wrong == (NAMES[0],)
    assert list(again.finish().wrong) == [NAMES[1]], "its size gave nothing away"
    again.start()
    assert again.finish().phase is Phase.DONE
    assert sorted(path.rpartition("/")[2] for path in hub.fetched()) == NAMES[:2]
    assert [(tmp_path / name).read_bytes() for name in NAMES] == [data(name) for name in NAMES]


def test_a_refused_listing_starts_nothing(hub: LocalHub, tmp_path: Path) -> None:
    listing = replace(served(hub), refused=RepositoryGated("org/model is gated"))
    with pytest.raises(RepositoryGated):
        Download(planned(listing, tmp_path)).start()
    assert hub.seen == []


class Scripted(Plan):
    """A plan whose child is a script: for what a real downloader does only by accident."""

    def argv(self) -> list[str]:
        return [sys.executable, "-S", "-c", self.contents.notes[0]]


def scripted(target: Path, script: str, size: int = 3) -> Download:
    listing = Listing("org/model", "c" * 40, "http://127.0.0.1:9", (RemoteFile("a", size),))
    plan = Scripted(checkpoint.Contents(listing, listing.files, (), notes=(script,)), target)
    return ready(plan, grace_s=0.2)


def test_what_the_child_says_is_clean_bounded_and_without_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2hunter2")
    script = (
        "import os, sys; sys.stdout.write('x' * 10_000_000 + '\\n');"
        "print('\\x1b]0;owned\\x07', os.environ['HF_TOKEN']);"
        "[print(n) for n in range(1000)]; print('\\x1b[31mlast', os.environ['HF_TOKEN'])"
    )
    download = scripted(tmp_path, script)
    download.start()
    result = download.finish()
    assert result.output[-1] == "last (token)"
    assert len(result.output) == 50
    assert all(line.isprintable() and len(line) <= 4096 for line in result.output)


def test_a_child_that_ignores_signals_is_killed(tmp_path: Path) -> None:
    script = (
        "import signal, time, pathlib; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)];"
        f"pathlib.Path({str(tmp_path / 'up')!r}).touch(); time.sleep(600)"
    )
    download = scripted(tmp_path, script)
    download.start()
    until((tmp_path / "up").exists, "the child to ignore signals")
    download.stop()
    assert not download.running
    assert download.finish().phase is Phase.CANCELLED


def test_fetch_goes_on_after_cuts(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys; p = pathlib.Path('count'); p.touch(); n = len(p.read_text());"
        "p.write_text('x' * (n + 1)); n < 2 and sys.exit(1); pathlib.Path('a').write_text('abc')"
    )
    script = f"import os; os.chdir({str(tmp_path)!r}); {script}"
    clock, seen = FakeClock(), list[Progress]()
    result = fetch(scripted(tmp_path, script), on_progress=seen.append, clock=clock)
    assert (result.phase, result.cuts) == (Phase.DONE, 2)
    assert [pause for pause in clock.slept if pause != 1.0] == [2.0, 4.0]
    assert seen[-1].bytes_done == 3


def test_fetch_ends_when_asked_to(tmp_path: Path) -> None:
    cancelled = threading.Event()
    download = scripted(tmp_path, "import time; time.sleep(600)")
    result = fetch(
        download, on_progress=lambda progress: cancelled.set(), cancelled=cancelled,
        clock=FakeClock(),
    )  # fmt: skip
    assert result.phase is Phase.CANCELLED
    assert not download.running


def test_nothing_to_do_starts_no_child(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abc")
    download = scripted(tmp_path, "raise SystemExit(1)")
    assert download.start().to_write == 0
    assert not download.running
    assert download.finish().phase is Phase.DONE
    assert download.finish().rate_bps is None
