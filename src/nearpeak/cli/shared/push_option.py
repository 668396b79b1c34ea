"""Option `--push` of several commands: results are sent to a dashboard on another machine."""

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from nearpeak.core.history.stored_run import RunRecord

PUSH = typer.Option(
    None, "--push", metavar="URL", help="Also send the results to this dashboard; NEARPEAK_TOKEN holds its token."
)


def check_push(address: str | None) -> None:
    """Refuse an address or a token that cannot be right, before any work is done for it."""
    from nearpeak.web.run_push import TOKEN_VARIABLE, push

    if address is not None:
        push((), address, os.environ.get(TOKEN_VARIABLE, ""))


def pushed(records: "Iterable[RunRecord]", address: str | None) -> None:
    """Send runs where an address is given, and say how many were new there."""
    from nearpeak.web.run_push import TOKEN_VARIABLE, push

    if address is not None:
        outcome = push(records, address, os.environ.get(TOKEN_VARIABLE, ""))
        sys.stderr.write(f"{address}: {outcome.new_count} new runs, {outcome.known_count} known already\n")
