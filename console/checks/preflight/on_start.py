"""What a server opens, listens at and looks for when it starts, and whether it is there as the
server wants it."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Thread
from typing import Any

from console.checks.preflight import Finding, Level
from console.checks.preflight.compatibility import ENGINES, Loader, speaks_gguf
from console.common.options.command_line import value_of
from console.common.options.table import table as option_table
from console.common.options.values import Opened, is_there, opened
from console.common.text import decode, one_line
from console.host.ports import LOCAL, is_local
from console.models.gguf.chat_template import fault
from console.models.hub import model_config
from console.models.hub.checkpoint import Format
from console.models.hub.errors import HubError
from console.models.hub.listing import Listing
from console.models.loader import reasoning

OPENED = "files that it opens"
PARSES = "--reasoning-parser"
TOKENIZER = "tokenizer.json"
LISTENS = "address that it listens at"
MAX_READ = 1 << 20
"""Bytes of a template, grammar or schema that are looked at; a longer one is not judged."""
MAGIC = b"GGUF"
TEMPLATES = ("--chat-template-file", "--chat-template")
WITH_WEIGHTS = ("--lora", "--mmproj", "--spec-draft-model", "--model-draft")
"""Options whose files are GGUF."""
LOOKUP_S = 2.0
"""Most seconds that looking up the name of an address may take."""


def not_there(loader: Loader, format_: Format) -> list[Finding]:
    """Files and directories that the engine opens at its start, by their whole paths, which are not
    there or cannot be what it wants, and addresses that it listens at, which this machine does not
    have. No refusal: they may be made before it starts, or it starts elsewhere."""
    if loader.served or loader.inside or loader.kind == "convert":
        return []
    engine = loader.engine or ("llama.cpp" if speaks_gguf(loader, format_) else "sglang")
    options = ENGINES[engine].options
    findings = _foreign(value_of(loader.args, "--host", option_table(options), loader.env) or "")
    missing, wrong = list[str](), list[str]()
    for file in opened(options, loader.args, loader.env):
        shown = f"{one_line(file.path, 120)} ({file.option})"
        if not Path(file.path).is_absolute():
            continue
        if not is_there(Path(file.path), file.kind):
            missing.append(shown)
        elif why := _wrong(file):
            wrong.append(f"{shown}: {why}")
    if missing:
        words = f"not on this machine: {', '.join(missing)}; without it the server does not start"
        findings.append(
            Finding(Level.UNKNOWN, OPENED, words, "is it there where the command runs?")
        )  # fmt: skip
    if wrong:
        hint = "the server may end at its start: start it once by hand, or correct the file"
        findings.append(Finding(Level.UNKNOWN, OPENED, "; ".join(wrong), hint))
    return findings


def parser_tokens(loader: Loader, listing: Listing, classes: Sequence[str]) -> list[Finding]:
    """A parser of reasoning for whose tokens vLLM looks, and ends without them. The tokenizer is
    read where it lies, or fetched; with another one, or a parser of one's own, nothing is known."""
    options = option_table("vllm")
    parser = value_of(loader.args, PARSES, options, loader.env) or ""
    if loader.engine != "vllm" or loader.served or not reasoning.needed(parser, classes):
        return []
    tokens = " and ".join(reasoning.needed(parser))
    shown = f"{parser} needs the tokens {tokens}"
    others = ("--tokenizer", "--tokenizer-mode", "--reasoning-parser-plugin")
    document = _tokenizer(listing)
    if document is None or any(value_of(loader.args, name, options) for name in others):
        words = f"{PARSES} {shown}, and whether the tokenizer has them is not known here"
        return [Finding(Level.UNKNOWN, OPENED, words, f"{TOKENIZER} says which tokens it has")]
    lacks = reasoning.lacking(parser, (document,))
    if not lacks:
        return []
    words = f"{shown}, and the tokenizer lacks {' and '.join(lacks)}: vLLM ends while it starts"
    return [Finding(Level.FAIL, PARSES, words, "the parser of the model's own family, or none")]


def _tokenizer(listing: Listing) -> dict[str, Any] | None:
    try:
        return _read_tokenizer(listing)
    except (HubError, OSError):
        return None


@lru_cache(maxsize=8)
def _read_tokenizer(listing: Listing) -> dict[str, Any]:
    """tokenizer.json of a directory or a repository, once for all sets of its weights."""
    limit = model_config.INDEX_LIMIT
    if listing.commit:
        return model_config.fetch_json(listing, TOKENIZER, limit=limit, deadline_s=60.0)
    with (Path(listing.repo) / TOKENIZER).open("rb") as file:
        return model_config.parse(TOKENIZER, file.read(limit))


def _wrong(file: Opened) -> str:
    """Why a file that is there may be refused, in words; "" where nothing speaks against it. What
    llama-server b11669 ends with: a grammar or a JSON schema that it cannot read, weights that are
    no GGUF. A template that it cannot read it may pass over, and others end with it."""
    path = Path(file.path)
    if not os.access(path, os.R_OK):
        return "this user may not read it"
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as stream:
            head = stream.read(MAX_READ)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if file.option in WITH_WEIGHTS:
        return "" if head.startswith(MAGIC) else "it is no GGUF"
    text = decode(head)
    if file.option in TEMPLATES:
        why = "" if len(head) == MAX_READ else fault(text)
        return f"no template: {one_line(why, 80)}" if why else ""
    if file.option == "--json-schema-file":
        return _no_schema(text)
    if file.option == "--grammar-file" and text.strip():
        return "nobody here can tell whether the engine can read this grammar"
    return ""


def _no_schema(text: str) -> str:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return "it is no JSON"
    if not isinstance(schema, dict):
        return "it is no JSON object"
    return "nobody here can tell whether the engine can make a grammar of it" if schema else ""


def _foreign(host: str) -> list[Finding]:
    """An address to listen at that this machine does not have, or a name that it cannot look up. Of
    several none is taken, as the plan says."""
    host = host.strip()
    if not host or "," in host or _is_socket(host) or _is_here(host):
        return []
    words = f"this machine has no address {one_line(host, 80)} (--host), and the server needs it"
    return [Finding(Level.UNKNOWN, LISTENS, words, "is it one of the machine that it runs on?")]


def _is_socket(host: str) -> bool:
    """A unix socket, or what a shell or a template has still to make an address of."""
    return "/" in host or host.endswith(".sock") or any(sign in host for sign in "$`{%")


def _is_here(host: str) -> bool:
    try:
        return _has(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        known = (*LOCAL, socket.gethostname().lower())
        return host.lower() in known or any(map(_has, _addresses(host)))


def _has(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return is_local(f"http://[{address}]" if address.version == 6 else f"http://{address}")


def _addresses(name: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses of a name; none if it has none, or no name server tells in time."""
    addresses: list[ipaddress.IPv4Address | ipaddress.IPv6Address] = []

    def look() -> None:
        try:
            entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            addresses.extend(
                ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries
            )
        except (OSError, ValueError):  # UnicodeError is a ValueError
            return

    lookup = Thread(target=look, daemon=True)
    lookup.start()
    lookup.join(LOOKUP_S)
    return list(addresses)
