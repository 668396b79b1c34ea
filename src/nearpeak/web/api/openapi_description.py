"""OpenAPI 3.1 description of the HTTP API, built from the endpoint table."""

import re
from typing import Any

from nearpeak.web.api import schemas
from nearpeak.web.api.endpoint import PREFIX, Endpoint
from nearpeak.web.api.endpoint_table import ENDPOINTS

_SAID = {
    200: "Success", 201: "Written", 400: "Invalid request; the error names the problem", 401: "A token is needed",
    403: "The token may not do that", 404: "It is not in the store", 413: "The body is too large",
    415: "The body is of another kind",
    503: "Too much at once, or the store cannot be read or written now; the header Retry-After says when to come again",
}  # fmt: skip


def description() -> dict[str, Any]:
    """Return the description."""
    from nearpeak.api.questions import version

    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(PREFIX + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "nearpeak", "version": version() or "0", "license": {"name": "Apache-2.0"},
                 "description": "Series, alerts and runs of a store; quantities are in SI units."},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }  # fmt: skip


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    named = re.findall(r"{(\w+)}", endpoint.path)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}} for name in named
    ]
    for name, text in endpoint.query.items():
        schema = {"type": "integer", "minimum": 0} if text.startswith("#") else {"type": "string"}
        parameters.append({"name": name, "in": "query", "description": text.lstrip("#"), "schema": schema})
    statuses = sorted({*endpoint.statuses, 401, 503, *((403,) if endpoint.writes else ())})
    operation: dict[str, Any] = {
        "operationId": endpoint.name, "summary": endpoint.summary, "parameters": parameters,
        "responses": {str(status): _answer(endpoint, status) for status in statuses},
        "security": [{"token": []}] if endpoint.writes else [{}, {"token": []}],
    }  # fmt: skip
    if endpoint.takes is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": endpoint.takes}}}
    return operation


def _answer(endpoint: Endpoint, status: int) -> dict[str, Any]:
    schema = endpoint.gives if status < 300 else schemas.ERROR
    return {"description": _SAID[status], "content": {"application/json": {"schema": schema}}}
