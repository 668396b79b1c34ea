"""Fleet files: TOML tables of clients with boards, data, links, presence, idle power and stated times."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, toml_of_file
from nearpeak.core.federated.client_fleet import ClientGroup, Fleet
from nearpeak.errors import SpecError
from nearpeak.units import parse

_TOP: Mapping[str, type | tuple[type, ...]] = {"client": list, "epochs": int, "batch": int}
_CLIENT: Mapping[str, type | tuple[type, ...]] = {
    "name": str, "board": str, "mode": str, "count": int, "samples": int, "labels": (int, float, list), "down": str,
    "up": str, "availability": (str, dict, list), "idle": str, "power": str, "sample_time": str,
    "spread": (int, float),
}  # fmt: skip
_NEEDED = ("board", "samples", "down", "up")
_LONG_S = {"min": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTE = 8
_MOST_SPREAD = 10.0


@border("fleet")
def read_fleet(path: Path) -> Fleet:
    """Return the fleet of a TOML file.

    Raises:
        SpecError: an entry is missing, unknown, of the wrong type or unit, or no client has data.
    """
    return parse_fleet(path.stem, toml_of_file(path), str(path))


def parse_fleet(name: str, raw: Mapping[str, Any], where: str = "fleet") -> Fleet:
    """Return the fleet that the tables of a file state.

    >>> client = {"board": "jetson_nano", "samples": 600, "down": "100 Mbit/s", "up": "20 Mbit/s", "count": 2}
    >>> fleet = parse_fleet("home", {"client": [client], "epochs": 2})
    >>> fleet.client_count, fleet.groups[0].up_bytes_per_s
    (2, 2500000.0)
    """
    _check(where, raw, _TOP, ("client",))
    groups = tuple(_group(f"{where}, client {place}", table) for place, table in enumerate(raw["client"], 1))
    names = [group.name for group in groups]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpecError(f"{where}: two clients are called {twice[0]!r}; give each a name of its own")
    return Fleet(
        groups=groups, epoch_count=_count(where, raw, "epochs", 1), batch_count=_count(where, raw, "batch", 16),
        name=name,
    )  # fmt: skip


def _check(
    where: str, raw: Any, known: Mapping[str, type | tuple[type, ...]], needed: tuple[str, ...]
) -> None:  # fmt: skip
    """Refuse a table with missing or unknown keys, or values of the wrong type."""
    if not isinstance(raw, Mapping):
        raise SpecError(f"{where}: is {raw!r}; it must be a table")
    for key in needed:
        if key not in raw:
            raise SpecError(f"{where}: {key} is missing")
    for key, value in raw.items():
        if key not in known:
            raise SpecError(f"{where}: {key} is unknown; known are {', '.join(known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise SpecError(f"{where}: {key} is {value!r}, which is of the wrong type")


def _group(where: str, raw: Any) -> ClientGroup:
    """Return the clients of one table."""
    _check(where, raw, _CLIENT, _NEEDED)
    board, _, mode = raw["board"].partition(":")
    mode = raw.get("mode", mode)
    spread = float(raw.get("spread", 0.0))
    if not 0 <= spread <= _MOST_SPREAD:
        raise SpecError(f"{where}: spread is {spread:g}; it must be at least 0 and at most {_MOST_SPREAD:g}")
    presence_s, on_mean_s, off_mean_s = _presence(where, raw.get("availability", "always"))
    concentration, shares = _labels(where, raw.get("labels"))
    return ClientGroup(
        name=raw.get("name", f"{board}:{mode}" if mode else board), board=board, mode=mode,
        client_count=_count(where, raw, "count", 1), sample_count=_count(where, raw, "samples", 0, least=0),
        down_bytes_per_s=_rate(where, raw, "down"), up_bytes_per_s=_rate(where, raw, "up"),
        concentration_ratio=concentration, label_ratio=shares, presence_s=presence_s, on_mean_s=on_mean_s,
        off_mean_s=off_mean_s, idle_w=_quantity(where, raw, "idle", "W", least=0.0),
        busy_w=_quantity(where, raw, "power", "W"), sample_s=_quantity(where, raw, "sample_time", "s"),
        spread_ratio=spread,
    )  # fmt: skip


def _count(where: str, raw: Mapping[str, Any], key: str, usual: int, *, least: int = 1) -> int:
    count = raw.get(key, usual)
    if not least <= count <= 10**9:
        raise SpecError(f"{where}: {key} is {count}; it must be a whole number of at least {least}")
    return int(count)


def _rate(where: str, raw: Mapping[str, Any], key: str) -> float:
    """Return a link's rate in bytes per second; links are sold in bits."""
    text = raw[key]
    try:
        rate = parse(text, "bit/s") / _BYTE if text.endswith("bit/s") else parse(text, "B/s")
    except SpecError:
        rate = 0.0
    if rate <= 0:
        raise SpecError(f"{where}: {key} is {text!r}; it must be a rate above 0, e.g. '100 Mbit/s' or '12 MB/s'")
    return rate


def _quantity(where: str, raw: Mapping[str, Any], key: str, unit: str, *, least: float = 1e-12) -> float | None:
    if key not in raw:
        return None
    try:
        value = parse(raw[key], unit)
    except SpecError as error:
        raise SpecError(f"{where}: {key}: {error}") from None
    if value < least:
        raise SpecError(f"{where}: {key} is {raw[key]!r}; it must be more than 0")
    return value


def _presence(where: str, stated: Any) -> tuple[tuple[float, ...], float | None, float | None]:
    """Return times present and absent of a trace, or the means of exponential ones; nothing for always."""
    if stated == "always":
        return (), None, None
    if isinstance(stated, dict) and set(stated) == {"on", "off"}:
        return (), _time(where, stated["on"]), _time(where, stated["off"])
    if isinstance(stated, list) and stated and len(stated) % 2 == 0:
        return tuple(_time(where, text) for text in stated), None, None
    raise SpecError(
        f"{where}: availability is {stated!r}; write 'always', means {{ on = '2 h', off = '30 min' }}, or times "
        "present and absent in turn ['8 h', '16 h'], repeated"
    )


def _time(where: str, text: Any) -> float:
    """Return the seconds of a time with a unit; minutes, hours and days too."""
    digits, _, unit = text.partition(" ") if isinstance(text, str) else ("", "", "")
    try:
        time_s = float(digits) * _LONG_S[unit] if unit in _LONG_S else parse(text, "s")
    except (SpecError, ValueError):
        time_s = 0.0
    if not 1.0 <= time_s < 1e10:
        raise SpecError(f"{where}: availability: {text!r} is not a time of at least 1 s, e.g. '30 min'")
    return time_s


def _labels(where: str, stated: Any) -> tuple[float | None, tuple[float, ...]]:
    """Return the Dirichlet parameter or the shares of labels."""
    if stated is None:
        return None, ()
    if not isinstance(stated, list):
        if not 1e-6 <= stated <= 1e6:
            raise SpecError(f"{where}: labels is {stated!r}; a Dirichlet parameter is above 0, e.g. 0.5")
        return float(stated), ()
    if not all(isinstance(share, (int, float)) and not isinstance(share, bool) and share >= 0 for share in stated):
        raise SpecError(f"{where}: labels has an entry that is no number of at least 0")
    whole = float(sum(stated))
    if not 0 < whole < 1e15:
        raise SpecError(f"{where}: labels has no share above 0")
    return None, tuple(share / whole for share in stated)
