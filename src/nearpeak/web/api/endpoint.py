"""An API endpoint: path, method, authorization, request and response schemas."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearpeak.web.query_arguments import Query
from nearpeak.web.request_guard import SMALL_BYTES, Visitor
from nearpeak.web.site import Site

PREFIX = "/api/v1"
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Request of a program: query, body and visitor."""

    query: Query
    """Path and query."""
    body: Any
    """Body as data; `None` for an empty body."""
    visitor: Visitor
    """Who asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One thing that programs can ask."""

    method: str
    """`GET` or `POST`."""
    path: str
    """Path below the prefix, with what it names in braces."""
    name: str
    """Its name in descriptions."""
    summary: str
    """Summary, in one line."""
    answer: Callable[[Site, Question], tuple[int, Any]]
    """Returns status and data."""
    gives: Json
    """Schema of the answer."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Query parameters with their descriptions; those of numbers begin with `#`."""
    takes: Json | None = None
    """Schema of the body; none where it takes none."""
    most_bytes: int = SMALL_BYTES
    """Largest body."""
    writes: bool = False
    """Whether it needs a token that may write."""
    statuses: tuple[int, ...] = (200, 400)
    """HTTP statuses of its responses, apart from those about tokens."""
