"""Two site files of one name: the second is refused while the first is in use, and named."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from console.cli import main
from console.common import paths
from console.common.errors import UsageError
from console.config.site.site import Site, load_site
from console.host import licence, process
from console.host.licence import Licence, Reason
from console.host.process import Owner, ProcessSpec
from console.journal import watch_record
from console.recovery.rollback import evidence, records
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.runner.prepare import namesakes
from tests.children import SLEEP, running
from tests.waiting import some
from tests.wrong_files import NO_OBJECTS

TEXT = """
schema: omni.site/v1
name: {name}
baseline:
  process: {{argv: {argv}}}
  url: http://127.0.0.1:{port}
"""
SLEEPS = ProcessSpec(SLEEP)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path))
    monkeypatch.delenv("OMNI_SITE", raising=False)
    return tmp_path


def site(path: Path, port: int, name: str = "ws") -> Site:
    path.write_text(TEXT.format(name=name, argv=json.dumps(list(SLEEP)), port=port))
    return load_site(path)


def pointed(first: Site) -> None:
    """A run of the site is under way, in this process."""
    pid, start = os.getpid(), some(process.start_time(os.getpid()))
    records.write(
        records.Pointer("r1", "/r1", "op", os.getuid(), pid, start, "book", str(first.path),
                        boot=process.boot_id())
    )  # fmt: skip


def watched(first: Site) -> None:
    plan = watch_record.file(first.name, watch_record.PLAN)
    paths.make(plan.parent)
    plan.write_text(json.dumps({"sealed": {"site_path": str(first.path)}}))


def recorded(first: Site) -> None:
    pid, start = os.getpid(), some(process.start_time(os.getpid()))
    runs = first.baseline_spec().runs
    assert isinstance(runs, ProcessSpec)
    process.write_record(paths.records_dir(first.name), "baseline", runs, pid, start, first.owner)


@pytest.mark.parametrize(
    ("use", "words"),
    [(pointed, "run r1 under way"), (watched, "is watched"), (recorded, "as its baseline")],
)
def test_a_second_site_of_the_name_is_refused_while_the_first_is_used(
    use: object, words: str, home: Path
) -> None:
    first, second = site(home / "a.yaml", 1), site(home / "b.yaml", 2)
    namesakes.refuse(second)  # nobody uses the first
    assert callable(use)
    use(first)
    with pytest.raises(UsageError) as caught:
        namesakes.refuse(second)
    assert caught.value.exit_code == 2
    for part in (words, str(first.path), "http://127.0.0.1:1"):
        assert part in caught.value.detail
    assert "give one of them another name:" in caught.value.hint
    namesakes.refuse(first)
    namesakes.refuse(site(second.path, 2, "other"))
    site(first.path, 1, "renamed")
    namesakes.refuse(site(second.path, 2))


@pytest.mark.parametrize("use", [pointed, watched, recorded])
def test_a_site_that_was_moved_or_has_another_port_goes_on(use: object, home: Path) -> None:
    first = site(home / "a.yaml", 1)
    assert callable(use)
    use(first)
    namesakes.refuse(site(first.path, 2))
    first.path.rename(home / "b.yaml")
    namesakes.refuse(site(home / "b.yaml", 3))
    namesakes.refuse(site(home / "c.yaml", 3))  # a copy has the same baseline
    link = home / "link.yaml"
    link.symlink_to(home / "b.yaml")
    namesakes.refuse(load_site(link))


def test_adopt_and_watch_refuse_and_change_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = site(home / "a.yaml", 1), site(home / "b.yaml", 2)
    recorded(first)
    before = process.read_record(paths.records_dir("ws"), "baseline")
    for argv in (["adopt", str(os.getpid())], ["watch", "run"]):
        assert main([*argv, "--site", str(second.path)]) == 2, argv
        assert "another site has the name ws" in capsys.readouterr().err
    assert process.read_record(paths.records_dir("ws"), "baseline") == before
    assert not watch_record.file("ws", watch_record.PLAN).exists()


def test_a_record_of_a_namesake_is_no_licence(home: Path) -> None:
    first, second = site(home / "a.yaml", 1), site(home / "b.yaml", 2)
    with running([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        start = some(process.start_time(child.pid))
        process.write_record(
            paths.records_dir("ws"), "baseline", SLEEPS, child.pid, start, first.owner
        )
        theirs = Licence(Reason.BASELINE, "ws", owner=second.owner)
        assert str(first.path) in licence.refusal(theirs, child.pid, start)
        for own in (first.owner, Owner(), Owner(str(first.path), "http://127.0.0.1:9")):
            assert (
                licence.refusal(Licence(Reason.BASELINE, "ws", owner=own), child.pid, start) == ""
            )
        first.path.unlink()  # it was moved
        assert licence.refusal(theirs, child.pid, start) == ""


def test_a_new_file_gets_a_name_that_no_other_site_has(home: Path) -> None:
    first, new = site(home / "a.yaml", 1), home / "b.yaml"
    assert namesakes.free_name("ws", "b", new) == "ws"
    watched(first)
    assert namesakes.free_name("ws", "b", new) == "ws-b"
    assert namesakes.free_name("ws", "a", first.path) == "ws", "it is written anew"
    pointed(site(home / "c.yaml", 3, "ws-b"))
    assert namesakes.free_name("ws", "b", new) == "ws-b-2"


def test_a_site_that_is_known_by_evidence_alone_keeps_its_name(home: Path) -> None:
    """A container's baseline has no record."""
    seen = Evidence(Kind.PROOF, Word.SERVING, 1.0, Witness.ADOPT)
    evidence.keep("ws", "http://127.0.0.1:1", seen)
    assert namesakes.free_name("ws", "b", home / "b.yaml") == "ws-b"
    assert namesakes.free_name("w", "b", home / "b.yaml") == "w"
    assert namesakes.free_name("ws", "site", paths.default_site()) == "ws"


def test_a_wrong_plan_of_a_watch_names_no_site(home: Path) -> None:
    first = site(home / "a.yaml", 1)
    watched(first)
    plan = watch_record.file(first.name, watch_record.PLAN)
    for text in [*NO_OBJECTS, *(json.dumps({"sealed": wrong}) for wrong in (
        None, 7, [], {}, {"site_path": None}, {"site_path": 7}, {"site_path": "a\0b"},
    ))]:  # fmt: skip
        plan.write_text(text)
        assert str(first.path) not in map(str, namesakes._files())
