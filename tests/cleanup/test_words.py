"""What `clean` says, word for word: `make golden` writes it anew."""

import re

import pytest
from syrupy.assertion import SnapshotAssertion

from console.cli import main
from tests.cleanup.conftest import Attic


def test_the_command(
    attic: Attic, snapshot: SnapshotAssertion, capsys: pytest.CaptureFixture[str]
) -> None:
    site = ["--site", str(attic.root / "site.yaml")]

    def said(*words: str) -> str:
        main(["clean", *site, *words])
        text = "".join(capsys.readouterr())
        for pattern, shown in (
            (re.escape(str(attic.root)), "DIR"), (r"20\d\d-\d\d-\d\d", "DAY"),
            (r"\bd-[0-9a-f]{12}", "d-ID"),
        ):  # fmt: skip
            text = re.sub(pattern, shown, text)
        return text

    def ids() -> list[str]:
        main(["clean", *site])
        return re.findall(r"\bd-[0-9a-f]{12}", capsys.readouterr().out)

    target = attic.download("d-words", {"a.gguf": 10, "b.gguf": 3 << 20})
    (target / "a.gguf").write_bytes(b"another")
    attic.site()
    assert [said(), said("--yes"), said("--yes", "d-nothing"), said("--yes", *ids())] == snapshot
    attic.download("big/named", {"a.gguf": 10})
    attic.site(models=["big/named"])
    assert [said(), said("--yes", *ids())] == snapshot
