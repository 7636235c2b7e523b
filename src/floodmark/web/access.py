"""Who may look and act: the token, the session cookie behind it, and what every answer tells the browser."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from floodmark.errors import ConfigError
from floodmark.inputs import read_text

if TYPE_CHECKING:
    from starlette.requests import Request


COOKIE = "floodmark_session"
SESSION_SECONDS = 12 * 3600.0
SHORTEST_TOKEN = 16
LONGEST_FORM = 64 * 1024
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none, a browser would not tell the origin of our own forms either
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def read_token(path: Path) -> str:
    """The token in a file. Raises ConfigError if there is none, or one that can be guessed."""
    token = read_text(path, what="the token file", hint="name a file that holds one").strip()
    if len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"the token in {path} has fewer than {SHORTEST_TOKEN} characters.",
            hint=f"openssl rand -hex 32 > {path} && chmod 600 {path}",
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass
class Gate:
    """Lets requests in or not. Without a token everybody on this machine may look, and nobody may act."""

    token: str | None = None
    hosts: frozenset[str] = frozenset()
    """The names by which this server may be called; empty: any. A page elsewhere cannot borrow our address by DNS."""
    _sessions: dict[str, float] = field(default_factory=dict)

    def knows_host(self, request: Request) -> bool:
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        return not self.hosts or name in self.hosts or is_loopback(name)

    def may_look(self, request: Request) -> bool:
        return self.token is None or self.is_known(request)

    def may_act(self, request: Request) -> bool:
        return self.token is not None and self.is_known(request)

    def is_known(self, request: Request) -> bool:
        """By the session cookie, or by the token itself in an `Authorization: Bearer` header."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_token(given)
        until = self._sessions.get(request.cookies.get(COOKIE, ""), 0.0)
        return until > time.monotonic()

    def is_token(self, given: str) -> bool:
        """Compared in a time that tells nothing about the token."""
        if self.token is None:
            return False
        return hmac.compare_digest(
            hashlib.sha256(given.encode()).digest(), hashlib.sha256(self.token.encode()).digest()
        )

    def open_session(self) -> str:
        """The value of a new cookie; sessions that are over are forgotten."""
        now = time.monotonic()
        self._sessions = {name: until for name, until in self._sessions.items() if until > now}
        session = secrets.token_urlsafe(32)
        self._sessions[session] = now + SESSION_SECONDS
        return session

    def form_key(self, request: Request) -> str:
        """What a form of this session carries, so that a page elsewhere cannot post in its name."""
        session = request.cookies.get(COOKIE, "")
        return hmac.new((self.token or "").encode(), session.encode(), hashlib.sha256).hexdigest()

    def is_own_form(self, request: Request, form: Mapping[str, str]) -> bool:
        """Whether a post comes from a page of ours: by its origin, by what the browser says, and by the form's key."""
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            return False
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        return hmac.compare_digest(form.get("key", "").encode(), self.form_key(request).encode())


async def read_form(request: Request) -> dict[str, str] | None:
    """The fields of a form, each once; None if it is longer than any form of ours."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST_FORM:
            return None
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50)
    return {name: values[-1] for name, values in fields.items()}
