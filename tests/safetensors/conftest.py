"""A hub over loopback without a token, an endpoint of its own and a proxy."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.hub import LocalHub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with LocalHub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running
