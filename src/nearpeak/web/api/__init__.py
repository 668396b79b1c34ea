"""The interface for programs: one table of endpoints, from which routes and their description are made."""

from nearpeak.web.api._description import description
from nearpeak.web.api._endpoints import ENDPOINTS
from nearpeak.web.api._routes import api_routes

__all__ = ["ENDPOINTS", "api_routes", "description"]
