"""How an event is delivered: to a command, a webhook, a topic of ntfy, or by mail. Only the sender
and `notify --test` come here; every delivery has a deadline over the whole exchange."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from email.header import Header
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any
from urllib.parse import urlsplit

from console.common import redact
from console.common.files import end_of
from console.common.text import decode, one_line
from console.config.playbook.inputs import SecretSource
from console.config.site.notify import NotifyModel, header_value, ntfy_url, url, value_of
from console.host import children
from console.notify.event import Event

ANSWER_S = 10.0
"""How long a web server may take, from the connection to the last byte of its answer's head."""
COMMAND_S = 30.0
MIN_SECRET = 8
"""Characters of a part of an address that may be a secret."""
MAX_SAID = 2000
SENDMAIL = os.pathsep.join(("/usr/sbin", "/usr/lib", "/usr/local/sbin"))
TAGS = {"run-end": "checkered_flag", "approval": "raised_hand", "waiting": "hourglass",
        "guard-kill": "rotating_light", "lease": "alarm_clock", "baseline-down": "rotating_light",
        "baseline-back": "white_check_mark", "slower": "snail", "lessons-due": "books"}  # fmt: skip
"""What ntfy shows beside the title."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a delivery: `words` say it without a secret. `possible`: False if nothing was
    sent, because this process cannot read a value that the channel needs."""

    delivered: bool
    words: str
    possible: bool = True


def deliver(channel: NotifyModel, event: Event) -> Answer:
    """Deliver an event and say what the channel answered. Raises nothing."""
    try:
        if channel.command is not None:
            return _command(channel.command, event)
        if channel.mail is not None:
            return _mail(channel.mail, event)
        given = channel.webhook if channel.webhook is not None else channel.ntfy
        assert given is not None
        try:
            address = value_of("address", given)
            headers = {n: header_value(value_of(n, v)) for n, v in channel.headers.items()}
            (url if channel.webhook is not None else ntfy_url)(address)
        except ValueError as error:
            return Answer(False, one_line(str(error)), possible=False)
        answer = (_webhook if channel.webhook is not None else _ntfy)(address, headers, event)
        secret = (v for v in channel.headers.values() if isinstance(v, SecretSource))
        hidden = [address, *_parts(address), *(value_of("", source) for source in secret)]
        return Answer(answer.delivered, _without(answer.words, hidden))
    except Exception as error:  # whatever a library raises: the next try comes, and the log says it
        return Answer(False, one_line(f"{type(error).__name__}: {error}"))


def _parts(address: str) -> list[str]:
    """What an answer may repeat of an address, the longest first: its path is often the secret."""
    parts = urlsplit(address)
    pieces = [piece for piece in parts.path.split("/") if len(piece) >= MIN_SECRET]
    return [part for part in (parts.path, parts.query, *pieces) if len(part) >= MIN_SECRET]


def _without(words: str, values: list[str]) -> str:
    for value in values:
        words = words.replace(value, redact.HIDDEN)
    return redact.text(words)


def _webhook(address: str, headers: dict[str, str], event: Event) -> Answer:
    ours = {"Content-Type": "application/json", **headers, "Idempotency-Key": _ascii(event.key)}
    return _post(address, ours, _body(event))


def _body(event: Event) -> bytes:
    return json.dumps({"schema": "omni.event/v1", **event.as_json()}).encode() + b"\n"


def _ntfy(address: str, headers: dict[str, str], event: Event) -> Answer:
    ours = {
        "Title": _ascii(f"{event.site}: {event.title}"), "Priority": str(event.urgency),
        "Tags": TAGS.get(event.kind, "computer"), **headers, "Idempotency-Key": _ascii(event.key),
    }  # fmt: skip
    return _post(address, ours, event.text.encode())


def _ascii(text: str) -> str:
    """Text as a header's value: as it is, or encoded as mail has it, which ntfy understands."""
    text = one_line(text, 400)
    return text if text.isascii() else Header(text, "utf-8", maxlinelen=2000).encode()


def _post(address: str, headers: dict[str, str], body: bytes) -> Answer:
    """POST within ANSWER_S in all; redirects are no answer, as the text may not go elsewhere."""
    import asyncio

    import httpx  # only where something is sent: its import takes a third of a second

    async def ask() -> tuple[int, bytes]:
        sent = {"User-Agent": "omni-console", **headers}
        # what the operator wrote as a header goes before the user and password of the address
        named = any(name.lower() == "authorization" for name in headers)
        async with (
            httpx.AsyncClient(timeout=ANSWER_S, auth=httpx.Auth() if named else None) as client,
            client.stream("POST", address, headers=sent, content=body) as answer,
        ):
            if answer.is_success:
                return answer.status_code, b""
            async for chunk in answer.aiter_bytes(MAX_SAID):
                return answer.status_code, chunk
            return answer.status_code, b""

    try:
        status, reply = asyncio.run(asyncio.wait_for(ask(), ANSWER_S))
    except (TimeoutError, httpx.TimeoutException):
        return Answer(False, f"no answer within {ANSWER_S:g} s")
    except httpx.HTTPError as error:
        return Answer(False, one_line(f"{error}" or type(error).__name__))
    # the far side may repeat what it was sent
    sent = redact.Known.of(address, headers)
    words = one_line(sent.text(f"status {status} {decode(reply)}"), 200)
    return Answer(200 <= status < 300, words)


def _command(argv: list[str], event: Event) -> Answer:
    fields: dict[str, Any] = event.as_json()
    del fields["data"]
    env = {f"OMNI_EVENT_{name.upper()}": str(value) for name, value in fields.items()}
    return _run(argv, _body(event), env)


def _mail(address: str, event: Event) -> Answer:
    program = shutil.which("sendmail", path=f"{os.environ.get('PATH', os.defpath)}:{SENDMAIL}")
    if program is None:
        return Answer(False, "this machine has no sendmail")
    message = EmailMessage()
    message["To"] = address
    message["Subject"] = one_line(f"{event.site}: {event.title}")
    message["Date"] = formatdate(event.at, localtime=True)
    message["Message-ID"] = make_msgid(_id(event.key))
    message["Auto-Submitted"] = "auto-generated"
    run = f"\nRun: {event.run}" if event.run else ""
    message.set_content(f"{event.text}\n\nSite: {event.site}{run}\nKind: {event.kind}\n")
    return _run([program, "-i", address], message.as_bytes(), {})


def _id(key: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in key)[:100]


def _run(argv: list[str], given: bytes, env: dict[str, str]) -> Answer:
    """Run a program to its end, COMMAND_S at most. Files are its stdin and stdout: neither a
    program that reads nothing nor one that leaves a child behind holds the sender up."""
    with tempfile.TemporaryFile() as into, tempfile.TemporaryFile() as out:
        into.write(given)
        into.seek(0)
        try:
            child = subprocess.Popen(
                argv, env={**os.environ, **env}, stdin=into, stdout=out, stderr=out, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return Answer(False, one_line(children.start_error(argv[0], "/", error).detail))
        try:
            code = child.wait(COMMAND_S)
        except subprocess.TimeoutExpired:
            children.abandon(child)
            return Answer(False, f"it did not end within {COMMAND_S:g} s, and was killed")
        # a program that fails may repeat its own command line
        output = one_line(redact.Known.of(list(argv)).text(end_of(out, MAX_SAID)))
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return Answer(code == 0, f"{how}{': ' if output else ''}{output}")
