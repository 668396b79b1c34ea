"""Options and words that commands of `nearpeak plan` share."""

from pathlib import Path

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.errors import SpecError

AGAINST = typer.Option(None, "--against", help="JSON of another plan: say what changed.")
PRICE = typer.Option("", "--price", help="Price of one device and hour in US dollars, e.g. 2.5.")


def as_json(json: bool, text: bool, against: Path | None) -> bool:
    """Return whether to print JSON; a comparison is words, also in a pipe."""
    if json and against is not None:
        raise SpecError(
            "--json and --against: a comparison has no JSON; compare the JSON of both plans, or drop --json"
        )
    return shared.as_json(json=json, text=text or against is not None)
