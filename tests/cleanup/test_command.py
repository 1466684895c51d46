"""`clean` as it is typed: dry by default, and never everything by one word."""

import json

import pytest

from console.cli import main
from console.common.errors import Exit
from tests.cleanup.conftest import Attic


@pytest.mark.parametrize(("words", "code"), [([], Exit.OK), (["--yes"], Exit.USAGE)])
def test_neither_a_list_nor_yes_alone_removes_anything(
    attic: Attic, words: list[str], code: Exit
) -> None:
    target = attic.download("kimi-k2-words", {"a.gguf": 10})
    attic.site()
    assert main(["clean", "--site", str(attic.root / "site.yaml"), *words]) == code
    assert (target / "a.gguf").exists()


def test_ids_as_json(attic: Attic, capsys: pytest.CaptureFixture[str]) -> None:
    target = attic.download("big/kimi-k2-words", {"a.gguf": 10})
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
    assert target.parent.is_dir(), "what is above an empty directory stays"
    assert main(["clean", *site, "--yes", item["id"]]) == Exit.USAGE
