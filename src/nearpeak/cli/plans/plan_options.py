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


def usd_of(text: str) -> float | None:
    """Return the price of `--price`; none where it is not given.

    >>> usd_of("2.5/h"), usd_of("")
    (2.5, None)
    """
    if not text:
        return None
    try:
        price = float(text.removesuffix("/h").removeprefix("$"))
    except ValueError:
        price = -1.0
    if not 0 < price < 1e6:
        raise SpecError(f"--price {text!r}: is not a price of one device and hour; e.g. 2.5")
    return price


def price_of(text: str, target: str) -> float | None:
    """Return the price of a device and hour: one for all, or by target; none where it is not given.

    >>> price_of("2.5", "l4"), price_of("l4=0.7,h100_sxm=2.5", "h100_sxm"), price_of("", "l4")
    (2.5, 2.5, None)
    """
    if "=" not in text:
        return usd_of(text)
    prices = dict(word.strip().partition("=")[::2] for word in text.split(","))
    if target not in prices:
        raise SpecError(f"--price {text!r}: names no price of {target}; add {target}=2.5")
    return usd_of(prices[target])
