"""Forms that put jobs into the queue of the farm: of an alert, a series or a case; a token and a mark are needed."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from nearpeak.core.history import Series
from nearpeak.errors import NotFoundError
from nearpeak.farm.queue import Submitted
from nearpeak.store.listed import AlertRow
from nearpeak.web import _guard as guard
from nearpeak.web._again import put
from nearpeak.web._asked import Asked
from nearpeak.web._site import Site, case_key

About = tuple[Sequence[Series], AlertRow | None]


def job_routes(site: Site) -> list[Route]:
    """Return where the forms go."""
    kinds = {"/alerts/{alert}/jobs": _of_alert, "/series/{series}/jobs": _of_series, "/cases/{case}/jobs": _of_case}
    return [Route(path, _endpoint(site, about), methods=["POST"]) for path, about in kinds.items()]


def _endpoint(site: Site, about: Callable[[Site, Asked], About]) -> Callable[[Request], Awaitable[Response]]:
    def done(asked: Asked, form: dict[str, str], actor: str) -> Submitted:
        series, alert = about(site, asked)
        return put(site, form.get("action", ""), series, alert, (actor, form.get("once", "")))

    async def endpoint(request: Request) -> Response:
        visitor = await run_in_threadpool(guard.visitor_of, site, request)
        guard.check_writing(visitor)
        guard.check_origin(request)
        form = await guard.form_of(request)
        guard.check_mark(visitor, form.get("mark", ""))
        found = await run_in_threadpool(done, Asked(path=request.path_params), form, visitor.name)
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"jobs": list(found.uids), "new": found.new_count})
        return RedirectResponse(f"{request.url.path.removesuffix('/jobs')}#h-again", status_code=303)

    return endpoint


def _of_alert(site: Site, asked: Asked) -> About:
    number = asked.id("alert")
    found = site.store.browsing.alerts([number])
    if not found:
        raise NotFoundError(f"alert {number}: is not in the store")
    roles = [change for change, _ in site.store.browsing.member_roles(number)]
    changes = sorted(site.store.browsing.changes(ids=roles), key=lambda one: -abs(one.effect_ratio))
    return site.store.browsing.series_by_id(list(dict.fromkeys(one.series for one in changes))), found[0]


def _of_series(site: Site, asked: Asked) -> About:
    number = asked.id("series")
    found = site.store.browsing.series_by_id([number])
    if not found:
        raise NotFoundError(f"series {number}: is not in the store")
    return found, None


def _of_case(site: Site, asked: Asked) -> About:
    key = asked.path["case"]
    digest = next((one[0] for one in site.store.browsing.cases() if case_key(one[0]) == key), None)
    if digest is None:
        raise NotFoundError(f"case {key[:40]}: is not in the store")
    return site.store.browsing.series((), {"case": digest}, limit=500).rows, None
