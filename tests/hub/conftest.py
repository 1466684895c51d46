"""A hub over loopback, and a login that knows no other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.hub.listing import Listing, RemoteFile
from tests.testbed.hub import LocalHub


@pytest.fixture(autouse=True)
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HF_HOME of its own; no token, no endpoint, no proxy."""
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    home = tmp_path / "hf"
    home.mkdir()
    monkeypatch.setenv("HF_HOME", str(home))
    return home


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with LocalHub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def listing(*rows: tuple[str, int | None], repo: str = "org/model") -> Listing:
    files = tuple(RemoteFile(path, size, lfs=path.endswith(".gguf")) for path, size in rows)
    return Listing(repo, "c" * 40, "http://127.0.0.1:9", files)
