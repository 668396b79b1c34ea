"""Rig files in TOML: streams of sensors with their rates, deadlines and stages."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nearpeak.base.input_files import border, toml_of_file
from nearpeak.core.edge.stream_rig import ENGINES, FULL_SHARE, Fusion, Rig, RigStage, SensorStream
from nearpeak.errors import SpecError, shown
from nearpeak.units import parse

_KEYS = (
    "name", "rate", "period", "deadline", "offset", "stages", "times", "model", "shapes", "share", "slices", "pageable",
    "default_stream",
)  # fmt: skip
_ALIASES = {"kernel": "gpu"}
MOST_STREAMS, MOST_STAGES, MOST_NAME = 100, 32, 100
"""Streams of a rig, stages of a stream and characters of a name beyond which a file is taken for damaged: every pair of
streams and every stage is simulated."""
MODEL = "model"
"""Word in `times` for the predicted time of the stream's model."""
FORM = 'e.g. stages = ["h2d", "kernel", "d2h", "cpu"] and times = ["6 MB", "model", "100 kB", "2 ms"]'


class StagePrices(NamedTuple):
    """Times that a rig leaves to predictions."""

    copy_s: Callable[[int], float]
    """Time of a copy from its bytes."""
    model_s: Callable[[Path, Mapping[str, tuple[int, ...]]], float]
    """Time of one inference from the file and shapes of its inputs."""
    dla_s: Callable[[Path, Mapping[str, tuple[int, ...]]], float]
    """Likewise on one accelerator."""


@border("rig")
def rig_of(path: Path, prices: StagePrices, mode: str = "", *, is_compared: bool = False) -> Rig:
    """Return the rig of a file with the times of a power mode.

    Args:
        prices: of copies stated in bytes and of models.
        mode: power mode whose row of `times` is taken where these are a table by mode.
        is_compared: whether modes are compared, so that times stated for no mode are refused.

    Raises:
        SpecError: the file is missing or malformed; the message names stream and key.
    """
    data = toml_of_file(path)
    tables = data.get("stream")
    unknown = sorted(set(data) - {"name", "stream", "engines", "fusion"})
    if not isinstance(tables, list) or not tables or unknown:
        wrong = f"no key {shown(unknown[0], str)}" if unknown else "no [[stream]] table"
        raise SpecError(f"{path}: {wrong}; it holds [[stream]], [engines], [[fusion]] and name, {FORM}")
    if len(tables) > MOST_STREAMS:
        raise SpecError(f"{path}: has {len(tables):,} streams; at most {MOST_STREAMS} are planned together")
    streams = tuple(
        _stream(f"{path}: stream {_name(path, table, str(place))}", path.parent, table, prices, (mode, is_compared))
        for place, table in enumerate(tables, 1)
    )
    counts = data.get("engines", {})
    for name, count in counts.items():
        if name not in ENGINES or type(count) is not int or not 1 <= count <= 1024:
            raise SpecError(
                f"{path}: engines: {shown(name)} = {shown(count)}: is not one of {', '.join(ENGINES)} and its number"
            )
    tables = data.get("fusion", [])
    if not all(isinstance(table.get("streams"), list) and not set(table) - {"name", "streams"} for table in tables):
        raise SpecError(f"{path}: fusion: has a name and streams, a list of names")
    fusions = tuple(
        Fusion(name=_name(path, table, "fusion"), streams=tuple(map(str, table["streams"]))) for table in tables
    )
    try:
        return Rig(name=_name(path, data, path.stem), streams=streams, engine_count=counts, fusions=fusions)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


@border("rig")
def stated_modes(path: Path) -> frozenset[str] | None:
    """Return the power modes of which every stream states its times; none where no stream states times by mode."""
    tables = [table.get("times") for table in toml_of_file(path).get("stream", []) if isinstance(table, dict)]
    modes = [frozenset(times) for times in tables if isinstance(times, dict)]
    return frozenset.intersection(*modes) if modes else None


@border("rig")
def predicts_accelerators(path: Path) -> bool:
    """Return whether a stage on an accelerator takes the predicted time of its model."""
    for table in toml_of_file(path).get("stream", []):
        times = table.get("times")
        for row in times.values() if isinstance(times, dict) else [times]:
            if ("dla", MODEL) in zip(table.get("stages", []), row or [], strict=False):
                return True
    return False


def _stream(
    where: str, folder: Path, table: Mapping[str, Any], prices: StagePrices, mode: tuple[str, bool]
) -> SensorStream:
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise SpecError(f"{where}: no key {shown(unknown[0], str)}; there are {', '.join(_KEYS)}")
    if ("rate" in table) == ("period" in table) or not isinstance(table.get("stages"), list):
        raise SpecError(f"{where}: needs a rate or a period, and stages; {FORM}")
    period_ns = _nanoseconds(where, table, "period") if "period" in table else _period(where, table["rate"])
    names = [_ALIASES.get(str(name), str(name)) for name in table["stages"]]
    wrong = [name for name in names if name not in ENGINES]
    if wrong:
        raise SpecError(f"{where}: stage {shown(wrong[0])}: is not one of h2d, kernel, d2h, dla, cpu")
    if not 1 <= len(names) <= MOST_STAGES:
        raise SpecError(f"{where}: has {len(names):,} stages; 1 to {MOST_STAGES} are right")
    times = _times(where, table, len(names), mode)
    share, slices = table.get("share", 1), table.get("slices", 1)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0.001 <= share <= 1:
        raise SpecError(f"{where}: share is {shown(share)}; a part of the device from 0.001 to 1 is right")
    if isinstance(slices, bool) or not isinstance(slices, int) or not 1 <= slices <= 1000:
        raise SpecError(f"{where}: slices is {shown(slices)}; a whole number from 1 to 1000 is right")
    stages = tuple(
        RigStage(
            engine=name, time_ns=_stage_ns(where, folder, table, name, text, prices),
            share=round(FULL_SHARE * share) if name == "gpu" else FULL_SHARE,
            slice_count=slices if name in ("gpu", "dla") else 1,
            is_pageable=_truth(where, table, "pageable") and name in ("h2d", "d2h"),
        )
        for name, text in zip(names, times, strict=True)
    )  # fmt: skip
    deadline_ns = _nanoseconds(where, table, "deadline") if "deadline" in table else period_ns
    if not (period_ns and deadline_ns):
        raise SpecError(f"{where}: {'deadline' if period_ns else 'period'} is 0 s; a time above 0 is right")
    return SensorStream(
        name=str(table.get("name", where.rpartition(" ")[2])), period_ns=period_ns, stages=stages,
        deadline_ns=deadline_ns, offset_ns=_nanoseconds(where, table, "offset") if "offset" in table else None,
        is_default=_truth(where, table, "default_stream"),
    )  # fmt: skip


def _name(path: Path, table: object, otherwise: str) -> str:
    """Return the name that a table states: text of one line."""
    if not isinstance(table, dict):
        raise SpecError(f"{path}: {shown(table)} where a table with name and values is expected; {FORM}")
    name = table.get("name", otherwise)
    if not isinstance(name, str) or not 1 <= len(name) <= MOST_NAME or not name.isprintable():
        raise SpecError(f"{path}: name is {shown(name)}; text of one line with 1 to {MOST_NAME} characters is right")
    return name


def _truth(where: str, table: Mapping[str, Any], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise SpecError(f"{where}: {key} is {shown(value)}; true or false is right")
    return value


def _times(where: str, table: Mapping[str, Any], count: int, mode: tuple[str, bool]) -> Sequence[Any]:
    """Return the time of each stage as stated, in a table by mode that of the mode."""
    name, is_compared = mode
    times = table.get("times")
    if isinstance(times, dict):
        if name not in times:
            raise SpecError(f"{where}: times of mode {name or 'without a name'!r} are not stated; there are those of "
                            f"{', '.join(times)}")  # fmt: skip
        times = times[name]
    elif is_compared and isinstance(times, list) and any(str(text).endswith("s") for text in times):
        raise SpecError(f"{where}: times are stated for no power mode, so that modes cannot be compared; state "
                        'model and sizes, or [stream.times] with "15W" = […] for each mode')  # fmt: skip
    if not isinstance(times, list) or len(times) != count:
        raise SpecError(f"{where}: times is {shown(times)}; a list of {count}, one of each stage, is right")
    return times


def _stage_ns(where: str, folder: Path, table: Mapping[str, Any], engine: str, text: Any, prices: StagePrices) -> int:
    """Return the duration of a stage: stated, that of a copy of some bytes, or that of the model."""
    if text == MODEL:
        if not isinstance(table.get("model"), str):
            raise SpecError(f"{where}: {engine} takes the time of the model, and no model is stated")
        if engine not in ("gpu", "dla"):
            raise SpecError(f"{where}: the time of a model is predicted for kernel and dla; state that of {engine}")
        time_of = prices.dla_s if engine == "dla" else prices.model_s
        return round(1e9 * time_of(folder / table["model"], _shapes(where, table)))
    if isinstance(text, str) and text.endswith("B"):
        if engine not in ("h2d", "d2h"):
            raise SpecError(f"{where}: {engine} takes {shown(text)}; a time is right, bytes are for h2d and d2h")
        return round(1e9 * prices.copy_s(round(_parsed(where, "times", text, "B"))))
    return round(1e9 * _parsed(where, "times", text, "s"))


def _shapes(where: str, table: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    shapes = table.get("shapes", {})
    if not isinstance(shapes, dict) or not all(
        isinstance(shape, list) and all(type(extent) is int for extent in shape) for shape in shapes.values()
    ):
        raise SpecError(f"{where}: shapes is a table such as {{x = [1, 3, 224, 224]}}")
    return {name: tuple(shape) for name, shape in shapes.items()}


def _period(where: str, rate: object) -> int:
    """Return the time between frames of a rate.

    >>> _period("camera", "30/s"), _period("lidar", 10)
    (33333333, 100000000)
    """
    try:
        value = float(str(rate).removesuffix("/s").removesuffix("fps").strip())
    except ValueError:
        value = 0.0
    if isinstance(rate, bool) or not 1e-3 <= value <= 1e6:
        raise SpecError(f"{where}: rate is {shown(rate)}; frames per second are right, e.g. 30/s")
    return int(1e9 / value)


def _nanoseconds(where: str, table: Mapping[str, Any], key: str) -> int:
    return round(1e9 * _parsed(where, key, table[key], "s"))


def _parsed(where: str, key: str, text: object, unit: str) -> float:
    """Return a quantity of at least 0 and at most an hour or a terabyte."""
    try:
        value = parse(text, unit)
    except SpecError as error:
        raise SpecError(f"{where}: {key}: {error}") from None
    if not 0 <= value <= (3600 if unit == "s" else 1e12):
        raise SpecError(f"{where}: {key}: {shown(text)} is out of range")
    return value
