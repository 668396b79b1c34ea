"""Files of measurements in power modes: one JSON object a line, with mode, time, power and its scope."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, check_line_count, json_value, text_of_file
from nearpeak.core.edge.board_mode import ModeSample
from nearpeak.core.edge.scoped_power import ScopedPower, scope_of
from nearpeak.errors import SpecError
from nearpeak.units import parse

_KEYS = ("mode", "time", "power", "scope", "model")
EXAMPLE = '{"mode": "15W", "time": "7.3 ms", "power": "9.1 W", "scope": "vdd_in"}'
MOST_SAMPLES = 10_000
"""Lines beyond which a file is no profile of a few modes."""


@border("profile")
def read_mode_samples(path: Path, modes: Collection[str]) -> tuple[ModeSample, ...]:
    """Return the measurements of a file.

    Args:
        modes: names that the board has.

    Raises:
        SpecError: a line is malformed, names a mode that the board lacks, or states power without its scope.
    """
    text = text_of_file(path)
    check_line_count(text, path)
    samples = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            samples.append(_sample(f"{path}:{number}", line, modes))
    if not 0 < len(samples) <= MOST_SAMPLES:
        raise SpecError(f"{path}: holds {len(samples)} measurements; from 1 to {MOST_SAMPLES:,} lines like {EXAMPLE}")
    return tuple(samples)


def _sample(where: str, line: str, modes: Collection[str]) -> ModeSample:
    try:
        raw: Any = json_value(line)
    except ValueError:
        raw = None
    if not isinstance(raw, dict) or "mode" not in raw or "time" not in raw:
        raise SpecError(f"{where}: is no JSON object with mode and time; e.g. {EXAMPLE}")
    if unknown := sorted(set(raw) - set(_KEYS)):
        raise SpecError(f"{where}: {unknown[0]!r} is not known; known are {', '.join(_KEYS)}")
    if raw["mode"] not in modes:
        raise SpecError(f"{where}: the board has no mode {raw['mode']!r}; there are {', '.join(modes)}")
    power = None
    if "power" in raw:
        if "scope" not in raw:
            raise SpecError(f"{where}: power without scope; state wall, vdd_in or cpu_gpu_cv")
        power = ScopedPower(power_w=_positive(where, raw["power"], "W"), scope=scope_of(str(raw["scope"])))
    return ModeSample(
        mode=raw["mode"], time_s=_positive(where, raw["time"], "s"), power=power, model=str(raw.get("model", ""))
    )


def _positive(where: str, text: object, unit: str) -> float:
    try:
        value = parse(text, unit)
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
    if not 0 < value < 1e9:
        raise SpecError(f"{where}: {text!r} is not above 0")
    return value
