"""OpenAPI 3.1 description of the HTTP API, built from the endpoint table."""

import re
from typing import Any

from nearpeak.web.api import schemas
from nearpeak.web.api.endpoint import PREFIX, Endpoint
from nearpeak.web.api.endpoint_table import ENDPOINTS

_SAID = {
    200: "As asked", 201: "Written", 400: "What is asked is wrong; the error says what", 401: "A token is needed",
    403: "The token may not do that", 404: "It is not in the store", 413: "The body is too large",
    415: "The body is of another kind", 503: "The store cannot be read or written now",
}  # fmt: skip


def description() -> dict[str, Any]:
    """Return the description."""
    from nearpeak.api.questions import version

    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        paths.setdefault(PREFIX + one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "nearpeak", "version": version() or "0", "license": {"name": "Apache-2.0"},
                 "description": "Series, alerts and runs of a store; quantities are in SI units."},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }  # fmt: skip


def _operation(one: Endpoint) -> dict[str, Any]:
    named = re.findall(r"{(\w+)}", one.path)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}} for name in named
    ]
    parameters += [_parameter(name, said) for name, said in one.query.items()]
    statuses = sorted({*one.statuses, 401, 503, *((403,) if one.writes else ())})
    found: dict[str, Any] = {
        "operationId": one.name, "summary": one.summary, "parameters": parameters,
        "responses": {str(status): _answer(one, status) for status in statuses},
        "security": [{"token": []}] if one.writes else [{}, {"token": []}],
    }  # fmt: skip
    if one.takes is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": one.takes}}}
    return found


def _parameter(name: str, said: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer", "minimum": 0} if said.startswith("#") else {"type": "string"}
    return {"name": name, "in": "query", "description": said.lstrip("#"), "schema": schema}


def _answer(one: Endpoint, status: int) -> dict[str, Any]:
    schema = one.gives if status < 300 else schemas.ERROR
    return {"description": _SAID[status], "content": {"application/json": {"schema": schema}}}
