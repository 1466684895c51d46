"""What can be wrong with a repository, in the words an operator needs.

HubError
├── RepositoryMissing   missing, private or gated: without a token the hub does not say which
├── RepositoryGated     its terms are not accepted
├── RepositoryDisabled  closed by its owner or the hub
├── RevisionMissing     no such branch, tag or commit
├── RepositoryEmpty     nothing to fetch, or nothing that the patterns name
├── FileMissing         one file is not there
├── TokenRefused        the token is not valid
├── RateLimited         too many requests; says when to come back
├── HubUnreachable      offline, no route, no name, no TLS
├── HubTimeout          no whole answer within the deadline
├── HubAnswer           it answered something that is not a hub's answer
└── DownloadFailed      a download did not start, or did not bring what was listed
    ├── DiskShort       the disk would fall under its floor
    └── DownloadBusy    somebody else is downloading into that directory
"""

from __future__ import annotations

from console.common.errors import ConsoleError, Exit


class HubError(ConsoleError):
    exit_code = Exit.FAILED


class RepositoryMissing(HubError):
    pass


class RepositoryGated(HubError):
    pass


class RepositoryDisabled(HubError):
    pass


class RevisionMissing(HubError):
    pass


class RepositoryEmpty(HubError):
    pass


class FileMissing(HubError):
    pass


class TokenRefused(HubError):
    pass


class RateLimited(HubError):
    """`seconds` until the hub takes requests again; None where it did not say."""

    exit_code = Exit.HOLD

    def __init__(self, title: str, detail: str, hint: str, seconds: int | None) -> None:
        super().__init__(title, detail, hint)
        self.seconds = seconds


class HubUnreachable(HubError):
    exit_code = Exit.HOLD


class HubTimeout(HubError):
    exit_code = Exit.HOLD


class HubAnswer(HubError):
    pass


class DownloadFailed(HubError):
    pass


class DiskShort(DownloadFailed):
    pass


class DownloadBusy(DownloadFailed):
    pass
