"""The pinned terminal package: what is taken, what is refused, what is left behind."""

import base64
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from console.common.errors import ConsoleError, UsageError
from console.frontends.web import xterm
from tests.web.conftest import Web


def package(**files: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package that counts as the pinned one, as a file; a data directory of its own."""
    inside = {"package/lib/xterm.js": b"js", "package/css/xterm.css": b"css", "../../evil": b"x"}
    data = package(**inside)
    digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
    monkeypatch.setattr(xterm, "INTEGRITY", digest)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    file = tmp_path / "xterm.tgz"
    file.write_bytes(data)
    return file


def test_the_two_files_are_unpacked_and_nothing_else(pinned: Path, tmp_path: Path) -> None:
    assert xterm.installed() == {}
    place = xterm.fetch(str(pinned))
    assert xterm.installed() == {"xterm.js": b"js", "xterm.css": b"css"}
    (place / "xterm.js").write_bytes(b"old")
    assert xterm.fetch(str(pinned)) == place, "once more replaces it"
    assert xterm.installed()["xterm.js"] == b"js"
    files = sorted(one.relative_to(tmp_path) for one in tmp_path.rglob("*") if one.is_file())
    where = place.relative_to(tmp_path)
    assert files == [where / "xterm.css", where / "xterm.js", Path("xterm.tgz")]


@pytest.mark.parametrize("change", [b"", b"\xff"])
def test_another_package_is_refused_and_what_is_there_stays(pinned: Path, change: bytes) -> None:
    xterm.fetch(str(pinned))
    pinned.write_bytes(pinned.read_bytes()[:-1] + change)
    with pytest.raises(UsageError, match="this is not @xterm/xterm"):
        xterm.fetch(str(pinned))
    assert xterm.installed()["xterm.js"] == b"js"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        xterm.fetch(str(tmp_path / "none.tgz"))


def npm(place: Path, text: str) -> None:
    program = place / "npm"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def test_npm_is_asked_for_the_pinned_release(
    pinned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    npm(place, f'echo "$@" > {tmp_path}/asked; for last; do :; done; cp {pinned} "$last/x.tgz"')
    xterm.fetch()
    assert xterm.installed()["xterm.js"] == b"js"
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith(f"pack @xterm/xterm@{xterm.VERSION} --ignore-scripts ")
    npm(place, "echo no network >&2; exit 1")
    with pytest.raises(ConsoleError, match="no network"):
        xterm.fetch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="npm is not installed") as refused:
        xterm.fetch()
    assert "--fetch FILE" in refused.value.hint


def test_the_page_gets_it_and_says_what_to_do_without_it(web: Web, pinned: Path) -> None:
    missing = web.ask("GET", "/xterm.js")
    assert (missing.status_code, "--fetch" in missing.text) == (404, True)
    assert web.ask("GET", "/console").status_code == 200
    xterm.fetch(str(pinned))
    found = web.ask("GET", "/xterm.js")
    assert (found.status_code, found.text) == (200, "js"), "without a new start"
    assert found.headers["content-type"].startswith("text/javascript")
