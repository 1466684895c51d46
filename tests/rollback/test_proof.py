"""The newest proof of a baseline: it is kept whole, and an error in it disturbs nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from console.host import process
from console.recovery.rollback.procedure import Procedure
from console.recovery.rollback.proof import (
    Served,
    instead_of_baseline,
    last,
    proof_file,
    remember,
    still_degraded,
)
from tests.rollback.conftest import Stage


def test_the_newest_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "proof" / "ws.json"
    assert last(file) is None
    remember(file, 10.0, 8.12345, False)
    assert last(file) == Served(10.0, 8.123, False)
    remember(file, 9.0, 1.0, True)
    assert last(file) == Served(10.0, 8.123, False), "an older one does not replace it"
    remember(file, 11.0, None, True)
    assert last(file) == Served(11.0, None, True)
    assert os.listdir(file.parent) == ["ws.json"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "garbage", '{"at": "x"}', '{"at": true}', '{"at": 1, "tok_s": "fast"}',
     '{"at": NaN}', "[" * 4000],
)  # fmt: skip
def test_garbage_is_no_proof_and_is_replaced(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ws.json"
    file.write_text(text)
    assert last(file) is None
    remember(file, 1.0, 2.0, False)
    assert last(file) == Served(1.0, 2.0, False)


def test_a_place_that_cannot_be_written_disturbs_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remember(tmp_path / "file" / "ws.json", 1.0, 2.0, False)
    assert last(tmp_path / "file" / "ws.json") is None


def test_a_site_name_cannot_leave_its_directory(tmp_path: Path) -> None:
    for name in ("../../etc/x", "..", "a/b", ""):
        for url in ("http://h:1/../../x", "http://h:1", ""):
            assert proof_file(name, url).parent == proof_file("ws", "http://h:1").parent


def test_each_address_has_a_proof_of_its_own() -> None:
    urls = ("http://a:1", "http://a:11", "http://a:1/v1", "http://[::1]:1", "")
    assert len({proof_file("ws", url) for url in urls}) == len(urls)


def test_a_short_completion_clears_degraded_and_never_finds_it(tmp_path: Path) -> None:
    file = tmp_path / "ws.json"
    assert not still_degraded(file, 1.0, 10.0, 0.1)
    remember(file, 1.0, 5.0, True)
    assert still_degraded(file, 8.0, 10.0, 0.1)
    assert still_degraded(file, None, 10.0, 0.1)
    assert not still_degraded(file, 9.0, 10.0, 0.1)
    assert not still_degraded(file, 8.0, None, 0.1)


def test_the_ladder_leaves_its_measure(stage: Stage) -> None:
    stage.seal(site_name="ws")
    result = Procedure(stage.plan).run()
    found = last(proof_file("ws", stage.plan.baseline.url))
    assert found is not None
    assert (found.tok_s, found.degraded) == (result.tok_s, False)


def test_a_candidate_in_the_baselines_place_proves_nothing(stage: Stage) -> None:
    base = stage.plan.baseline
    assert instead_of_baseline(stage.plan) == ""
    own = stage.start_baseline()
    stage.until_it_is()
    assert instead_of_baseline(stage.plan) == ""
    process.stop_group(*own, grace_s=0.0)
    assert base.process is not None
    stage.record("process", "cand", stage.spawn(list(base.process.argv), cookie="no"))
    stage.until_it_is()
    assert instead_of_baseline(stage.plan) == "cand"
