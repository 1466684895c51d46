"""Parses names: a repository, an address or a path that the operator typed, and file names.

A file name tells quantization, place in a split set and its role beside a model; it proves nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
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
"""A repository, or a file or directory of this machine, which need not exist."""


def parse(text: str) -> Reference:
    """Read a repository, `repo@revision`, an address, `hf://…` or a local path.

    `org/name` is a repository even if a directory of that name is here (a playbook means the same
    everywhere): `./org/name` is the directory. Raises BadReference; nothing is sent anywhere.
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
        raise _bad("nothing follows the @", text)
    return RepoReference(check_repo(repo), check_revision(revision) if revision else "")


def typed(text: str) -> str:
    """A person's input, prepared for `parse`: an existing local path wins over a repository of that
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
    """A file's path inside a repository, or BadReference if it could leave its directory."""
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


CUT = re.compile(r"\.gguf[.-](?:part|split)[-_.]?\w+$", re.IGNORECASE)
"""A part of a file that was cut with `split`: `.gguf.part1of2`, `.gguf-split-a`, `.part-aa`."""
GGUF_SHARD = re.compile(r"-([0-9]{5})-of-([0-9]{5})\.gguf$", re.IGNORECASE)
_SHARD = re.compile(r"-([0-9]{5,6})-of-([0-9]{5,6})(?=\.[a-z]+$)", re.IGNORECASE)
_QUANTIZATION = re.compile(
    r"(?<![A-Za-z0-9])((?:UD-)?(?:"
    r"IQ[1-4]_(?:XXS|XS|NL|S|M)|Q[2-8]_K(?:_(?:S|M|L|XL|XXL))?|Q[4-8]_[01](?:_[48]_[48])?"
    r"|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|F(?:P)?16|F(?:P)?32))(?![A-Za-z0-9]|_[A-Za-z0-9])",
    re.IGNORECASE,
)
_WORDED = re.compile(
    r"(?<![A-Za-z0-9])(FP8|NVFP4|MXFP4|FP4|INT8|INT4|W[48]A(?:8|16)|AWQ|GPTQ|EXL[23]|BNB|NF4|[2-8]BIT"
    r"|BF16|FP16)(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_SIDECAR = re.compile(
    r"(?:^|[-_.])(?P<kind>mmproj|imatrix)(?:[-_.]|$)|^(?P<head>mtp)[-_.]", re.IGNORECASE
)


def shard(name: str) -> tuple[str, int, int] | None:
    """(`name` without its number, number, of how many), from 1; None for an unsplit file."""
    match = GGUF_SHARD.search(name) if name.lower().endswith(".gguf") else _SHARD.search(name)
    if match is None:
        return None
    return name[: match.start()], int(match[1]), int(match[2])


def gguf_quantization(path: str) -> str:
    """`Q4_K_M` from a GGUF's name or, failing that, from the nearest directory that names one."""
    for part in reversed(path.split("/")):
        part = part.removesuffix(".gguf").removesuffix(".GGUF")
        matches = _QUANTIZATION.findall(part)
        if matches:
            upper = str(matches[-1]).upper()
            return {"FP16": "F16", "FP32": "F32"}.get(upper, upper)
    return ""


def worded_quantization(name: str) -> str:
    """`INT8` from a repository's or a directory's name; "" if it names none."""
    matches = _WORDED.findall(name)
    return str(matches[-1]).upper() if matches else ""


def sidecar(name: str) -> str:
    """`mmproj`, `mtp` or `imatrix` for files that stand beside a model; "" for weights."""
    match = _SIDECAR.search(re.sub(r"\.gguf(?:_file)?$", "", name, flags=re.IGNORECASE))
    return (match["kind"] or match["head"]).lower() if match else ""


def runs(numbers: Iterable[int]) -> tuple[range, ...]:
    """Sorted numbers as runs: 2, 5, 6 → range(2, 3), range(5, 7)."""
    ranges: list[range] = []
    for number in numbers:
        if ranges and number == ranges[-1].stop:
            ranges[-1] = range(ranges[-1].start, number + 1)
        else:
            ranges.append(range(number, number + 1))
    return tuple(ranges)


def gaps(numbers: Iterable[int], total: int) -> tuple[range, ...]:
    """The runs of 1…`total` that the sorted `numbers` lack; takes no room for a large total."""
    ranges, at = [], 1
    for number in numbers:
        if at < number <= total:
            ranges.append(range(at, number))
        at = max(at, number + 1)
    if at <= total:
        ranges.append(range(at, total + 1))
    return tuple(ranges)


def range_words(ranges: tuple[range, ...], most: int = 6) -> str:
    """`2, 5-9`"""
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges[:most]]
    return ", ".join(shown) + (f" and {len(ranges) - most} more runs" if len(ranges) > most else "")
