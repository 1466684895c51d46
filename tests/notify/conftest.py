"""An outbox of its own for each test, and a web server that is told things."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.notify.outbox import Outbox
from tests.notify.hook import Hook, serving


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's outbox, site and proxies stay out of it."""
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    for name in [one for one in os.environ if one.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("OMNI_SITE", raising=False)


@pytest.fixture
def box() -> Outbox:
    return Outbox()


@pytest.fixture
def hook() -> Iterator[Hook]:
    with serving() as one:
        yield one
