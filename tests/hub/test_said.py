"""What the downloader's last words mean; as `hf` 2.4 and 1.18 print them."""

from __future__ import annotations

import pytest

from console.models.hub import errors
from console.models.hub.progress import explain
from tests.hub.conftest import listing

SAID: list[tuple[str, type[errors.HubError] | None]] = [
    ("Error: Access denied. Model 'org/model' requires approval.", errors.RepositoryGated),
    ("Error: Model 'org/model' not found.", errors.RepositoryMissing),
    ("Error: Repository not found.", errors.RepositoryMissing),
    ("Error: Revision not found in model 'org/model'.", errors.RevisionMissing),
    ("Error: File not found in model 'org/model'.", errors.RevisionMissing),
    ("OSError: [Errno 28] No space left on device", errors.DiskShort),
    ("Error: 401 Client Error: Unauthorized for url: http://h/x", errors.RepositoryMissing),
    ("Error: Invalid credentials in Authorization header", errors.TokenRefused),
    ("PermissionError: [Errno 13] Permission denied: '/m/a'", errors.DownloadFailed),
    ("No module named huggingface_hub", errors.DownloadFailed),
    ("Error: Invalid value. The file is too large to be downloaded using the regular download"
     " method.", errors.DownloadFailed),
    ("[Errno 111] Connection refused", None),
    ("Error: Consistency check failed: file should be of size 9", None),
    ("HTTP Error 429 thrown while requesting GET http://h/x", None),
    ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("said", "kind"), SAID)
def test_last_words(said: str, kind: type[errors.HubError] | None) -> None:
    found = explain(listing(("a", 1)), ["Downloading", said, "trailing"], with_token=False)
    assert (None if found is None else type(found)) is kind
    assert found is None or found.hint


def test_a_refused_token_is_not_a_missing_repository() -> None:
    said = ["Error: 401 Client Error: Unauthorized for url: http://h/x"]
    assert type(explain(listing(("a", 1)), said, with_token=True)) is errors.TokenRefused
