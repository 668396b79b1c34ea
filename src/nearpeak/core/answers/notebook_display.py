"""HTML of values in notebooks: values ask for it here, and the room that can draw them registers itself."""

from collections.abc import Callable

_VIEWS: dict[str, Callable[[object], str]] = {}
"""What makes HTML of an answer; empty in processes that never draw one."""


def register_view(view: Callable[[object], str]) -> None:
    """Let `view` make the HTML of all answers."""
    _VIEWS["html"] = view


def html_of(answer: object) -> str | None:
    """Return the answer as a piece of HTML, none where nothing is registered that makes it: notebooks show text then.

    >>> import nearpeak
    >>> html_of(nearpeak.bound(nearpeak.case("fill", elements=1024, dtype="fp32"), "h100_sxm"))[:25]
    '<div class="nearpeak-view'
    """
    view = _VIEWS.get("html")
    return None if view is None else view(answer)
