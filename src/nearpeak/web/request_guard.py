"""Request authorization: response headers, bounded bodies, tokens, and CSRF marks."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from nearpeak.errors import NearpeakError, SpecError
from nearpeak.store.access_tokens import Token, allows
from nearpeak.web.prometheus_metrics import Traffic
from nearpeak.web.site import Site

COOKIE = "nearpeak_token"
PEER = "nearpeak_peer_uid"
"""Key in the state of a request: the user at its other end, where the system tells."""
SMALL_BYTES = 64 * 1024
"""Largest form, and largest body of what is no upload."""
MOST_REQUESTS = 1000
"""Requests that are worked on, or wait, at once."""
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content security policy of pages: load from this server only, run no inline script."""
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""Content security policy of a report in its frame: inline scripts in an opaque origin, no network access."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)
_SECRET = secrets.token_bytes(32)
"""Signs the marks of forms; another one with every start."""
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]


class RefusedError(NearpeakError):
    """Refusal of a request, with its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        """Keep the status of the answer."""
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who asks."""

    name: str = ""
    """Name of the token; empty for none."""
    scope: str = ""
    """Scope of its token; empty without a token."""
    text: str = ""
    """The token itself, for marks of forms."""
    is_own: bool = False
    """Whether it is a process of the user who runs the server, as the system tells."""

    @property
    def can_write(self) -> bool:
        """Whether it may act on alerts and send results."""
        return allows(self.scope, "submit")

    @property
    def can_administer(self) -> bool:
        """Whether it may see permissions and the audit log."""
        return allows(self.scope, "admin")


NOBODY = Visitor()


async def visitor_of(site: Site, request: Request) -> Visitor:
    """Return the visitor of a request, by the token of its header, else of its cookie, else by its user on this host.

    A request with the header `Authorization` is that of a program: its cookies are not looked at.
    """
    header = request.headers.get("authorization")
    text = request.cookies.get(COOKIE, "")
    if header is not None:
        text = header[7:].strip() if header[:7].lower() == "bearer " else ""
    visitor = await run_in_threadpool(visitor_with, site, text) if text else NOBODY
    owner_uid, peer = site.setting.own_uid, request.scope.get("state", {}).get(PEER)
    return replace(visitor, is_own=owner_uid is not None and peer == owner_uid)


async def reader_of(site: Site, request: Request) -> Visitor:
    """Return the visitor of a request; refuses those without read permission."""
    visitor = await visitor_of(site, request)
    check_reading(site, visitor)
    return visitor


def visitor_with(site: Site, text: str) -> Visitor:
    """Return the visitor that a token identifies; an anonymous one for an invalid token."""
    ours = site.setting.run_token
    if ours and hmac.compare_digest(text.encode("utf-8", "replace"), ours.encode()):
        return Visitor(name="run token", scope=site.setting.run_scope, text=text)
    token: Token | None = site.store.access.token(text) if text else None
    return NOBODY if token is None else Visitor(name=token.name, scope=token.scope, text=text)


def check_reading(site: Site, visitor: Visitor) -> None:
    """Refuse visitors without read permission."""
    if site.setting.is_private and not visitor.scope:
        raise RefusedError(401, "this dashboard is private: sign in with a token")
    if site.setting.own_uid is not None and not visitor.scope and not visitor.is_own:
        raise RefusedError(401, "this dashboard is for the user who runs it: sign in with a token, or have it served "
                                "by 'nearpeak serve --public'")  # fmt: skip


def check_writing(visitor: Visitor) -> None:
    """Refuse visitors without write permission."""
    if not visitor.scope:
        raise RefusedError(401, "writing needs a token: nearpeak token add NAME --scope submit")
    if not visitor.can_write:
        raise RefusedError(403, f"token {visitor.name!r} may only {visitor.scope}")


def check_origin(request: Request) -> None:
    """Refuse a form that another site sends."""
    fetched = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    here = request.headers.get("host", "")
    if fetched not in ("same-origin", "none") or (origin is not None and urlsplit(origin).netloc != here):
        raise RefusedError(403, "this form comes from another site")


def mark_of(visitor: Visitor) -> str:
    """Return what the forms of a visitor bring back."""
    return hmac.new(_SECRET, visitor.text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


async def body_of(request: Request, most_bytes: int) -> bytes:
    """Return the body of a request.

    Raises:
        RefusedError: it is too large, or packed.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RefusedError(415, "bodies are sent unpacked")
    stated = request.headers.get("content-length", "0")
    if not stated.isdigit() or int(stated[:20]) > most_bytes:
        raise RefusedError(413, f"the body is larger than {most_bytes} bytes")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise RefusedError(413, f"the body is larger than {most_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form.

    Raises:
        RefusedError: it is too large, or no form.
    """
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise RefusedError(415, "forms are sent as application/x-www-form-urlencoded")
    data = await body_of(request, SMALL_BYTES)
    try:
        return dict(parse_qsl(data.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="strict"))
    except ValueError as error:
        raise SpecError(f"form: cannot be read: {error}") from None


async def written_form(site: Site, request: Request) -> tuple[Visitor, dict[str, str]]:
    """Return the sender and fields of a form; refuses visitors without write permission, and forged forms."""
    visitor = await visitor_of(site, request)
    check_writing(visitor)
    check_origin(request)
    form = await form_of(request)
    if not hmac.compare_digest(mark_of(visitor).encode(), form.get("mark", "").encode("utf-8", "replace")):
        raise RefusedError(403, "this form is out of date; load the page again")
    return visitor, form


class Guarded:
    """An application whose every answer has the headers above, and that answers to its own names only."""

    def __init__(self, app: Callable[..., Awaitable[None]], hosts: frozenset[str] | None, traffic: Traffic) -> None:
        """Keep the application.

        Args:
            hosts: names in the Host header that are answered to; none for all.
            traffic: counts what is answered.
        """
        self._app, self._hosts, self.traffic = app, hosts, traffic

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start_s = time.perf_counter()

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                extra = [pair for pair in HEADERS if pair[0] not in present]
                if b"content-security-policy" not in present:
                    extra.append((b"content-security-policy", POLICY.encode()))
                spent_s = time.perf_counter() - start_s
                extra.append((b"server-timing", f"app;dur={spent_s * 1e3:.1f}".encode()))
                message["headers"] = [*message["headers"], *extra]
                self.traffic.count(message["status"], spent_s)
            await send(message)

        if not self._is_ours(scope):  # a page elsewhere may have made that name point here
            await _refuse(sent, 421, "this server does not go by that name")
        elif self.traffic.open_count >= MOST_REQUESTS:
            await _refuse(sent, 503, "too many requests at once; come again in a second", (b"retry-after", b"1"))
        else:
            with self.traffic.request():
                await self._app(scope, receive, sent)

    def _is_ours(self, scope: Scope) -> bool:
        if self._hosts is None:
            return True
        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        return host.rpartition(":")[0] in self._hosts or host in self._hosts


async def _refuse(send: Any, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    headers = ((b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close"), *headers)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
