"""`clean` as it is typed: dry by default, and never everything by one word."""

from __future__ import annotations

import json

import pytest

from console.cli import main
from console.common.errors import Exit
from tests.reclaim.conftest import Attic


def test_a_list_removes_nothing(attic: Attic, capsys: pytest.CaptureFixture[str]) -> None:
    target = attic.download("kimi-k2-words", {"a.gguf": 3 << 20})
    attic.site()
    assert main(["clean", "--site", str(attic.root / "site.yaml")]) == Exit.OK
    out = capsys.readouterr().out
    assert "Downloads  3.0 MiB" in out
    assert str(target) in out
    assert "1 of 1" in out
    assert (target / "a.gguf").exists()


def test_yes_alone_is_refused(attic: Attic, capsys: pytest.CaptureFixture[str]) -> None:
    target = attic.download("kimi-k2-words", {"a.gguf": 10})
    attic.site()
    assert main(["clean", "--site", str(attic.root / "site.yaml"), "--yes"]) == Exit.USAGE
    assert capsys.readouterr().err
    assert (target / "a.gguf").exists()


def test_ids_as_json(attic: Attic, capsys: pytest.CaptureFixture[str]) -> None:
    target = attic.download("kimi-k2-words", {"a.gguf": 10})
    attic.site()
    site = ["--site", str(attic.root / "site.yaml"), "--json"]
    assert main(["clean", *site]) == Exit.OK
    listed = json.loads(capsys.readouterr().out)
    assert listed["removable_bytes"] == 10
    [item] = listed["items"]
    assert main(["clean", *site, "--yes", item["id"]]) == Exit.OK
    said = json.loads(capsys.readouterr().out)
    assert (said["freed"], said["removed"][0]["where"]) == (10, str(target))
    assert not target.exists()
    assert main(["clean", *site, "--yes", item["id"]]) == Exit.USAGE
