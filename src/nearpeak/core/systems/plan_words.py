"""Training plans stated in words, `tp=8,pp=2,schedule=interleaved:4,recompute=selective,zero=1,sp`, and back."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from nearpeak.base.registry import unknown_name
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import SpecError

_COUNTS = {
    "tp": "tp", "pp": "pp", "dp": "dp", "cp": "cp", "ep": "ep", "etp": "etp", "chunks": "chunk_count",
    "micro": "micro_batch", "shards": "shard_count",
}  # fmt: skip
"""Whole numbers by the words that state them."""
_FLAGS = {
    "sp": "sequence_parallel", "tp_overlap": "tp_overlap", "dp_overlap": "dp_overlap", "compiled": "is_compiled",
}  # fmt: skip
"""Switches, which need no value."""
_TEXTS = {"schedule": "schedule", "recompute": "recompute", "sharding": "sharding", "framework": "framework"}
_FOLDED = ("dualpipev",)
"""Schedules that fold the stages: each rank has two chunks."""
_KNOWN = (*_COUNTS, *_FLAGS, *_TEXTS, "zero", "stages", "spatial", "branches")


def training_plan_of(
    text: str, device_count: int, *, sequence: int, global_batch: int = 0, tokens_per_step: float = 0.0,
    precision: str = "bf16", defaults: Mapping[str, Any] | None = None,
) -> TrainingPlan:  # fmt: skip
    """Return the plan that `text` states for so many devices; the data-parallel degree follows where it is not stated.

    Args:
        global_batch: sequences of a step; 0 for as many as `tokens_per_step` hold, or for eight micro-batches of each
            replica and stage.
        defaults: fields of the plan for what `text` leaves open.

    Raises:
        SpecError: a word is unknown or stated twice, or the degrees do not make up the devices.

    >>> plan = training_plan_of("tp=8,pp=2,schedule=interleaved:4,zero=1,sp", 64, sequence=4096, global_batch=64)
    >>> plan.dp, plan.chunk_count, plan.sharding, plan.sequence_parallel
    (4, 4, 'zero1', True)
    >>> training_plan_of("tp=3", 8, sequence=4096)
    Traceback (most recent call last):
    nearpeak.errors.SpecError: --parallel: tp × pp × cp = 3 does not divide 8 devices; tp=2 or tp=4 would
    """
    values = {**(defaults or {}), **_values_of(text)}
    if "stage_layer_count" in values:
        values.setdefault("pp", max(len(values["stage_layer_count"]) // values.get("chunk_count", 1), 1))
    degrees = {name: values.get(name, 1) for name in ("tp", "pp", "cp")}
    inner = degrees["tp"] * degrees["pp"] * degrees["cp"]
    if "dp" not in values:
        if device_count % inner:
            raise SpecError(_undivided(values, degrees, inner, device_count))
        values["dp"] = device_count // inner
    if inner * values["dp"] != device_count:
        if device_count % inner:
            raise SpecError(_undivided(values, degrees, inner, device_count))
        raise SpecError(
            f"--parallel: tp × pp × cp × dp = {inner * values['dp']}, but there are {device_count} devices; "
            f"dp={device_count // inner} would be right"
        )
    micro = values.setdefault("micro_batch", 1)
    each = micro * values["dp"]
    if tokens_per_step and not global_batch:
        global_batch = max(round(tokens_per_step / sequence / each), 1) * each
    values.setdefault("global_batch", global_batch or each * 8 * degrees["pp"])
    return TrainingPlan(sequence=sequence, precision=precision, **values)


def check_batch(tokens_per_step: float, sequence: int, global_batch: int) -> None:
    """Refuse tokens of a step that are less than a sequence, or that another statement of the batch contradicts.

    >>> check_batch(100, 4096, 0)
    Traceback (most recent call last):
    nearpeak.errors.SpecError: --tokens-per-step: 100 tokens are less than a sequence of 4,096; state at least 4,096
    """
    if tokens_per_step and global_batch:
        raise SpecError("--tokens-per-step and --global-batch: both state the batch; give one")
    if 0 < tokens_per_step < sequence:
        raise SpecError(
            f"--tokens-per-step: {tokens_per_step:,.0f} tokens are less than a sequence of {sequence:,}; state at "
            f"least {sequence:,}"
        )


def batch_of(tokens_per_step: float, sequence: int, device_count: int) -> int:
    """Return the sequences of a step of so many tokens, as a multiple of the devices where that is within a tenth.

    Every degree of data parallelism then divides the batch, so that a search leaves none out. Without tokens each
    device has eight sequences.

    >>> batch_of(4e6, 8192, 64), batch_of(4e6, 8192, 1024), batch_of(0, 8192, 64)
    (512, 488, 512)
    """
    if not tokens_per_step:
        return 8 * device_count
    count = round(tokens_per_step / sequence)
    even = round(count / device_count) * device_count
    return even if abs(even - count) <= 0.1 * count else count


def _undivided(values: Mapping[str, Any], degrees: Mapping[str, int], inner: int, device_count: int) -> str:
    """Return the error for degrees that do not divide the devices, with the nearest tensor-parallel degrees that do."""
    if "tile_row_count" in values or "has_branches" in values:
        fixed = {"tiles": degrees["cp"], "branches": degrees["tp"], "stages": degrees["pp"]}
        stated = " × ".join(f"{count} {name}" for name, count in fixed.items() if count > 1)
        return f"--parallel: {stated} of a replica do not divide {device_count} devices; fewer would"
    others = inner // degrees["tp"]
    fitting = [degree for degree in range(1, device_count + 1) if device_count % (degree * others) == 0]
    below = [f"tp={degree}" for degree in fitting if degree < degrees["tp"]][-1:]
    above = [f"tp={degree}" for degree in fitting if degree > degrees["tp"]][:1]
    near = " or ".join(below + above) or "smaller degrees"
    return f"--parallel: tp × pp × cp = {inner} does not divide {device_count} devices; {near} would"


def _values_of(text: str) -> dict[str, Any]:
    """Return the fields of a plan that the words of `text` state."""
    values: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = word.partition("=")
        for field, stated in _fields_of(name, value if sign else None).items():
            if field in values:
                raise SpecError(f"--parallel: {name} is stated twice in {text!r}; state it once")
            values[field] = stated
    return values


def _fields_of(name: str, value: str | None) -> dict[str, Any]:
    """Return the fields that one word states; `value` is none for a word alone."""
    if name in _FLAGS:
        return {_FLAGS[name]: _is_on(name, value)}
    if name not in _KNOWN:
        raise unknown_name("--parallel word", name, _KNOWN)
    if value is None:
        raise SpecError(f"--parallel: {name} needs a value, {name}=…")
    if name in _COUNTS:
        return {_COUNTS[name]: _whole(name, value)}
    if name == "zero":
        return {"sharding": "none" if value == "0" else f"zero{value}"}
    if name in ("stages", "spatial", "branches"):
        return _parts_of(name, value)
    if name == "schedule":
        schedule, sign, chunks = value.partition(":")
        if not sign and schedule in _FOLDED:
            chunks = "2"
        return {"schedule": schedule, **({"chunk_count": _whole(name, chunks)} if chunks else {})}
    return {_TEXTS[name]: value}


def _parts_of(name: str, value: str) -> dict[str, Any]:
    """Return the fields of a stage split, of tiles of images, or of ranks for branches.

    >>> _parts_of("stages", "9:8:8:7"), _parts_of("spatial", "2x4")
    ({'stage_layer_count': (9, 8, 8, 7)}, {'cp': 8, 'tile_row_count': 2, 'tile_column_count': 4})
    """
    if name == "stages":
        return {"stage_layer_count": tuple(_whole(name, count) for count in value.split(":"))}
    if name == "branches":
        return {"tp": _whole(name, value), "has_branches": True}
    rows, sign, columns = value.partition("x")
    counts = _whole(name, rows), _whole(name, columns) if sign else 1
    return {"cp": counts[0] * counts[1], "tile_row_count": counts[0], "tile_column_count": counts[1]}


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and 0 < len(value) < 10 and int(value)):
        raise SpecError(f"--parallel: {name}={value!r} must be a whole number of at least 1")
    return int(value)


def _is_on(name: str, value: str | None) -> bool:
    if value not in (None, "on", "off"):
        raise SpecError(f"--parallel: {name}={value!r} must be on or off, or stand alone")
    return value != "off"


def plan_words(plan: TrainingPlan) -> str:
    """Return the words that state a plan, without what is as usual.

    >>> plan_words(TrainingPlan(tp=8, dp=4, micro_batch=2, global_batch=64, sequence=4096, sequence_parallel=True))
    'tp=8,dp=4,micro=2,sp'
    """
    usual = {field.name: field.default for field in fields(TrainingPlan)}
    is_tiled = plan.tile_row_count * plan.tile_column_count > 1
    other = {"chunk_count", *(["cp"] if is_tiled else []), *(["tp"] if plan.has_branches else [])}
    words = [
        f"{word}={getattr(plan, field)}" for word, field in _COUNTS.items()
        if field not in other and getattr(plan, field) != usual.get(field)
    ]  # fmt: skip
    words += [f"spatial={plan.tile_row_count}x{plan.tile_column_count}"] if is_tiled else []
    words += [f"branches={plan.tp}"] if plan.has_branches else []
    words += [f"stages={':'.join(map(str, plan.stage_layer_count))}"] if plan.stage_layer_count else []
    if plan.schedule != usual["schedule"] or plan.chunk_count > 1:
        words.append(f"schedule={plan.schedule}" + (f":{plan.chunk_count}" if plan.chunk_count > 1 else ""))
    words += [
        f"{word}={getattr(plan, field)}" for word, field in _TEXTS.items()
        if field != "schedule" and getattr(plan, field) != usual[field]
    ]  # fmt: skip
    for word, field in _FLAGS.items():
        if getattr(plan, field) != usual[field]:
            words.append(word if getattr(plan, field) else f"{word}=off")
    return ",".join(words)
