"""HTTP routes of the API, which check tokens and request bodies before they call an endpoint."""

import json
import math
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nearpeak.exchange.run_lines import MOST_BYTES, parse_json
from nearpeak.web import request_guard as guard
from nearpeak.web.api.endpoint import PREFIX, Endpoint, Question
from nearpeak.web.api.endpoint_table import ENDPOINTS
from nearpeak.web.api.openapi_description import description
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site


def api_routes(site: Site) -> list[Route]:
    """Return the routes of all endpoints, and that of their description."""

    async def described(_: Request) -> Response:
        return JSONResponse(description())

    routes = [
        Route(PREFIX + endpoint.path, _route(site, endpoint), methods=[endpoint.method]) for endpoint in ENDPOINTS
    ]
    return [Route(f"{PREFIX}/openapi.json", described, methods=["GET"]), *routes]


def _route(site: Site, endpoint: Endpoint) -> Any:
    async def route(request: Request) -> Response:
        bearer = "authorization" in request.headers
        visitor = await run_in_threadpool(guard.visitor_of, site, request)
        guard.check_reading(site, visitor)
        body = None
        if endpoint.writes:
            if not bearer:  # a cookie alone would let other sites write in its holder's name
                raise guard.RefusedError(401, "writing needs a token in the header Authorization: Bearer")
            guard.check_writing(visitor)
            body = await _body(request)
        query = Query(path=request.path_params, query=dict(request.query_params))
        question = Question(query=query, body=body, visitor=visitor)
        status, answer = await run_in_threadpool(endpoint.answer, site, question)
        text = await run_in_threadpool(_text, answer)
        return Response(text, status_code=status, media_type="application/json")

    return route


async def _body(request: Request) -> Any:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise guard.RefusedError(415, "the body must be application/json")
    data = await guard.body_of(request, MOST_BYTES)
    return await run_in_threadpool(parse_json, data)


def _text(body: Any) -> str:
    try:
        return json.dumps(body, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(body), allow_nan=False)


def _finite(value: Any) -> Any:
    """Return data with null in place of NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
