"""Forms that queue farm jobs for an alert, series or case; they need a token and a CSRF mark."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from nearpeak.core.history.stored_run import Series
from nearpeak.farm.job_queue import Submitted
from nearpeak.store.rows.list_rows import AlertRow
from nearpeak.web import request_guard as guard
from nearpeak.web.measure_actions import put
from nearpeak.web.query_arguments import Query
from nearpeak.web.request_queues import WRITES, Queues
from nearpeak.web.site import Site, alert_of, series_of, series_of_case

About = tuple[Sequence[Series], AlertRow | None]


def job_routes(site: Site, queues: Queues) -> list[Route]:
    """Return where the forms go."""
    kinds = {"/alerts/{alert}/jobs": _of_alert, "/series/{series}/jobs": _of_series, "/cases/{case}/jobs": _of_case}
    return [Route(path, _endpoint(site, about, queues), methods=["POST"]) for path, about in kinds.items()]


def _endpoint(
    site: Site, about: Callable[[Site, Query], About], queues: Queues
) -> Callable[[Request], Awaitable[Response]]:
    def done(query: Query, form: dict[str, str], actor: str) -> Submitted:
        series, alert = about(site, query)
        return put(site, form.get("action", ""), series, alert, (actor, form.get("once", "")))

    async def endpoint(request: Request) -> Response:
        visitor, form = await guard.written_form(site, request)
        submitted = await queues.run(WRITES, done, Query(path=request.path_params), form, visitor.name)
        if "application/json" in request.headers.get("accept", ""):
            return JSONResponse({"jobs": list(submitted.uids), "new": submitted.new_count})
        return RedirectResponse(f"{request.url.path.removesuffix('/jobs')}#h-again", status_code=303)

    return endpoint


def _of_alert(site: Site, query: Query) -> About:
    number = query.id("alert")
    alert = alert_of(site.store, number)
    members = [change for change, _ in site.store.browsing.member_roles(number)]
    changes = sorted(site.store.browsing.changes(ids=members), key=lambda row: -abs(row.effect_ratio))
    return site.store.browsing.series_by_id(list(dict.fromkeys(row.series for row in changes))), alert


def _of_series(site: Site, query: Query) -> About:
    return [series_of(site.store, query.id("series"))], None


def _of_case(site: Site, query: Query) -> About:
    return series_of_case(site.store, query.path["case"]), None
