"""What `clean` says, word for word: `make golden` writes it anew."""

from __future__ import annotations

import re

import pytest
from syrupy.assertion import SnapshotAssertion

from console.cli import main
from tests.reclaim.conftest import Attic


def test_the_command(
    attic: Attic, snapshot: SnapshotAssertion, capsys: pytest.CaptureFixture[str]
) -> None:
    attic.download("kimi-k2-words", {"a.gguf": 3 << 20})
    target = attic.download("d-words", {"a.gguf": 10, "b.gguf": 10})
    (target / "a.gguf").write_bytes(b"another")
    attic.download("big/named", {"a.gguf": 10})
    attic.site(models=["big/named"])
    site = ["--site", str(attic.root / "site.yaml")]
    main(["clean", *site])
    listed = capsys.readouterr().out
    ids = re.findall(r"d-[0-9a-f]{12}", listed)
    main(["clean", *site, "--yes"])
    main(["clean", *site, "--yes", "d-nothing"])
    for one in ids:
        main(["clean", *site, "--yes", one])
    main(["clean", *site])
    done = capsys.readouterr()
    text = "\n".join([listed, done.out, done.err]).replace(str(attic.root), "DIR")
    text = re.sub(r"20\d\d-\d\d-\d\d", "DAY", text)
    assert re.sub(r"d-[0-9a-f]{12}", "d-ID", text) == snapshot
