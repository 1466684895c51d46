"""Asking a hub: the real library, in its own process, against the real routes."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pytest

from console.models.hub import errors, listing
from console.models.hub.errors import Asked
from console.models.hub.listing import Listing, look_up, read
from console.models.hub.reference import BadReference
from tests.gguf.server import serving
from tests.testbed.hub import File, LocalHub, Repo, files

MEMBERS = frozenset({"member"})
COMMIT = "a" * 40
ASKED = Asked("org/model", "main", "https://hub.example", False)


def model(name: str = "org/model", **trouble: Any) -> Repo:
    held = files(
        {".gitattributes": "x", "config.json": "{}", "m.gguf": b"GGUF", "s.bin": 642 << 30}
    )
    held["odd.txt"] = File(3, b"odd", lfs=False, declared=False)
    return Repo(name, held, members=MEMBERS, **trouble)


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
    assert "large beyond measure" in caught.value.detail


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


TROUBLES: dict[str, type[errors.HubError]] = {
    "gone": errors.RepositoryMissing, "revision": errors.RevisionMissing,
    "disabled": errors.RepositoryDisabled, "empty": errors.RepositoryEmpty,
    "limited": errors.RateLimited, "503": errors.HubUnreachable, "refused": errors.HubUnreachable,
    "login page": errors.HubAnswer, "other json": errors.HubAnswer, "nested": errors.HubAnswer,
    "traversal": errors.HubAnswer, "escape": errors.HubAnswer, "no commit": errors.HubAnswer,
    "twice": errors.HubAnswer,
}  # fmt: skip


def refused(hub: LocalHub, asks: Any, trouble: str) -> errors.HubError:
    """What is said where the hub has this trouble."""
    hub.rate_limited_s = None
    hub.add(model(disabled=trouble == "disabled"))
    if trouble == "empty":
        hub.add(Repo("org/model", files({".gitattributes": "x"})))
    if trouble == "limited":
        hub.rate_limited_s = 55
    hub.broken = {
        "503": (503, b"oops", "text/plain"),
        "login page": (200, b"<html>Sign in</html>", "text/html"),
    }.get(trouble)
    hub.body = {
        "other json": b"{}",
        "nested": b"[" * 100_000,
        "traversal": about([{"rfilename": "../../root/.ssh/authorized_keys", "size": 1}]),
        "escape": about([{"rfilename": "a\x1b]0;x\x07", "size": 1}]),
        "no commit": about([], sha="main"),
        "twice": about([{"rfilename": "a", "size": 1}, {"rfilename": "a", "size": 2}]),
    }.get(trouble)
    found: errors.HubError = asks(
        "org/gone" if trouble == "gone" else "org/model",
        "v9" if trouble == "revision" else "main",
        "http://127.0.0.1:1" if trouble == "refused" else "",
    )
    return found


@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_refusal_has_its_kind(hub: LocalHub, asks: Any, trouble: str) -> None:
    """Its words are held by the test of words."""
    error = refused(hub, asks, trouble)
    assert type(error) is TROUBLES[trouble]
    assert error.hint
    assert all(line.isprintable() for line in error.lines())


def about(rows: list[dict[str, Any]], sha: str = COMMIT) -> bytes:
    return json.dumps({"id": "org/model", "sha": sha, "siblings": rows}).encode()


def test_rate_limit_says_when() -> None:
    told = errors.rate_limited(ASKED, '"api";r=0;t=55')
    assert "in 55.0 s" in told.hint
    assert "in 2 min 00 s" in errors.rate_limited(ASKED, "120").hint
    for unreadable in ("Wed, 21 Oct 2026 07:28:00 GMT", "٣"):
        assert "later" in errors.rate_limited(ASKED, unreadable).hint
    assert "HF_TOKEN" in told.hint


@pytest.mark.parametrize("size", [None, -1, True, "5", 1.5, 1 << 63])
def test_a_size_that_is_none_stays_unknown(size: object) -> None:
    found = made([{"path": "a.gguf", "size": size}, {"path": "b.gguf", "size": 7}])
    assert found.unknown == ("a.gguf",)
    assert [file.size for file in found.files] == [None, 7]


def test_a_listing_without_end_is_refused() -> None:
    rows = [{"path": f"f{n}", "size": 1} for n in range(100_001)]
    with pytest.raises(errors.HubAnswer, match="more than 100000 files"):
        made(rows)


def made(rows: list[dict[str, Any]]) -> Listing:
    return read(ASKED, {"commit": COMMIT, "files": rows}, None)
