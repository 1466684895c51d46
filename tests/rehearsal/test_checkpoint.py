"""The made-up checkpoint of `source=stand-in`: the ordinary preflight reads it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from console.models.gguf.read import read_header
from console.rehearsal import image, workspace
from console.rehearsal.rewrite import Rewriter, steps
from console.rehearsal.workspace import Mapping


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_path_that_was_moved_has_a_made_up_checkpoint_too() -> None:
    asked = {"engine": "llama.cpp", "repo": str(workspace.work() / "nvme/models/deepseek-r1")}
    tree = {
        "title": "t",
        "phases": [{"title": "p", "steps": [{"id": "fits", "checkpoint": asked}]}],
    }
    (made,) = steps(Rewriter(Mapping("base:1"))(tree, Path("/books")))
    assert made["checkpoint"]["repo"] == str(workspace.work() / "checkpoint" / "gguf")


@pytest.mark.parametrize(("engine", "kind"), [("kt-kernel", "bf16"), ("llama.cpp", "gguf")])
def test_only_the_word_is_replaced_and_the_plan_says_so(engine: str, kind: str) -> None:
    asked: dict[str, Any] = {"engine": engine, "include": "*Q4*", "ctx": 8}
    tree = {"title": "t", "phases": [{"title": "p", "steps": [
        {"id": "fits", "checkpoint": {**asked, "repo": "stand-in"}},
        {"id": "real", "checkpoint": {**asked, "repo": "a/b"}},
    ]}]}  # fmt: skip
    rewriter = Rewriter(Mapping("base:1"))
    made, real = [one["checkpoint"] for one in steps(rewriter(tree, Path("/books")))]
    assert made == {"engine": engine, "ctx": 8, "repo": str(workspace.work() / "checkpoint" / kind)}
    assert real == {**asked, "repo": "a/b"}
    assert [note.partition(":")[0] for note in rewriter.notes] == ["step fits"]


def test_true_headers_over_holes() -> None:
    path = image.put_checkpoint(gguf=False) / "model.safetensors"
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        table = json.loads(file.read(length))
    assert max(one["data_offsets"][1] for one in table.values()) == path.stat().st_size - 8 - length
    assert path.stat().st_blocks * 512 < 1 << 20 < path.stat().st_size
    (weights,) = image.put_checkpoint(gguf=True).iterdir()
    assert read_header(str(weights)).header.architecture == "llama"
