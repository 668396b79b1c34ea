"""Words about a service: the layout of a replica, a rate of requests, and the price of devices."""

from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.errors import SpecError, shown


def replica_of(text: str, weights: str = "bf16") -> ServingLayout:
    """Return the layout of a replica with its degrees.

    >>> replica_of("tp=8,ep=8").ep
    8
    """
    degrees, stated = dict.fromkeys(("tp", "pp", "ep", "attention_dp"), 1), set[str]()
    for word in filter(None, text.split(",")):
        name, _, value = word.strip().partition("=")
        if name not in degrees or name in stated or not value.isdecimal() or len(value) > 6:
            forms = ", ".join(f"{key}=NUMBER" for key in degrees)
            raise SpecError(f"--parallel {shown(word)}: is not one of {forms}, each once")
        stated.add(name)
        degrees[name] = int(value)
    return ServingLayout(weight_format=weights, tp=degrees["tp"], pp=degrees["pp"], ep=degrees["ep"],
                         attention_dp=degrees["attention_dp"])  # fmt: skip


def rate_of(text: str, option: str = "--rate") -> float:
    """Return the requests per second of an option; 0 where it is not given.

    >>> rate_of("20/s"), rate_of("")
    (20.0, 0.0)
    """
    try:
        rate = float(text.removesuffix("/s")) if text else 0.0
    except ValueError:
        rate = -1.0
    if text and not 0 < rate < 1e6:
        raise SpecError(f"{option} {shown(text)}: is not a number of requests per second below 1e6; e.g. 20/s")
    return rate


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
        raise SpecError(f"--price {shown(text)}: is not a price of one device and hour; e.g. 2.5")
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
        raise SpecError(f"--price {shown(text)}: names no price of {target}; add {target}=2.5")
    return usd_of(prices[target])
