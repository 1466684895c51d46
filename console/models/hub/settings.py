"""The environment's settings for the hub; the same names that `hf` itself reads.

Pure look-ups, except `token`, which may read the file that `hf auth login` writes.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from console.common.errors import UsageError
from console.common.text import one_line

PUBLIC = "https://huggingface.co"
ALIASES = frozenset({"huggingface.co", "www.huggingface.co", "hf.co"})
_TRUE = {"1", "ON", "YES", "TRUE"}


def endpoint() -> str:
    """The hub's address without a trailing slash: HF_ENDPOINT, or the public one.

    Raises UsageError if it is no http(s) address, or holds a password.
    """
    text = (os.environ.get("HF_ENDPOINT") or PUBLIC).strip().rstrip("/")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and text.isprintable()
        secret, _ = "@" in parts.netloc, parts.port
    except ValueError:
        usable, secret = False, False
    if secret:
        hint = "put the token in HF_TOKEN, or log in with `hf auth login`"
        raise UsageError("the hub's address holds a user or password", "", hint)
    if not usable or " " in text or "?" in text or "#" in text:
        hint = "set HF_ENDPOINT to something like https://huggingface.co, or unset it"
        raise UsageError("the hub's address cannot be used", one_line(text), hint)
    return text


def host(address: str) -> str:
    """The host name of an address, lower case; "" if there is none."""
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def home() -> Path:
    """HF_HOME: where `hf` keeps its token and its cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _path(os.environ.get("HF_HOME") or os.path.join(cache, "huggingface"))


def cache() -> Path:
    """The directory of downloaded repositories (HF_HUB_CACHE)."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return _path(named) if named else home() / "hub"


def token() -> str:
    """The token to send: HF_TOKEN, or the stored one; "" for none.

    A value that no header can hold counts as none.
    """
    secret = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or ""
    if not secret and not true("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        named = os.environ.get("HF_TOKEN_PATH")
        try:
            with (_path(named) if named else home() / "token").open(encoding="utf-8") as file:
                secret = file.read(4096)
        except (OSError, ValueError):
            secret = ""
    secret = secret.replace("\r", "").replace("\n", "").strip()
    return secret if secret.isascii() and secret.isprintable() and " " not in secret else ""


def true(name: str) -> bool:
    """Whether a switch of the environment is on, as `hf` reads it."""
    return os.environ.get(name, "").upper() in _TRUE


def offline() -> bool:
    return true("HF_HUB_OFFLINE") or true("TRANSFORMERS_OFFLINE")


def _path(text: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(text)))
