"""Upload of runs to a remote dashboard, with retries and without double counting."""

import http.client
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from nearpeak.core.history.stored_run import RunRecord
from nearpeak.errors import MeasureError, SpecError
from nearpeak.exchange.run_lines import MOST_BYTES, run_record

TOKEN_VARIABLE = "NEARPEAK_TOKEN"
"""Variable of the environment that holds the token: on the command line others could read it."""
TRIES = 6
"""Attempts to send one batch."""
FIRST_WAIT_S, LONGEST_WAIT_S, TIMEOUT_S = 0.5, 20.0, 60.0
BATCH_RUNS, BATCH_BYTES = 100, MOST_BYTES // 2
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """Outcome of an upload of runs."""

    new_count: int
    """Runs that were not there."""
    known_count: int
    """Runs that were there already."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: a token belongs to the server that was named."""

    def redirect_request(self, *_: object) -> None:
        return None


def push(
    records: Iterable[RunRecord], address: str, token: str, *, wait: Callable[[float], None] = time.sleep
) -> Pushed:
    """Send runs to the dashboard at `address`, some at a time, and return how many were new there.

    A batch that is not acknowledged is sent again, after longer and longer; runs that arrived the first time are known
    by their identity and stay as they are.

    Raises:
        SpecError: the address or the token is invalid, or the dashboard refuses the runs.
        MeasureError: it cannot be reached.
    """
    where = _endpoint(address)
    if not token or not token.isascii() or not token.isprintable():
        raise SpecError(f"push: no token; set {TOKEN_VARIABLE} to one that 'nearpeak token add' printed")
    new = known = 0
    for batch in _batches(records):
        for row in _sent(where, token, batch, wait):
            new, known = (new + 1, known) if row.get("new") else (new, known + 1)
    return Pushed(new_count=new, known_count=known)


def _endpoint(address: str) -> str:
    try:
        parts = urlsplit(address)
        is_known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets that are not closed, a port that is none
        parts, is_known = urlsplit(""), False
    if not is_known or parts.username or parts.query or parts.fragment:
        raise SpecError(f"push {address!r}: is not the address of a dashboard; e.g. http://127.0.0.1:8642")
    if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise SpecError(f"push {address}: a token would go over the network unencrypted; use https://")
    return f"{address.rstrip('/')}/api/v1/runs"


def _batches(records: Iterable[RunRecord]) -> Iterator[bytes]:
    """Yield bodies of a bounded size."""
    held: list[str] = []
    size = 0
    for record in records:
        text = json.dumps(run_record(record), allow_nan=False)
        if len(text) > MOST_BYTES - 100:
            name = record.source.name or record.source.digest[:12]
            raise SpecError(f"push: run {name} takes {len(text)} bytes; at most "
                            f"{MOST_BYTES} are sent at once: measure fewer cases in one run")  # fmt: skip
        if held and (len(held) >= BATCH_RUNS or size + len(text) > BATCH_BYTES):
            yield _body(held)
            held, size = [], 0
        held.append(text)
        size += len(text) + 1
    if held:
        yield _body(held)


def _body(texts: Sequence[str]) -> bytes:
    return f'{{"runs":[{",".join(texts)}]}}'.encode()


def _sent(where: str, token: str, body: bytes, wait: Callable[[float], None]) -> list[dict[str, object]]:
    """Return the outcome of each run of a batch, retrying as needed."""
    opener, reason = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({})), ""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}
    for number in range(TRIES):
        if number:
            wait(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (number - 1)) * random.uniform(0.5, 1.0))
        try:
            request = urllib.request.Request(where, data=body, headers=headers, method="POST")
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                reply = json.loads(answer.read(MOST_BYTES))
                return [row for row in reply["runs"] if isinstance(row, dict)]
        except urllib.error.HTTPError as error:
            reason = _reason(error)
            if error.code not in _AGAIN:
                raise SpecError(f"push {where}: refused: {reason}") from None
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            reason = str(getattr(error, "reason", error))
    raise MeasureError(f"push {where}: not acknowledged after {TRIES} tries: {reason[:200]}; what arrived is not lost, "
                       "and sending it again counts nothing twice")  # fmt: skip


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return f"{error.code}: {json.loads(error.read(10_000))['error']}"
    except (ValueError, KeyError, TypeError, OSError):
        return f"{error.code} {error.reason}"
