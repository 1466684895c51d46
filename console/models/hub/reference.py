"""What the operator typed: a repository, an address on the hub, or a directory of this machine."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from console.common.errors import UsageError
from console.common.text import one_line
from console.models.hub import settings

FORMS = "org/name, org/name@revision, an address on the hub, hf://org/name, or a path"
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+=#%-]{0,254}")
_SPECIAL = re.compile(r"refs/(?:pr|convert)/[^/]+")
_KINDS = {"datasets", "spaces", "buckets", "kernels", "collections", "papers", "docs"}
_VIEWS = {"tree", "resolve", "blob", "raw"}
PORTS = {"http": 80, "https": 443}
_FILES = (".gguf", ".safetensors", ".bin", ".pth", ".json")


class BadReference(UsageError):
    """What was typed names no repository and no path."""


@dataclass(frozen=True, slots=True)
class RepoReference:
    """A repository; `revision` "" is the default branch, `path` a file or directory in it."""

    repo: str
    revision: str = ""
    path: str = ""


Reference = RepoReference | Path
"""A repository, or a file or directory of this machine; whether that is there was not asked."""


def parse(text: str) -> Reference:
    """Read a repository, `repo@revision`, an address, `hf://…` or a local path.

    `org/name` is a repository even where a directory of that name is here (a playbook means the
    same everywhere): `./org/name` is the directory. Raises BadReference; nothing is sent anywhere.
    """
    text = text.strip()
    if not text or not text.isprintable():
        raise _bad("empty" if not text else "it holds characters that cannot be shown", text)
    if text.startswith("hf://"):
        return _uri(text)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return _address(text, settings.endpoint())
    if text.startswith(("/", "./", "../", "~")) or text in (".", ".."):
        return Path(os.path.expanduser(text))
    repo, _, revision = text.partition("@")
    if repo.count("/") > 1 or repo.lower().endswith(_FILES):
        if os.path.exists(text):
            return Path(text)
        raise _bad("no such file, and a repository has the form org/name", text)
    if ":" in repo:
        hint = "give the quantization as an include pattern, like --include '*Q4_K_M*'"
        raise BadReference("this names no repository", one_line(text), hint)
    if "@" in text and not revision:
        raise _bad("nothing stands after the @", text)
    return RepoReference(check_repo(repo), check_revision(revision) if revision else "")


def typed(text: str) -> str:
    """What a person typed, for `parse`: what is here is meant, though a repository may have that
    name. `hf://org/name` always names the repository."""
    text = text.strip()
    plain = bool(text) and not text.startswith(("/", "./", "../", "~"))
    return f"./{text}" if plain and os.path.exists(text) else text


def check_repo(repo: str) -> str:
    """The repository's name, or BadReference: nothing else may reach a path or a command line."""
    parts = repo.split("/")
    named = 1 <= len(parts) <= 2 and all(_NAME.fullmatch(part) for part in parts)
    if not named or "--" in repo or ".." in repo or repo.endswith(".git"):
        raise _bad("a repository has the form org/name, of letters, digits, - _ and .", repo)
    return repo


def check_revision(revision: str) -> str:
    """The name of a branch, tag or commit, or BadReference."""
    if not _REVISION.fullmatch(revision) or ".." in revision or revision.endswith("/"):
        raise _bad("a revision is a branch, a tag or a commit", revision)
    return revision


def check_path(path: str) -> str:
    """A file's path inside a repository, or BadReference where it could leave its directory."""
    parts = path.split("/")
    if (
        not path.isprintable() or "\\" in path or len(path) > 1024
        or any(part in ("", ".", "..") for part in parts)
    ):  # fmt: skip
        raise _bad("a path in a repository is relative and stays inside", path)
    return path


def _uri(text: str) -> RepoReference:
    """hf://[models/]org/name[@revision][/path]"""
    parts = text.removeprefix("hf://").rstrip("/").split("/")
    if parts[0] in _KINDS:
        raise _bad("only model repositories hold checkpoints", text)
    if parts[0] == "models":
        parts = parts[1:]
    if len(parts) < 2:
        raise _bad("expected hf://org/name", text)
    name, _, revision = parts[1].partition("@")
    rest = "/".join(parts[2:])
    if revision == "refs" and (match := _SPECIAL.match(f"refs/{rest}")):
        revision, rest = match[0], rest[match.end() - len("refs/") :].lstrip("/")
    return _made(f"{parts[0]}/{name}", revision, rest, text)


def _address(text: str, endpoint: str) -> RepoReference:
    """https://host/org/name[/tree|resolve|blob|raw/revision[/path]]"""
    try:
        parts = urlsplit(text)
        known = {settings.host(endpoint), *settings.ALIASES}
        if "@" in parts.netloc:
            raise _bad("an address with a user or password is not used", parts.hostname or "")
        here = urlsplit(endpoint)
        known_port = (parts.hostname or "").lower() != settings.host(endpoint) or (
            parts.port or PORTS.get(parts.scheme)
        ) == (here.port or PORTS.get(here.scheme))
        named = (parts.hostname or "").lower() in known and known_port
        if parts.scheme not in ("http", "https") or not named:
            raise BadReference(
                "this is no address on the hub",
                one_line(text),
                f"the hub is {endpoint}; set HF_ENDPOINT for another one",
            )
    except ValueError:
        raise _bad("this is no address", text) from None
    base = urlsplit(endpoint).path.strip("/")
    path = parts.path.strip("/")
    if base and f"{path}/".startswith(f"{base}/"):
        path = path[len(base) :].strip("/")
    words = [unquote(word) for word in path.split("/")]
    if words[0] in _KINDS or (words[0] == "api" and len(words) > 1):
        raise _bad("only the pages of model repositories are read", text)
    at = 1 if len(words) > 1 and words[1] in _VIEWS else 2
    repo, view, rest = "/".join(words[:at]), words[at : at + 1], words[at + 1 :]
    if not view:
        return _made(repo, "", "", text)
    if view[0] not in _VIEWS or not rest:
        raise _bad("expected a repository's page, or one of its files", text)
    if rest[0] == "refs" and len(rest) > 2:
        rest = ["/".join(rest[:3]), *rest[3:]]
    return _made(repo, rest[0], "/".join(rest[1:]), text)


def _made(repo: str, revision: str, path: str, text: str) -> RepoReference:
    if not repo:
        raise _bad("no repository is named", text)
    revision = "" if revision in ("", "main") else check_revision(revision)
    return RepoReference(check_repo(repo), revision, check_path(path) if path else "")


def _bad(why: str, text: str) -> BadReference:
    return BadReference("this names no repository", f"{one_line(text)}: {why}", f"expected {FORMS}")
