"""What an operator types, and asking a hub: the real library in its own process."""

import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.text import clean
from console.models.hub import errors, listing
from console.models.hub.errors import HubRequest
from console.models.hub.listing import Listing, look_up, read
from console.models.hub.reference import (
    BadReference,
    RepoReference,
    check_path,
    check_repo,
    check_revision,
    parse,
    typed,
)
from tests.gguf.server import serving
from tests.testbed.hub import File, LocalHub, Repo, files

SHARD = "Q4_K_M/m-00001-of-00009.gguf"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpt2", RepoReference("gpt2")),
        (" org/name ", RepoReference("org/name")),
        ("org/name@main", RepoReference("org/name", "main")),
        ("org/name@refs/pr/7", RepoReference("org/name", "refs/pr/7")),
        ("https://huggingface.co/org/name", RepoReference("org/name")),
        ("https://huggingface.co/org/name/", RepoReference("org/name")),
        ("https://hf.co/org/name/tree/v1.0", RepoReference("org/name", "v1.0")),
        ("https://huggingface.co/org/name/tree/main/Q4_K_M",
         RepoReference("org/name", "", "Q4_K_M")),
        (f"https://huggingface.co/org/name/resolve/main/{SHARD}?download=true",
         RepoReference("org/name", "", SHARD)),
        (f"https://huggingface.co/org/name/blob/abc/{SHARD}#L1",
         RepoReference("org/name", "abc", SHARD)),
        ("https://huggingface.co/org/name/tree/refs%2Fpr%2F1/a",
         RepoReference("org/name", "refs/pr/1", "a")),
        ("https://huggingface.co/org/name/tree/refs/pr/1/a",
         RepoReference("org/name", "refs/pr/1", "a")),
        ("https://huggingface.co/gpt2/tree/main", RepoReference("gpt2")),
        ("http://mirror.lan:8080/base/org/name/raw/v2/a.gguf",
         RepoReference("org/name", "v2", "a.gguf")),
        ("hf://org/name", RepoReference("org/name")),
        ("hf://models/org/name@v2/dir/a.gguf", RepoReference("org/name", "v2", "dir/a.gguf")),
        ("hf://org/name@refs/pr/3/a.gguf", RepoReference("org/name", "refs/pr/3", "a.gguf")),
        ("/nvme/models/r1", Path("/nvme/models/r1")),
        ("./org/name", Path("org/name")),
        ("..", Path("..")),
        ("here/deep/model.gguf", Path("here/deep/model.gguf")),
        ("here.gguf", Path("here.gguf")),
    ],
)  # fmt: skip
def test_forms(
    text: str, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here/deep/model.gguf", "here.gguf", "org/name"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.lan:8080/base")
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("org/name", "./org/name"), (" r1 ", "./r1"), ("other/name", "other/name"),
        ("./r1", "./r1"), ("/r1", "/r1"), ("hf://org/name", "hf://org/name"), ("", ""),
    ],
)  # fmt: skip
def test_what_is_here_is_meant_by_whoever_types_its_name(
    text: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("org/name", "r1"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert typed(text) == meant


def test_a_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/op")
    assert parse("~/models") == Path("/home/op/models")


PIECES = st.sampled_from(
    ["hf://", "https://huggingface.co/", "org", "name", "/", "@", "..", "\x1b[2J", "%2e%2e", "%00",
     "\\", "-", "main", "tree", "resolve", ":", "?", "#", "\u202e", "é", " ", "\n"]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join))
def test_anything_is_a_harmless_reference_or_refused(text: str) -> None:
    found: object = None
    lines: list[str] = []
    try:
        found = parse(text)
    except BadReference as error:
        lines = error.lines()
    assert [clean(line) for line in lines] == lines
    if isinstance(found, RepoReference):
        assert check_repo(found.repo)
        assert not found.repo.startswith("-")
        assert not found.revision or check_revision(found.revision)
        assert not found.path or check_path(found.path)


MEMBERS = frozenset({"member"})
COMMIT = "a" * 40
ASKED = HubRequest("org/model", "main", "https://hub.example", False)


def model(**trouble: Any) -> Repo:
    held = files(
        {".gitattributes": "x", "config.json": "{}", "m.gguf": b"GGUF", "s.bin": 642 << 30}
    )
    held["odd.txt"] = File(3, b"odd", lfs=False, declared=False)
    return Repo("org/model", held, members=MEMBERS, **trouble)


def made(rows: list[dict[str, Any]]) -> Listing:
    return read(ASKED, {"commit": COMMIT, "files": rows}, None)


def test_a_listing_is_pinned_and_true(hub: LocalHub) -> None:
    repo = model()
    hub.add(repo)
    found = look_up("org/model")
    assert found.commit == repo.commit
    assert found.endpoint == hub.url
    assert {file.path: file.size for file in found.files} == {
        ".gitattributes": 1, "config.json": 2, "m.gguf": 4, "odd.txt": None, "s.bin": 642 << 30
    }  # fmt: skip
    gguf = found.find("m.gguf")
    assert gguf is not None
    assert gguf.sha256 == repo.files["m.gguf"].sha256
    assert found.unknown == ("odd.txt",)
    assert found.url("m.gguf") == f"{hub.url}/org/model/resolve/{repo.commit}/m.gguf"
    assert len(hub.seen) == 1, "one request tells everything"


def test_gated_is_listed_but_told(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(model(gated="manual"))
    found = look_up("org/model")
    with pytest.raises(errors.RepositoryGated) as caught:
        found.require_access()
    assert f"{hub.url}/org/model" in caught.value.hint
    assert "HF_TOKEN" in caught.value.hint
    monkeypatch.setenv("HF_TOKEN", "member")
    found = look_up("org/model")
    found.require_access()
    assert {seen.token for seen in hub.seen[-2:]} == {"member"}


def test_a_private_repository_needs_its_token(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(model(private=True))
    with pytest.raises(errors.RepositoryMissing, match="private"):
        look_up("org/model")
    monkeypatch.setenv("HF_TOKEN", "member")
    assert look_up("org/model").find("m.gguf") is not None


def test_a_server_that_drips_meets_the_deadline(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "DEADLINE_S", 1.0)
    hub.add(model())
    hub.drip_s = 0.2
    with pytest.raises(errors.HubTimeout) as caught:
        look_up("org/model")
    assert not hub.dripped.is_set(), "nobody waited for the minute that the answer takes"
    assert "within 1.00 s" in caught.value.title


def test_an_answer_that_unpacks_to_more_than_memory_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gzip.GzipFile(fileobj=(packed := io.BytesIO()), mode="wb", compresslevel=1) as file:
        for _ in range(400):
            file.write(bytes(2**20))
    bomb = packed.getvalue()
    with serving(lambda exchange: exchange.send(200, bomb, Content_Encoding="gzip")) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        with pytest.raises(errors.HubAnswer) as caught:
            look_up("org/model")
    assert "too large or too deeply nested" in caught.value.detail


def test_a_token_never_comes_back(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2hunter2")
    hub.broken = (403, b'{"error": "you sent hunter2hunter2"}', "application/json")
    with pytest.raises(errors.TokenRefused) as caught:
        look_up("org/model")
    said = "\n".join(caught.value.lines())
    assert "(token)" in said
    assert "hunter2" not in said


def test_offline_is_said_without_asking(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(errors.HubUnreachable, match="offline"):
        look_up("org/model")
    assert hub.seen == []


@pytest.mark.parametrize("repo", ["../etc", "a/b/c", "org/na\x1bme", "-x/y", "org/name/..", ""])
def test_a_bad_name_is_never_sent(hub: LocalHub, repo: str) -> None:
    with pytest.raises(BadReference):
        look_up(repo)
    with pytest.raises(BadReference):
        look_up("org/name", "re v")
    assert hub.seen == []


@pytest.mark.parametrize("size", [None, -1, True, "5", 1.5, 1 << 63])
def test_a_size_that_is_none_stays_unknown(size: object) -> None:
    found = made([{"path": "a.gguf", "size": size}, {"path": "b.gguf", "size": 7}])
    assert found.unknown == ("a.gguf",)
    assert [file.size for file in found.files] == [None, 7]


def test_a_listing_without_end_is_refused() -> None:
    rows = [{"path": f"f{n}", "size": 1} for n in range(100_001)]
    with pytest.raises(errors.HubAnswer, match="more than 100000 files"):
        made(rows)
