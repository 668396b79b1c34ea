"""The one comment of nearpeak on a pull or merge request, edited at every later run."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from nearpeak.errors import StoreError
from nearpeak.gate.pipeline_event import PipelineEvent

PAGE_COUNT = 100
"""Comments that a page of either service holds at most."""
_TIMEOUT_S = 30
_EDIT = {"github": "PATCH", "gitlab": "PUT"}


def upsert_comment(event: PipelineEvent, body: str, token: str) -> str:
    """Edit the comment that begins with the first line of `body`, or write it; return `edited` or `written`.

    Args:
        token: of the job on GitHub, of scope `api` on GitLab.

    Raises:
        StoreError: the service refuses it.
    """
    marker = body.splitlines()[0]
    for comment in _comments(event, token):
        if str(comment.get("body", "")).startswith(marker):
            _asked(event, _EDIT[event.provider], f"{event.comment_url}/{comment['id']}", token, {"body": body})
            return "edited"
    _asked(event, "POST", event.comments_url, token, {"body": body})
    return "written"


def _comments(event: PipelineEvent, token: str) -> Iterator[dict[str, Any]]:
    page = 1
    while True:
        page_comments = _asked(event, "GET", f"{event.comments_url}?per_page={PAGE_COUNT}&page={page}", token)
        yield from page_comments
        if len(page_comments) < PAGE_COUNT:
            return
        page += 1


def _asked(event: PipelineEvent, method: str, url: str, token: str, content: Any = None) -> Any:
    """Return what the service answers."""
    headers = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": "nearpeak"}
    headers |= {"Authorization": f"Bearer {token}"} if event.provider == "github" else {"PRIVATE-TOKEN": token}
    data = None if content is None else json.dumps(content).encode()
    try:
        with urlopen(Request(url, data=data, headers=headers, method=method), timeout=_TIMEOUT_S) as answer:
            return json.load(answer)
    except HTTPError as error:
        raise StoreError(f"comment: {event.provider} answers {error.code} {error.reason} to {method}") from None
    except (URLError, TimeoutError, ValueError) as error:
        raise StoreError(f"comment: {event.provider} cannot be reached: {getattr(error, 'reason', error)}") from None
