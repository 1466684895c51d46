"""The short question before the first frame: does it answer 200? Without an HTTP library.

Only a plain yes counts. Everything else (503, refused, https, garbage) is asked again by
`console.runtime.probe`, which has the words for it and takes its time to load.
"""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

ENOUGH = 64
"""Bytes of a status line that are looked at."""


def answers_200(url: str, path: str, timeout_s: float) -> bool:
    """One GET over a fresh connection under one deadline; False for all that is not a clear yes."""
    begun = time.monotonic()
    try:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            return False
        target = (parts.path.rstrip("/").removesuffix("/v1") + "/" + path.lstrip("/")) or "/"
        host = parts.netloc.rpartition("@")[2]
        request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        address = (parts.hostname, parts.port or 80)
        with socket.create_connection(address, timeout_s) as peer:
            peer.sendall(request.encode("ascii"))
            data = b""
            while len(data) < ENOUGH and b"\r\n" not in data:
                left = timeout_s - (time.monotonic() - begun)
                if left <= 0:
                    return False
                peer.settimeout(left)
                more = peer.recv(ENOUGH)
                if not more:
                    break
                data += more
    except (OSError, ValueError):
        return False
    words = data.split(b"\r\n")[0].split(b" ")
    return len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1] == b"200"
