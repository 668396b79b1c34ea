"""HTTP API of the dashboard: one table of endpoints, from which routes and the OpenAPI description are built."""

from nearpeak.web.api.endpoint_table import ENDPOINTS
from nearpeak.web.api.openapi_description import description
from nearpeak.web.api.routes import api_routes

__all__ = ["ENDPOINTS", "api_routes", "description"]
