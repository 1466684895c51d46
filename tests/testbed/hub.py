"""A model hub over loopback: real routes, headers and refusals, with files of any declared size.

Ordinary files come from the hub's own address, large ones (LFS) by a 302 from a second one, as a
CDN does. A file is real bytes, or a *shape*: a size, its first bytes, and zeros after them; 642 GiB
then cost nothing. Trouble is switched on by name: see `LocalHub`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.runtime.serving import Quiet

CHUNK = 1 << 16
LFS_FROM = 10_000_000
LFS_SUFFIXES = (".gguf", ".safetensors", ".bin", ".pth")
_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree|auth-check)(?:/(.+))?)?")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True)
class File:
    """`size` bytes, `head` first and then zeros; not `declared`, listings lack its size."""

    size: int
    head: bytes = b""
    lfs: bool = True
    declared: bool = True

    @classmethod
    def of(cls, data: bytes, *, lfs: bool = False, declared: bool = True) -> File:
        return cls(len(data), data, lfs, declared)

    @cached_property
    def sha256(self) -> str:
        """The true digest of real bytes; a stand-in for it where hashing zeros would take hours."""
        if self.size - len(self.head) <= LFS_FROM:
            return hashlib.sha256(self.head.ljust(self.size, b"\0")).hexdigest()
        return hashlib.sha256(b"shape %d " % self.size + self.head).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.sha256[:40]

    def read(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            stop = min(end, start + CHUNK)
            yield self.head[start:stop].ljust(stop - start, b"\0")
            start = stop


def files(contents: Mapping[str, bytes | str | dict[str, Any] | int | File]) -> dict[str, File]:
    """Files by path: text, JSON, bytes, or a size for a shape. Large kinds are LFS by name."""
    made = {}
    for path, content in contents.items():
        if isinstance(content, File):
            made[path] = content
            continue
        if isinstance(content, dict):
            content = json.dumps(content)
        if isinstance(content, str):
            content = content.encode()
        size = content if isinstance(content, int) else len(content)
        lfs = path.endswith(LFS_SUFFIXES) or size > LFS_FROM
        made[path] = File(size, b"" if isinstance(content, int) else content, lfs)
    return made


@dataclass
class Repo:
    """One model repository; `members` are the tokens that may see or fetch what is not open."""

    name: str
    files: dict[str, File]
    gated: str = ""
    private: bool = False
    disabled: bool = False
    members: frozenset[str] = frozenset()
    branches: frozenset[str] = frozenset({"main"})

    @property
    def commit(self) -> str:
        parts = [self.name, *(f"{path} {file.etag}" for path, file in sorted(self.files.items()))]
        return hashlib.sha1("\n".join(parts).encode()).hexdigest()

    def siblings(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for path, file in self.files.items():
            row: dict[str, Any] = {"rfilename": path, "blobId": file.sha256[:40]}
            if file.declared:
                row["size"] = file.size
                if file.lfs:
                    row["lfs"] = {"size": file.size, "sha256": file.sha256, "pointerSize": 135}
            rows.append(row)
        return rows

    def tree(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for path, file in self.files.items():
            row: dict[str, Any] = {"type": "file", "path": path, "size": file.size}
            row["oid"] = file.sha256[:40]
            if file.lfs:
                row["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 135}
            rows.append(row)
        return rows


@dataclass(frozen=True)
class Seen:
    """One request as the hub saw it; `token` is the bearer it carried, `cdn` where it arrived."""

    method: str
    path: str
    cdn: bool
    token: str
    range: str
    status: int


@dataclass
class Hold:
    """Stops the body of one file after `after` bytes until `release()`; `reached` says it did."""

    path: str
    after: int
    reached: threading.Event = field(default_factory=threading.Event)
    _go: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        self._go.set()

    def wait(self) -> None:
        self.reached.set()
        self._go.wait(60)


class LocalHub:
    """The hub; `with LocalHub() as hub` gives its address in `hub.url`.

    Trouble: `rate_limited_s` answers 429 on the API, `broken` (status, body, content type) answers
    every API call so, `drip_s` sends API bodies byte by byte, `hold()` stops a file's body midway,
    `ignore_range` sends 200 for ranges, `body` replaces a listing's JSON.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.seen: list[Seen] = []
        self.sent = 0
        """Bytes that were written to clients since the last `forget`, heads and bodies."""
        self.counting = threading.Lock()
        self.rate_limited_s: int | None = None
        self.broken: tuple[int, bytes, str] | None = None
        self.body: bytes | None = None
        self.drip_s = 0.0
        self.dripped = threading.Event()
        self.ignore_range = False
        self._holds: dict[str, Hold] = {}
        self._front = _Server(("127.0.0.1", 0), self, cdn=False)
        self._cdn = _Server(("127.0.0.2", 0), self, cdn=True)
        self.url = f"http://127.0.0.1:{self._front.server_address[1]}"
        self.cdn_url = f"http://127.0.0.2:{self._cdn.server_address[1]}"

    def __enter__(self) -> Self:
        for server in (self._front, self._cdn):
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for hold in self._holds.values():
            hold.release()
        for server in (self._front, self._cdn):
            server.shutdown()
            server.server_close()

    def add(self, *repos: Repo) -> None:
        self.repos |= {repo.name: repo for repo in repos}

    def hold(self, path: str, after: int) -> Hold:
        """The next body of `path` stops after `after` bytes; once only."""
        self._holds[path] = Hold(path, after)
        return self._holds[path]

    def take_hold(self, path: str) -> Hold | None:
        return self._holds.pop(path, None)

    def fetched(self) -> list[str]:
        """Paths whose bytes were asked for by GET since the last `forget`, in order."""
        return [
            seen.path
            for seen in self.seen
            if seen.method == "GET"
            and seen.status in (200, 206)
            and (seen.cdn or "/resolve/" in seen.path)
        ]

    def forget(self) -> None:
        self.seen.clear()
        self.sent = 0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], hub: LocalHub, *, cdn: bool) -> None:
        self.hub, self.cdn = hub, cdn
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what many tests are about."""


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class _Counted(io.BufferedIOBase):
    """Writes to a client, and tells the hub how much."""

    def __init__(self, stream: io.BufferedIOBase, hub: LocalHub) -> None:
        self._stream, self._hub = stream, hub

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        sent = self._stream.write(data)
        with self._hub.counting:
            self._hub.sent += sent
        return sent

    def flush(self) -> None:
        self._stream.flush()


class _Handler(Quiet):
    server: _Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.wfile = _Counted(self.wfile, self.server.hub)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        try:
            if self.server.cdn:
                self._blob(path)
            elif path.startswith("/api/"):
                self._api(path)
            elif match := _RESOLVE.fullmatch(urlsplit(self.path).path):
                self._resolve(*(unquote(part) for part in match.groups()))
            else:
                self._answer(404, b"Not found", {"Content-Type": "text/plain"})
        except _Refused as refused:
            self._answer(refused.status, json.dumps({"error": refused.message}).encode(), {
                "X-Error-Code": refused.code, "X-Error-Message": refused.message,
                "Content-Type": "application/json",
            })  # fmt: skip

    do_HEAD = do_GET

    @property
    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _api(self, path: str) -> None:
        hub = self.server.hub
        if hub.rate_limited_s is not None:
            limit = f'"api";r=0;t={hub.rate_limited_s}'
            policy = '"fixed window";"api";q=500;w=300'
            return self._answer(429, b"{}", {"RateLimit": limit, "RateLimit-Policy": policy})
        if hub.broken is not None:
            status, body, kind = hub.broken
            return self._answer(status, body, {"Content-Type": kind})
        match = _API.fullmatch(path)
        if match is None:
            raise _Refused(404, "", "Not found")
        repo = self._visible(match[1])
        if match[2] == "auth-check":
            self._may_fetch(repo)
            return self._json({})
        if match[2] == "tree":
            self._revision(repo, (match[3] or "").split("/")[0])
            return self._json(repo.tree())
        if match[2] == "revision":
            self._revision(repo, match[3] or "")
        rows = repo.siblings()
        if parse_qs(urlsplit(self.path).query).get("blobs", [""])[0].lower() != "true":
            rows = [{"rfilename": row["rfilename"]} for row in rows]
        about: dict[str, Any] = {"id": repo.name, "sha": repo.commit, "siblings": rows}
        about |= {"private": repo.private, "gated": repo.gated or False, "disabled": repo.disabled}
        return self._json(about | {"tags": [], "downloads": 0, "likes": 0})

    def _visible(self, name: str) -> Repo:
        """The repository, or the hub's refusals: 401 also hides what is missing."""
        repo = self.server.hub.repos.get(name)
        if repo is None or (repo.private and self._token not in repo.members):
            if not self._token:
                raise _Refused(401, "RepoNotFound", "Invalid username or password.")
            raise _Refused(404, "RepoNotFound", "Repository not found")
        if repo.disabled:
            raise _Refused(403, "", "Access to this resource is disabled.")
        return repo

    def _may_fetch(self, repo: Repo) -> None:
        if repo.gated and self._token not in repo.members:
            words = f"Access to model {repo.name} is restricted. Visit its page to ask for access."
            raise _Refused(403 if self._token else 401, "GatedRepo", words)

    def _revision(self, repo: Repo, revision: str) -> None:
        if unquote(revision) not in repo.branches | {repo.commit}:
            raise _Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repo = self._visible(name)
        self._may_fetch(repo)
        self._revision(repo, revision)
        file = repo.files.get(path)
        headers = {"X-Repo-Commit": repo.commit}
        if file is None:
            raise _Refused(404, "EntryNotFound", "Entry not found")
        if not file.lfs:
            return self._bytes(path, file, headers)
        place = f"{self.server.hub.cdn_url}/{quote(repo.name)}/{file.sha256}/{quote(path)}"
        headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        return self._answer(302, b"", headers | {"Location": place, "ETag": f'"{file.sha256}"'})

    def _blob(self, path: str) -> None:
        org, name, digest, rest = path.removeprefix("/").split("/", 3)
        file = self.server.hub.repos[f"{org}/{name}"].files[rest]
        if file.sha256 != digest:
            raise _Refused(404, "", "no such blob")
        self._bytes(rest, file, {})

    def _bytes(self, path: str, file: File, headers: dict[str, str]) -> None:
        start, end, status = 0, file.size, 200
        match = _RANGE.fullmatch(self.headers.get("Range", ""))
        if match and not self.server.hub.ignore_range:
            start = int(match[1])
            end = min(int(match[2]) + 1, file.size) if match[2] else file.size
            if start >= file.size:
                return self._answer(416, b"", {"Content-Range": f"bytes */{file.size}"})
            status = 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
        headers |= {"ETag": f'"{file.etag}"', "Content-Type": "application/octet-stream"}
        self._head(status, end - start, headers | {"Accept-Ranges": "bytes"})
        if self.command == "HEAD":
            return None
        hold, sent = self.server.hub.take_hold(path), 0
        for chunk in file.read(start, end):
            if hold is not None and sent + len(chunk) > hold.after:
                self.wfile.write(chunk[: max(0, hold.after - sent)])
                self.wfile.flush()
                hold.wait()
                chunk, hold = chunk[max(0, hold.after - sent) :], None
            self.wfile.write(chunk)
            sent += len(chunk)
        return None

    def _json(self, value: object) -> None:
        body = self.server.hub.body
        self._answer(200, json.dumps(value).encode() if body is None else body,
                     {"Content-Type": "application/json; charset=utf-8"})  # fmt: skip

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._head(status, len(body), headers)
        if self.command == "HEAD":
            return
        if self.server.hub.drip_s and urlsplit(self.path).path.startswith("/api/"):
            for byte in body:
                self.wfile.write(bytes([byte]))
                time.sleep(self.server.hub.drip_s)
            self.server.hub.dripped.set()
        else:
            self.wfile.write(body)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.hub.seen.append(Seen(self.command, path, self.server.cdn, self._token,
                                         self.headers.get("Range", ""), status))  # fmt: skip
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
