"""Who may ask: this page alone. Host, origin and token are checked before any request is read.

The page and its scripts hold no secret and are served to whoever is on this machine. Everything else needs the token,
which the address in the terminal carries after `#`, where no server and no log sees it. The page sends it as a header
and not as a cookie: cookies are shared by all ports of a host, so that another server on this machine would be sent
it; and a header of this name cannot be set by a page of another origin.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["TOKEN_HEADER", "Guard", "signature"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

TOKEN_HEADER = "x-gratis-token"
_LARGEST_BODY = 2**20
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def signature(token: str, text: str) -> str:
    """Return what a link to one file carries instead of the token: it opens that file and nothing else."""
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()


class Guard:
    """ASGI middleware that refuses what does not come from the studio's own page."""

    def __init__(self, app: Any, *, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"127.0.0.1:{port}".encode(), f"localhost:{port}".encode()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then pass on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > _LARGEST_BODY:  # without a stated length: what is cut short is no JSON
                return {"type": "http.request", "body": b"", "more_body": False}
            return message

        async def covered(message: Message) -> None:
            if message["type"] == "http.response.start":
                stated = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in stated),
                ]
            await send(message)

        await self._app(scope, bounded, covered)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in headers and name in (b"host", b"origin", TOKEN_HEADER.encode()):
                return 400, "a header was given twice"
            headers[name] = value
        host = headers.get(b"host", b"").lower()
        if host not in self._hosts:
            return 403, "the studio answers at 127.0.0.1 and localhost only"
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in {b"http://" + host}:
            return 403, "the studio answers its own page only"
        if not scope["path"].startswith("/api/"):
            return None if scope["method"] in ("GET", "HEAD") else (405, "this can only be read")
        if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
            return 403, "the studio answers its own page only"
        if not hmac.compare_digest(headers.get(TOKEN_HEADER.encode(), b""), self._token):
            return 403, "the token is missing or wrong: open the address that `gratis studio` printed"
        if scope["method"] == "POST":
            if headers.get(b"content-type", b"").split(b";")[0].strip() != b"application/json":
                return 415, "the studio reads JSON only"
            length = headers.get(b"content-length", b"0")
            if not length.isdigit() or int(length) > _LARGEST_BODY:
                return 413, "the request is larger than a megabyte"
        return None


async def _answer(send: Send, status: int, sentence: str) -> None:
    import json

    body = json.dumps({"error": sentence}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **_HEADERS}
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body})
