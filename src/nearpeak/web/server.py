"""Web server of the dashboard: pages, their tables, actions behind a token, and the HTTP API."""

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from nearpeak.errors import NearpeakError, NotFoundError, SpecError, StoreError
from nearpeak.history.alert_triage import act
from nearpeak.reports.figure_text import clean
from nearpeak.store import Store
from nearpeak.web import pages as site_pages
from nearpeak.web import request_guard as guard
from nearpeak.web.job_forms import job_routes
from nearpeak.web.page_renderer import ASSETS, Frame, asset, compile_templates, page_html, table_csv, table_json
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page, pages, paths
from nearpeak.web.pages.workload import named
from nearpeak.web.prometheus_metrics import METRICS_TYPE, Traffic, metrics_text
from nearpeak.web.query_arguments import Query
from nearpeak.web.request_guard import NOBODY, Guarded, RefusedError, Visitor
from nearpeak.web.request_queues import EXPORTS, PAGES, READS, WRITES, Queues
from nearpeak.web.server_preload import LONGEST_S, compile_aside, compile_here
from nearpeak.web.site import Setting, Site
from nearpeak.web.workload_reports import report_text, workload_report

LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names of a server that this machine alone reaches."""
AGAIN = {"retry-after": "2"}
"""Header of answers that say that it may work in a while."""
_FRESH = {"cache-control": "no-cache"}
_TYPES = {".css": "text/css", ".js": "text/javascript", ".woff2": "font/woff2"}
Endpoint = Callable[[Request], Awaitable[Response]]


def application(
    store: Store, *, reports: Path | None = None, is_private: bool = False, run_token: str = "",
    repository: Path | None = None, hosts: frozenset[str] | None = LOCAL, is_warm: bool = False,
    own_uid: int | None = None, run_scope: str = "submit",
) -> Guarded:  # fmt: skip
    """Return the dashboard over a store as an ASGI application.

    Args:
        reports: folder of reports (.html) to show with the store.
        is_private: whether reading needs a token too.
        repository: Git repository whose commits the farm may search.
        run_token: text of a token that holds as long as this application runs.
        run_scope: what it allows.
        own_uid: user of this host who alone reads without a token; none for everybody.
        hosts: names in the Host header that are answered to; none for all.
        is_warm: whether to fill slow caches at the start, in the background.
    """
    from nearpeak.web.api import api_routes

    setting = Setting(
        reports=reports, is_private=is_private, run_token=run_token, repository=repository, paths=paths(),
        own_uid=own_uid, run_scope=run_scope,
    )  # fmt: skip
    site, queues, traffic = Site(store, setting), Queues(), Traffic()
    routes = [
        *api_routes(site, queues),
        *(Route(page.path, _page_endpoint(site, page, queues), methods=["GET"]) for page in pages()),
        Route("/alerts/{alert}/actions", _action_endpoint(site, queues), methods=["POST"]),
        *job_routes(site, queues), Route("/metrics", _metrics(site, queues, traffic), methods=["GET"]),
        Route("/sign-in", _sign_in_page(site), methods=["GET"]), Route("/sign-in", _sign_in(site), methods=["POST"]),
        Route("/sign-out", _sign_out, methods=["POST"]), Route("/static/{name:path}", _static, methods=["GET"]),
        Route("/raw/reports/{report}", _raw_report(site, queues), methods=["GET"]),
        Route("/raw/workloads/{workload}", _raw_workload(site, queues), methods=["GET"]),
        Route("/favicon.ico", _favicon, methods=["GET"]),
    ]  # fmt: skip
    failed = _failure(site)
    if is_warm:
        site.is_compiled.clear()
        threading.Thread(target=_warm, args=(site,), daemon=True).start()
    handlers: dict[Any, Any] = {NearpeakError: failed, HTTPException: failed, ClientDisconnect: _gone}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # its redirects would go wherever the header Host says
    return Guarded(app, hosts, traffic)


def _warm(site: Site) -> None:
    """Order the alerts; compile in another process, then load what searching, bounding and predicting needs."""
    try:
        compile_templates()
        with suppress(NearpeakError):
            site_pages.PAGES["triage"].build(site, Query())
        compile_aside()
        compile_here()
    finally:
        site.is_compiled.set()
    with suppress(NearpeakError):
        for name in ("search", "fleet", "opportunities", "efficiency"):
            site_pages.PAGES[name].build(site, Query(query={"q": "gemm"} if name == "search" else {}))
    gc.collect()
    gc.freeze()  # else each search for cycles goes over all that was loaded, while every request waits


def _page_endpoint(site: Site, page: Page, queues: Queues) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        visitor = await guard.reader_of(site, request)
        if not visitor.name and (text := site.shared_now(*_address(request))) is not None:
            return HTMLResponse(text, headers=_FRESH)
        end_s = time.monotonic() + LONGEST_S
        while page.is_computed and not site.is_compiled.is_set() and time.monotonic() < end_s:
            await asyncio.sleep(0.1)
        kind = EXPORTS if request.query_params.get("table") else PAGES
        async with queues.turn(kind):
            if await request.is_disconnected():
                raise ClientDisconnect
            return await run_in_threadpool(_page_answer, site, page, request, visitor)

    return endpoint


def _address(request: Request) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return path and query of a page, as it is shared among those who are not signed in."""
    return request.url.path, tuple(sorted(request.query_params.items()))


def _page_answer(site: Site, page: Page, request: Request, visitor: Visitor) -> Response:
    query = dict(request.query_params)
    table, form = query.pop("table", ""), query.pop("format", "")
    arguments = Query(path=request.path_params, query=query, is_whole=bool(table), is_admin=visitor.can_administer)
    if table:
        return _table_answer(page.build(site, arguments), table, form)

    def written() -> str:
        return page_html(page.build(site, arguments), frame)

    frame = Frame(
        site=site, page=page.name, path=request.url.path, query=query, actor=visitor.name,
        can_write=visitor.can_write, mark=guard.mark_of(visitor) if visitor.can_write else "",
    )  # fmt: skip
    # Many look at the same few pages: of those who are not signed in, one waits for all who come at the same time.
    text = written() if visitor.name else site.shared(*_address(request), written)
    return HTMLResponse(text, headers=_FRESH)


def _table_answer(view: View, name: str, form: str) -> Response:
    table = next((candidate for candidate in view.tables if candidate.name == name), None)
    if table is None:
        raise NotFoundError(f"table {name[:60]!r}: is not on this page")
    if form not in ("csv", "json"):
        raise SpecError(f"format {form[:20]!r}: is neither csv nor json")
    text = table_csv(table) if form == "csv" else table_json(table)
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/json"
    safe = "".join(letter for letter in table.name if letter.isalnum())
    return Response(text, media_type=kind, headers={"content-disposition": f'attachment; filename="{safe}.{form}"'})


def _action_endpoint(site: Site, queues: Queues) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        visitor, form = await guard.written_form(site, request)
        alert = Query(path=request.path_params).id("alert")
        status = await queues.run(WRITES, _act, site, alert, form, visitor)
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"alert": alert, "status": status})
        return RedirectResponse(f"/alerts/{alert}", status_code=303)

    return endpoint


def _act(site: Site, alert: int, form: dict[str, str], visitor: Visitor) -> str:
    action, days = form.get("action", ""), form.get("days", "") or "7"
    if not (days.isascii() and days.isdigit() and len(days) < 5):
        raise SpecError("days: is not a whole number")
    return act(
        site.store, alert, action, actor=visitor.name, note=form.get("note", ""), assignee=form.get("assignee", ""),
        days=int(days),
    )  # fmt: skip


def _sign_in_page(site: Site) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        visitor = await guard.visitor_of(site, request)
        return _plain_page(site, "sign_in", "Sign in", "", visitor)

    return endpoint


def _sign_in(site: Site) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        guard.check_origin(request)
        form = await guard.form_of(request)
        text = form.get("token", "").strip()
        visitor = await run_in_threadpool(guard.visitor_with, site, text)
        if not visitor.scope:
            message = "that is no token that holds; it may have ended"
            return _plain_page(site, "sign_in", "Sign in", message, NOBODY, status=401)
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(guard.COOKIE, text, httponly=True, samesite="strict", secure=request.url.scheme == "https",
                          max_age=12 * 3600)  # fmt: skip
        return answer

    return endpoint


async def _sign_out(request: Request) -> Response:
    guard.check_origin(request)
    answer = RedirectResponse("/", status_code=303)
    answer.delete_cookie(guard.COOKIE, httponly=True, samesite="strict")
    return answer


def _plain_page(site: Site, template: str, title: str, message: str, visitor: Visitor, status: int = 200) -> Response:
    frame = Frame(site=site, page=template, path="/", actor=visitor.name, can_write=visitor.can_write)
    view = View(title=title, template=template, context={"said": message})
    return HTMLResponse(page_html(view, frame), status_code=status)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ASSETS:
        raise NotFoundError("file: is not there")
    headers = {"cache-control": "public, max-age=31536000, immutable" if "v" in request.query_params else "no-cache"}
    return Response(asset(name), media_type=_TYPES[name[name.rindex(".") :]], headers=headers)


async def _favicon(_: Request) -> Response:
    return Response(status_code=204)


def _metrics(site: Site, queues: Queues, traffic: Traffic) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        await guard.reader_of(site, request)
        text = await queues.run(READS, metrics_text, site, traffic)
        return Response(text, headers={"content-type": METRICS_TYPE})

    return endpoint


def _raw_report(site: Site, queues: Queues) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        await guard.reader_of(site, request)
        text = await queues.run(READS, report_text, site.setting.reports, request.path_params["report"])
        return HTMLResponse(text, headers={"content-security-policy": guard.REPORT_POLICY})

    return endpoint


def _raw_workload(site: Site, queues: Queues) -> Endpoint:
    def made(key: str) -> str:
        name, series = named(site, key)
        text: str = site.remembered(f"report {key}", lambda: workload_report(name, series))
        return text

    async def endpoint(request: Request) -> Response:
        await guard.reader_of(site, request)
        text = await queues.run(PAGES, made, request.path_params["workload"])
        return HTMLResponse(text, headers={"content-security-policy": guard.REPORT_POLICY})

    return endpoint


def _failure(site: Site) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Return what answers when something cannot be done: a page for people, one line for programs."""

    async def failed(request: Request, error: Exception) -> Response:
        status, text = status_of(error), " ".join(str(getattr(error, "detail", error)).split())[:500]
        if request.url.path.startswith("/api/") or "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"error": text}, status_code=status, headers=AGAIN if status == 503 else None)
        if status == 503 or request.query_params.get("table") or request.url.path == "/metrics":
            return PlainTextResponse(f"{text}\n", status_code=status, headers=AGAIN if status == 503 else None)
        if status == 401 and request.method == "GET":
            return RedirectResponse("/sign-in", status_code=303)
        if text == "Not Found":  # no route has that path
            text = f"there is no page {clean(request.url.path)[:120]}; search, or take one of the menu"
        return _plain_page(site, "failure", "Not here" if status == 404 else "Not possible", text, NOBODY, status)

    return failed


async def _gone(_: Request, __: Exception) -> Response:
    """Answer a client that left before its body was whole: nobody reads it."""
    return Response(status_code=400)


def status_of(error: Exception) -> int:
    """Return the status of the answer to a request that failed.

    >>> status_of(NotFoundError("run 7: is not in the store")), status_of(SpecError("q: is too long"))
    (404, 400)
    """
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, NotFoundError):
        return 404
    return 503 if isinstance(error, StoreError) else 400
