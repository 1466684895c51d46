"""One question to the hub by its own library, asked in a process of its own.

The library has no deadline for a whole answer, no limit to its size, and reads its settings when it
is imported. A process can be ended, bounded and given an environment; what it prints is one JSON
object, and nothing in it is clean yet.

    python -P -m console.models.hub.listing_child REPO REVISION ENDPOINT
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

MEMORY_LIMIT = 160 << 20
READ_TIMEOUT_S = 10.0


def main(repo: str, revision: str, endpoint: str) -> dict[str, Any]:
    """The answer as plain data: `about`, and `refused` if its files may not be fetched; or `error`
    with `kind` (the class of the library's exception), `status`, `message`, `rate`."""
    try:
        from huggingface_hub import HfApi

        api = HfApi(endpoint=endpoint)
        info = api.model_info(repo, revision=revision, files_metadata=True, timeout=READ_TIMEOUT_S)
        answer: dict[str, Any] = {"about": _about(info)}
        if info.gated:
            try:
                api.auth_check(repo)
            except Exception as error:
                answer["refused"] = _error(error)
        return answer
    except Exception as error:  # every one is told: the parent knows the words
        return {"error": _error(error)}


def _about(info: Any) -> dict[str, Any]:
    rows = [
        {
            "path": file.rfilename,
            "size": file.lfs.size if file.lfs else file.size,
            "sha256": file.lfs.sha256 if file.lfs else None,
        }
        for file in info.siblings or []
    ]
    return {
        "commit": info.sha,
        "disabled": info.disabled,
        "files": rows,
    }


def _error(error: Exception) -> dict[str, Any]:
    """The exception's class, its base classes, and the hub's message."""
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", {})
    return {
        "kinds": [kind.__name__ for kind in type(error).__mro__],
        "status": getattr(response, "status_code", None),
        "rate": headers.get("ratelimit", "") or headers.get("retry-after", ""),
        "message": str(getattr(error, "server_message", None) or error)[:2000],
    }


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    print(json.dumps(main(*sys.argv[1:4])))
