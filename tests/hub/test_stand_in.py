"""The hub that the tests use: that it behaves as the real one is said to."""

from __future__ import annotations

import httpx

from tests.testbed.hub import File, LocalHub, Repo, files

SIZE = 642 << 30


def test_ranges_and_redirects(hub: LocalHub) -> None:
    repo = Repo("org/model", files({"m.gguf": File(SIZE, b"GGUF1234"), "a.json": "{}"}))
    hub.add(repo)
    url = f"{hub.url}/org/model/resolve/main/m.gguf"
    with httpx.Client() as client:
        first = client.get(url, headers={"Range": "bytes=0-9"})
        assert first.status_code == 302
        assert first.headers["x-linked-size"] == str(SIZE)
        assert first.headers["x-repo-commit"] == repo.commit
        assert first.headers["x-linked-etag"] == f'"{repo.files["m.gguf"].sha256}"'
        place = first.headers["location"]
        assert place.startswith(hub.cdn_url)
        part = client.get(place, headers={"Range": "bytes=2-9"})
        assert (part.status_code, part.content) == (206, b"UF1234\0\0")
        assert part.headers["content-range"] == f"bytes 2-9/{SIZE}"
        assert client.get(place, headers={"Range": f"bytes={SIZE}-"}).status_code == 416
        plain = client.get(f"{hub.url}/org/model/resolve/{repo.commit}/a.json")
        assert plain.content == b"{}"
        assert client.head(f"{hub.url}/org/model/resolve/main/none").status_code == 404


def test_a_server_may_ignore_ranges(hub: LocalHub) -> None:
    hub.add(Repo("org/model", files({"a.json": '{"a": 1}'})))
    hub.ignore_range = True
    url = f"{hub.url}/org/model/resolve/main/a.json"
    answer = httpx.get(url, headers={"Range": "bytes=0-1"})
    assert (answer.status_code, answer.content) == (200, b'{"a": 1}')
