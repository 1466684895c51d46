"""What a repository holds at one commit: each file, its true size, and whether it is accessible."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from console.common import paths
from console.common.text import decode, one_line
from console.common.units import format_duration
from console.host import children
from console.models.hub import errors, settings
from console.models.hub.errors import (
    HubAnswer,
    HubError,
    HubTimeout,
    HubUnreachable,
    RepositoryEmpty,
)
from console.models.hub.reference import BadReference, check_path, check_repo, check_revision

DEADLINE_S = 20.0
MAX_FILES = 100_000
MAX_BYTES = 1 << 62
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HOUSEKEEPING = {".gitattributes", ".gitignore"}


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file; `size` in bytes, None if the hub does not say; `sha256` "" if unknown."""

    path: str
    size: int | None
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository pinned to `commit`.

    `refused` is why this token may list but not fetch the files, None if it may fetch them.
    """

    repo: str
    commit: str
    endpoint: str
    files: tuple[RemoteFile, ...]
    refused: HubError | None = None

    @property
    def unknown(self) -> tuple[str, ...]:
        """Files whose size the hub does not tell, which make any sum over them unknown."""
        return tuple(file.path for file in self.files if file.size is None)

    def find(self, path: str) -> RemoteFile | None:
        return next((file for file in self.files if file.path == path), None)

    def url(self, path: str) -> str:
        return f"{self.endpoint}/{self.repo}/resolve/{self.commit}/{quote(check_path(path))}"

    def require_access(self) -> None:
        """Raise the refusal if the files may not be fetched."""
        if self.refused is not None:
            raise self.refused


def look_up(repo: str, revision: str = "main") -> Listing:
    """Ask the hub what `repo` holds at `revision`; the whole question takes at most DEADLINE_S.

    Raises BadReference before anything is sent, else a HubError. A gated repository without access
    is listed with `refused` set.
    """
    check_repo(repo)
    revision = check_revision(revision or "main")
    address, secret = settings.endpoint(), settings.token()
    request = errors.HubRequest(repo, revision, address, bool(secret))
    if settings.offline():
        hint = "unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE to ask the hub"
        raise HubUnreachable("the hub is not asked: offline mode is on", "", hint)
    answer = _ask(request, secret)
    if isinstance(error := answer.get("error"), dict):
        raise errors.explain(request, error)
    about, refused = answer.get("about"), answer.get("refused")
    if not isinstance(about, dict):
        raise HubAnswer(f"{request.host} did not answer as a model hub does", "", errors.ENDPOINT)
    held = errors.explain(request, refused) if isinstance(refused, dict) else None
    return read(request, about, held)


def read(request: errors.HubRequest, about: Mapping[str, Any], refused: HubError | None) -> Listing:
    """A Listing from the hub's answer; pure. Raises HubError if it is not plausible."""
    commit = about.get("commit")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        detail = "its answer names no commit, so a later look might see other files"
        raise HubAnswer(f"{request.repo} cannot be pinned", detail, errors.ENDPOINT)
    if about.get("disabled") is True:
        raise errors.explain(request, {"kinds": ["DisabledRepoError"]})
    rows = about.get("files")
    rows = rows if isinstance(rows, list) else []
    if len(rows) > MAX_FILES:
        raise HubAnswer(f"{request.repo} lists more than {MAX_FILES} files", "", "is it a model?")
    files = {file.path: file for file in (_file(request, row) for row in rows)}
    if len(files) != len(rows):
        raise HubAnswer(f"{request.repo} lists a file twice", "", errors.ENDPOINT)
    if not files.keys() - _HOUSEKEEPING:
        detail = f"commit {commit[:12]} holds {some(tuple(files)) if files else 'no files'}"
        hint = "is another revision meant? its page shows the branches"
        raise RepositoryEmpty(f"{request.repo} is empty", detail, hint)
    listed = tuple(files[path] for path in sorted(files))
    return Listing(request.repo, commit, request.endpoint, listed, refused)


def total(files: Iterable[RemoteFile]) -> int | None:
    """Bytes of all of them; None while one size is unknown."""
    sizes = [file.size for file in files]
    return None if None in sizes else sum(size or 0 for size in sizes)


def some(names: tuple[str, ...], most: int = 3) -> str:
    """`a, b and 4 more`"""
    shown = ", ".join(one_line(name, 80) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _file(request: errors.HubRequest, row: object) -> RemoteFile:
    row = row if isinstance(row, dict) else {}
    path, size, digest = row.get("path"), row.get("size"), row.get("sha256")
    try:
        path = check_path(path if isinstance(path, str) else "")
    except BadReference as error:
        hint = "such a repository is broken or hostile: do not download it"
        raise HubAnswer(
            f"{request.repo} lists a file that is no path", error.detail, hint
        ) from None
    known = isinstance(size, int) and not isinstance(size, bool) and 0 <= size < MAX_BYTES
    digest = digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else ""
    return RemoteFile(path, size if known else None, digest)


def _ask(request: errors.HubRequest, token: str) -> dict[str, Any]:
    """The output of the library's process. Raises HubTimeout, HubAnswer, HubUnreachable."""
    argv = [
        *paths.module_argv("console.models.hub.listing_child"),
        request.repo,
        request.revision,
        request.endpoint,
    ]
    try:
        code, out, error = children.run(argv, DEADLINE_S, env=child_env(request.endpoint, token))
    except subprocess.TimeoutExpired:
        raise HubTimeout(
            f"{request.host} did not answer within {format_duration(DEADLINE_S)}",
            f"asked for {request.repo}",
            "try again; a slow mirror may need another HF_ENDPOINT",
        ) from None
    except OSError as failure:
        raise HubError(
            "the hub cannot be asked",
            failure.strerror or "",
            "is the Python installation complete?",
        ) from None
    text = decode(out)
    if token:  # a server may send back what it was sent
        text = text.replace(token, "(token)")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if code or not isinstance(answer, dict):
        last = decode(error).strip().splitlines()[-1:] or [f"exit status {code}"]
        raise HubAnswer(
            f"{request.host} could not be understood", one_line(last[0]), errors.ENDPOINT
        )
    return answer


def child_env(endpoint: str, token: str) -> dict[str, str]:
    """The environment for the hub's library: one endpoint, one token, no telemetry."""
    env = {name: value for name, value in os.environ.items() if name not in _NOT_HANDED_ON}
    env |= {
        "HF_ENDPOINT": endpoint,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_COLOR": "1",
    }
    return env | ({"HF_TOKEN": token} if token else {})


_NOT_HANDED_ON = {
    "HF_DEBUG",
    "HF_TOKEN",
    "HF_HUB_ENABLE_HF_TRANSFER",
    "HUGGING_FACE_HUB_TOKEN",
    "HUGGINGFACE_CO_STAGING",
}
