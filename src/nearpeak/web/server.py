"""Web server of the dashboard: pages, their tables, actions behind a token, and the HTTP API."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from nearpeak.errors import NearpeakError, NotFoundError, SpecError, StoreError
from nearpeak.history.alert_triage import act
from nearpeak.reports.figure_text import clean
from nearpeak.store import Store
from nearpeak.web import request_guard as guard
from nearpeak.web.job_forms import job_routes
from nearpeak.web.page_renderer import ASSETS, Frame, asset, compile_templates, page_html, table_csv, table_json
from nearpeak.web.page_view import View
from nearpeak.web.pages import PAGES, Page, pages, paths
from nearpeak.web.pages.workload import named
from nearpeak.web.query_arguments import Query
from nearpeak.web.request_guard import NOBODY, Guarded, RefusedError, Visitor
from nearpeak.web.server_preload import LONGEST_S, compile_aside, compile_here
from nearpeak.web.site import Setting, Site
from nearpeak.web.workload_reports import report_text, workload_report

LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names of a server that this machine alone reaches."""
AT_ONCE = 3
"""Pages that are built at once: they share one interpreter, so that more of them would all be late."""
_TYPES = {".css": "text/css", ".js": "text/javascript", ".woff2": "font/woff2"}
Endpoint = Callable[[Request], Awaitable[Response]]


def application(
    store: Store, *, reports: Path | None = None, is_private: bool = False, run_token: str = "",
    repository: Path | None = None, hosts: frozenset[str] | None = LOCAL, is_warm: bool = False,
) -> Guarded:  # fmt: skip
    """Return the dashboard over a store as an ASGI application.

    Args:
        reports: folder of reports (.html) to show with the store.
        is_private: whether reading needs a token too.
        repository: Git repository whose commits the farm may search.
        run_token: text of a token that may act as long as this application runs.
        hosts: names in the Host header that are answered to; none for all.
        is_warm: whether to fill slow caches at the start, in the background.
    """
    from nearpeak.web.api import api_routes

    setting = Setting(reports=reports, is_private=is_private, run_token=run_token, repository=repository, paths=paths())
    site = Site(store, setting)
    turns = asyncio.Semaphore(AT_ONCE)
    routes = [
        *api_routes(site),
        *(Route(page.path, _page_endpoint(site, page, turns), methods=["GET"]) for page in pages()),
        Route("/alerts/{alert}/actions", _action_endpoint(site), methods=["POST"]),
        *job_routes(site),
        Route("/sign-in", _sign_in_page(site), methods=["GET"]), Route("/sign-in", _sign_in(site), methods=["POST"]),
        Route("/sign-out", _sign_out, methods=["POST"]), Route("/static/{name:path}", _static, methods=["GET"]),
        Route("/raw/reports/{report}", _raw_report(site), methods=["GET"]),
        Route("/raw/workloads/{workload}", _raw_workload(site), methods=["GET"]),
        Route("/favicon.ico", _favicon, methods=["GET"]),
    ]  # fmt: skip
    failed = _failure(site)
    if is_warm:
        site.is_compiled.clear()
        threading.Thread(target=_warm, args=(site,), daemon=True).start()
    app = Starlette(routes=routes, exception_handlers={NearpeakError: failed, HTTPException: failed})
    return Guarded(app, hosts)


def _warm(site: Site) -> None:
    """Order the alerts; compile in another process, then load what searching, bounding and predicting needs."""
    try:
        compile_templates()
        with suppress(NearpeakError):
            PAGES["triage"].build(site, Query())
        compile_aside()
        compile_here()
    finally:
        site.is_compiled.set()
    with suppress(NearpeakError):
        for name in ("search", "fleet", "opportunities"):
            PAGES[name].build(site, Query(query={"q": "gemm"} if name == "search" else {}))


def _page_endpoint(site: Site, page: Page, turns: asyncio.Semaphore) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        visitor = await run_in_threadpool(guard.visitor_of, site, request)
        guard.check_reading(site, visitor)
        if page.is_computed and not site.is_compiled.is_set():
            await run_in_threadpool(site.is_compiled.wait, LONGEST_S)
        async with turns:
            return await run_in_threadpool(_page_answer, site, page, request, visitor)

    return endpoint


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
    text = written() if visitor.name else site.shared(request.url.path, tuple(sorted(query.items())), written)
    return HTMLResponse(text, headers={"cache-control": "no-cache"})


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


def _action_endpoint(site: Site) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        visitor, form = await guard.written_form(site, request)
        alert = Query(path=request.path_params).id("alert")
        status = await run_in_threadpool(_act, site, alert, form, visitor)
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
        visitor = await run_in_threadpool(guard.visitor_of, site, request)
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


def _raw_report(site: Site) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        guard.check_reading(site, await run_in_threadpool(guard.visitor_of, site, request))
        text = await run_in_threadpool(report_text, site.setting.reports, request.path_params["report"])
        return HTMLResponse(text, headers={"content-security-policy": guard.REPORT_POLICY})

    return endpoint


def _raw_workload(site: Site) -> Endpoint:
    def made(key: str) -> str:
        name, series = named(site, key)
        text: str = site.remembered(f"report {key}", lambda: workload_report(name, series))
        return text

    async def endpoint(request: Request) -> Response:
        guard.check_reading(site, await run_in_threadpool(guard.visitor_of, site, request))
        text = await run_in_threadpool(made, request.path_params["workload"])
        return HTMLResponse(text, headers={"content-security-policy": guard.REPORT_POLICY})

    return endpoint


def _failure(site: Site) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Return what answers when something cannot be done: a page for people, one line for programs."""

    async def failed(request: Request, error: Exception) -> Response:
        status, text = status_of(error), " ".join(str(getattr(error, "detail", error)).split())[:500]
        if request.url.path.startswith("/api/") or "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"error": text}, status_code=status)
        if request.query_params.get("table"):
            return PlainTextResponse(f"{text}\n", status_code=status)
        if status == 401 and request.method == "GET":
            return RedirectResponse("/sign-in", status_code=303)
        if text == "Not Found":  # no route has that path
            text = f"there is no page {clean(request.url.path)[:120]}; search, or take one of the menu"
        return _plain_page(site, "failure", "Not here" if status == 404 else "Not possible", text, NOBODY, status)

    return failed


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
