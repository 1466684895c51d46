"""What every request has to pass before anything answers it, and what every answer carries."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.frontends.web.access import Addresses

MAX_BODY = 8 * 1024
READING = ("GET", "HEAD")
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Of every answer: no script, style or font of somebody else, no frame around it, no trace left."""


class TooLarge(Exception):
    """A body is larger than any that this server takes."""


class Gate:
    """Refuses what names another host or comes from another origin, and what is too large."""

    def __init__(self, app: ASGIApp, addresses: Addresses) -> None:
        self._app, self._addresses = app, addresses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        status, words = self._refusal(scope)
        if status and scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif status:
            refused = PlainTextResponse(words + "\n", status)
            await refused(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await self._app(scope, receive, send)
        else:
            await self._app(scope, _limited(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> tuple[int, str]:
        """Status and words for what is refused; (0, "") for what may pass."""
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self._addresses.allows(hosts[0]):
            return 403, "no such host is served here"
        asks = scope["type"] == "http" and scope["method"] in READING
        if origins != [self._addresses.origin(hosts[0])] and (origins or not asks):
            return 403, "only pages of this server may ask it"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:12]) > MAX_BODY or len(length) > 12:
            return 413, f"at most {MAX_BODY} bytes are taken"
        return 0, ""


def _limited(receive: Receive) -> Receive:
    """A body without a length is cut off where it becomes too large."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise TooLarge
        return message

    return limited


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Any = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sending
