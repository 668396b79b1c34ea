"""HTTP routes of the API, which check tokens and request bodies before they call an endpoint."""

import json
import math
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nearpeak.exchange.run_lines import parse_json
from nearpeak.web import request_guard as guard
from nearpeak.web.api.endpoint import PREFIX, Endpoint, Question
from nearpeak.web.api.endpoint_table import ENDPOINTS
from nearpeak.web.api.openapi_description import description
from nearpeak.web.query_arguments import Query
from nearpeak.web.request_queues import BODIES, READS, UPLOADS, WRITES, Queues
from nearpeak.web.site import Site


def api_routes(site: Site, queues: Queues) -> list[Route]:
    """Return the routes of all endpoints, and that of their description."""
    described_text = json.dumps(description())

    async def described(_: Request) -> Response:
        return Response(described_text, media_type="application/json")

    routes = [
        Route(PREFIX + endpoint.path, _route(site, endpoint, queues), methods=[endpoint.method])
        for endpoint in ENDPOINTS
    ]
    return [Route(f"{PREFIX}/openapi.json", described, methods=["GET"]), *routes]


def _route(site: Site, endpoint: Endpoint, queues: Queues) -> Any:
    def answer(query: Query, data: bytes | None, visitor: guard.Visitor) -> tuple[int, str]:
        body = None if data is None else parse_json(data)
        status, content = endpoint.answer(site, Question(query=query, body=body, visitor=visitor))
        return status, _text(content)

    async def route(request: Request) -> Response:
        visitor = await guard.reader_of(site, request)
        query = Query(path=request.path_params, query=dict(request.query_params))
        if not endpoint.writes:
            status, text = await queues.run(READS, answer, query, None, visitor)
            return Response(text, status_code=status, media_type="application/json")
        if "authorization" not in request.headers:  # a cookie alone would let other sites write in its holder's name
            raise guard.RefusedError(401, "writing needs a token in the header Authorization: Bearer")
        guard.check_writing(visitor)
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise guard.RefusedError(415, "the body must be application/json")
        if endpoint.most_bytes > guard.SMALL_BYTES:
            async with queues.turn(BODIES):
                data = await guard.body_of(request, endpoint.most_bytes)
                status, text = await queues.run(UPLOADS, answer, query, data, visitor)
        else:
            data = await guard.body_of(request, endpoint.most_bytes)
            status, text = await queues.run(WRITES, answer, query, data, visitor)
        return Response(text, status_code=status, media_type="application/json")

    return route


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
