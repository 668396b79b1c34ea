"""Options and words that commands of `nearpeak plan` share."""

from collections.abc import Callable
from json import loads
from pathlib import Path

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.errors import SpecError

AGAINST = typer.Option(None, "--against", help="JSON of another plan: say what changed.")
PRICE = typer.Option("", "--price", help="Price of one device and hour in US dollars, e.g. 2.5.")


def as_json(json: bool, text: bool, against: Path | None) -> bool:
    """Return whether to print JSON; a comparison is words only."""
    if json and against is not None:
        raise SpecError(
            "--json and --against: a comparison has no JSON; compare the JSON of both plans, or drop --json"
        )
    return shared.as_json(json=json, text=text)


def text_before(against: Path | None, command: str, *names: str) -> str:
    """Return the JSON of the plan to compare with; what is none is refused before the new plan takes its time.

    Args:
        names: what JSON of the command states.
    """
    if against is None:
        return ""
    text = shared.text_of(against)
    try:
        record = loads(text)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not record.keys() >= set(names):
        raise SpecError(f"{against}: is no JSON of 'nearpeak plan {command} --json'")
    return text


def prices_of(text: str) -> Callable[[str], tuple[float | None, str]]:
    """Return the function that gives the price of a target's device and hour, and where it was found, of `--price`.

    A file has a table for each target, `usd_per_hour`, `source` and `date`; all of them are needed, as prices change.

    Raises:
        SpecError: the file is no such TOML; a target that it does not name is refused when it is asked for.
    """
    from nearpeak.core.systems.service_words import price_of

    if not text.endswith(".toml"):
        return lambda target: (price_of(text, target), "")
    from nearpeak.base.input_files import toml_of_file

    tables = toml_of_file(Path(text), f"--price {text}")

    def stated(target: str) -> tuple[float | None, str]:
        if target not in tables:
            raise SpecError(
                f"--price {text}: names no price of {target}; add [{target}] with usd_per_hour, source and date"
            )
        table = tables[target] if isinstance(tables[target], dict) else {}
        usd, source, date = (table.get(name) for name in ("usd_per_hour", "source", "date"))
        if not isinstance(usd, int | float) or isinstance(usd, bool) or not 0 < usd < 1e6 or not source or not date:
            raise SpecError(f"--price {text}: [{target}] needs usd_per_hour above 0, source and date")
        return float(usd), f"{source}, {date}"

    return stated
