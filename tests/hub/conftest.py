"""A hub over loopback, and a login that knows no other."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.models.hub import errors, listing_child
from console.models.hub.errors import HubRequest
from console.models.hub.listing import Listing, RemoteFile, read
from tests.testbed.hub import LocalHub, Repo


@pytest.fixture(autouse=True)
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HF_HOME of its own; no token, no endpoint, no proxy; time for a busy machine to answer."""
    monkeypatch.setattr("console.models.hub.listing.DEADLINE_S", 120.0)
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


@pytest.fixture
def asks(hub: LocalHub) -> Iterator[Any]:
    """The library asked in this process: the same code, without the price of a process."""
    from huggingface_hub.utils._http import close_session

    def ask(repo: str = "org/model", revision: str = "main", endpoint: str = "") -> Exception:
        answer = json.loads(json.dumps(listing_child.main(repo, revision, endpoint or hub.url)))
        if "error" in answer:
            return errors.explain(HubRequest(repo, revision, hub.url, False), answer["error"])
        with pytest.raises(errors.HubError) as caught:
            read(HubRequest(repo, revision, hub.url, False), answer["about"], None)
        return caught.value

    yield ask
    close_session()


def listed(hub: LocalHub, repo: Repo) -> Listing:
    hub.add(repo)
    rows = [
        {"path": path, "size": file.size, "sha256": file.sha256 if file.lfs else None}
        for path, file in repo.files.items()
    ]  # fmt: skip
    about = {"commit": repo.commit, "files": rows}
    return read(HubRequest(repo.name, "main", hub.url, False), about, None)


def listing(*rows: tuple[str, int | None], repo: str = "org/model") -> Listing:
    files = tuple(RemoteFile(path, size) for path, size in rows)
    return Listing(repo, "c" * 40, "http://127.0.0.1:9", files)
