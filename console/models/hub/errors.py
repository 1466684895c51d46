"""The possible errors of a repository, and the hub's refusals in an operator's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.common.errors import ConsoleError, Exit
from console.common.text import one_line
from console.common.units import format_duration
from console.models.hub import settings

ENDPOINT = "check HF_ENDPOINT, the proxy and the firewall: this is not how a model hub answers"
LOGIN = "set HF_TOKEN, or log in with `hf auth login`"
_RESET = re.compile(r"(?:^|;)\s*t\s*=\s*(\d{1,9})")
_UNREACHED = {
    "ConnectError",
    "ConnectionError",
    "ProxyError",
    "NetworkError",
    "UnsupportedProtocol",
}


class HubError(ConsoleError):
    exit_code = Exit.FAILED


class RepositoryMissing(HubError):
    """Missing, private or gated: without a token the hub does not say which."""


class RepositoryGated(HubError):
    """Its terms are not accepted."""


class RepositoryDisabled(HubError):
    """Closed by its owner or the hub."""


class RevisionMissing(HubError):
    """No such branch, tag or commit."""


class RepositoryEmpty(HubError):
    """There is nothing to fetch, or nothing that matches the patterns."""


class FileMissing(HubError):
    """One file is not there."""


class TokenRefused(HubError):
    """The token is not valid."""


class RateLimited(HubError):
    """Too many requests; says when to come back."""

    exit_code = Exit.HOLD


class HubUnreachable(HubError):
    """Offline, no route, no name, no TLS."""

    exit_code = Exit.HOLD


class HubTimeout(HubError):
    """No complete answer within the deadline."""

    exit_code = Exit.HOLD


class HubAnswer(HubError):
    """The answer is not one of a hub."""


class DownloadFailed(HubError):
    """A download did not start, or did not bring what was listed."""


class DiskShort(DownloadFailed):
    """The disk's free space would fall under its floor."""


class DownloadBusy(DownloadFailed):
    """Somebody else is downloading into that directory."""


@dataclass(frozen=True, slots=True)
class HubRequest:
    """A question to the hub: of which repository, where, and with a token or without. Without a
    token the hub answers 401 alike for missing, private and gated repositories, so the words of a
    refusal depend on it."""

    repo: str
    revision: str
    endpoint: str
    with_token: bool

    @property
    def host(self) -> str:
        return settings.host(self.endpoint) or "the hub"

    @property
    def page(self) -> str:
        return f"{self.endpoint}/{self.repo}"


def explain(request: HubRequest, error: Mapping[str, Any]) -> HubError:
    """The operator's error for an exception of the hub's library, as `library.main` reports it."""
    kinds = {kind for kind in error.get("kinds", ()) if isinstance(kind, str)}
    status, message = error.get("status"), one_line(str(error.get("message", "")))
    if "GatedRepoError" in kinds:
        return gated(request)
    if "RevisionNotFoundError" in kinds:
        hint = f"{request.page}/tree/main shows the branches"
        return RevisionMissing(f"{request.repo} has no revision {request.revision}", "", hint)
    if "DisabledRepoError" in kinds:
        hint = f"{request.page} may say why; look for another copy of the model"
        return RepositoryDisabled(f"{request.repo} is disabled", message, hint)
    if "RepositoryNotFoundError" in kinds:
        return missing(request)
    if "RemoteEntryNotFoundError" in kinds:
        return FileMissing(f"{request.repo} lacks that file", message, request.page)
    if isinstance(status, int):
        return by_status(request, status, str(error.get("rate", "")), message)
    if "TimeoutException" in kinds:
        hint = "try again; a slow mirror may need another HF_ENDPOINT"
        return HubTimeout(f"{request.host} did not answer in time", message, hint)
    if kinds & _UNREACHED:
        return unreachable(request, message)
    if kinds & {"ModuleNotFoundError", "ImportError"}:
        hint = "install it where the console runs: pip install huggingface_hub"
        return HubError("huggingface_hub cannot be loaded", message, hint)
    if "JSONDecodeError" in kinds:
        message = "its answer is not JSON: the page of a proxy or a login?"
    elif kinds & {"KeyError", "TypeError", "AttributeError"}:
        message = "its answer lacks what the listing of a model has"
    elif kinds & {"RecursionError", "MemoryError"}:
        message = "its answer is too large or too deeply nested"
    return HubAnswer(f"{request.host} did not answer as a model hub does", message, ENDPOINT)


def by_status(request: HubRequest, status: int, rate: str, message: str) -> HubError:
    if status == 429:
        return rate_limited(request, rate)
    if status == 401 and (request.with_token or "credentials" in message):
        hint = f"the token is wrong or has expired: {LOGIN}"
        return TokenRefused(f"{request.host} refuses the token", message, hint)
    if status == 401:
        return missing(request)
    if status == 403:
        hint = f"may this token read {request.repo}? its settings name the repositories it is for"
        return TokenRefused(f"{request.host} refuses access to {request.repo}", message, hint)
    if status == 404:
        return missing(request)
    if status >= 500:
        return HubUnreachable(
            f"{request.host} is in trouble (HTTP {status})", message, "try again later"
        )
    return HubAnswer(f"{request.host} answered HTTP {status}", message, ENDPOINT)


def missing(request: HubRequest) -> RepositoryMissing:
    if request.with_token:
        detail = "it does not exist, or it is private and the token sent has no access"
        hint = f"check the spelling against {request.page}, and whose token HF_TOKEN is"
    else:
        detail = "it is missing, private or gated: no token was sent, so the hub does not say which"
        hint = f"check the spelling against {request.page}; if it is private or gated, {LOGIN}"
    return RepositoryMissing(f"{request.repo} was not found", detail, hint)


def gated(request: HubRequest) -> RepositoryGated:
    if request.with_token:
        detail = "the token sent is not of an account that accepted its terms"
        hint = f"accept them at {request.page}, then try again (some owners decide by hand)"
    else:
        detail = "its terms have to be accepted, and no token was sent"
        hint = f"accept them at {request.page}, then {LOGIN}"
    return RepositoryGated(f"{request.repo} is gated", detail, hint)


def rate_limited(request: HubRequest, header: str) -> RateLimited:
    """429, with the seconds of a RateLimit (`"api";r=0;t=55`) or Retry-After header."""
    match = _RESET.search(header)
    text = match[1] if match else header.strip()
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    when = "later" if seconds is None else f"in {format_duration(max(10, seconds))}"
    hint = f"try again {when}" + (
        "" if request.with_token else f"; more is allowed with a token: {LOGIN}"
    )
    return RateLimited(f"{request.host} takes no more requests now", "HTTP 429", hint)


def unreachable(request: HubRequest, message: str) -> HubUnreachable:
    hint = "is the machine online? a mirror is set with HF_ENDPOINT, a proxy with HTTPS_PROXY"
    return HubUnreachable(f"{request.host} cannot be reached", message, hint)
