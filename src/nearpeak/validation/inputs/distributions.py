"""Seeded input distributions for validation, one for each kind of defect."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.ops import OPS
from nearpeak.ops.shared.definition.operator import IGNORED
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.inputs.adversarial_rows import HARD_ROWS, one_in_a_row, way_of, with_gaps, with_zeros
from nearpeak.validation.inputs.boundary_values import close, midway, midway_byte, next_to
from nearpeak.validation.oracle.expected_results import tolerance
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, format_name, widened

DISTRIBUTIONS = (
    "normal", "positive", "integer", "wide", "large", "small", "tiny", "ties", "close", "ascending", "descending",
    "ends", "single", "last", "whole", "midway", "midway_byte", "edges", "saturated", "far", "small_first",
    "small_last", "gentle", "jumps", "jumps_first", "nonfinite", "gaps", "sparse", "first_step", *HARD_ROWS,
)  # fmt: skip
"""Normal; positive, which shows bias that cancellation hides; small integers, whose sums are exact; magnitudes over
many binades; where a tolerance requires them, large and small numbers, many equal ones, neighbouring floats;
sorted numbers, as selection would hide the ends; integers at the ends of their range, which select the first and last
row; one repeated integer, which leaves most rows unselected, or the last of the range; integers of half the bits of
their format; numbers next to midpoints of a narrower format or of fp8, which double rounding moves to the wrong side;
numbers next to jumps of the results; numbers beyond the range of a quantised format; numbers so far from 1 that
integers have all digits of their format; the first or last input so far below the others that integer quotients do;
normal numbers over the root of the row length, as initial weights, with which long recurrences neither grow nor
saturate; numbers exactly at jumps, in all inputs or the first; non-finite numbers; even integers and zeros, which leave
groups empty and rows unselected; one non-zero number per row on average; states of 0 as before a first step, with zeros
among the other inputs; and HARD_ROWS."""
ALWAYS = DISTRIBUTIONS[:4]


ATTEMPTS = 6
"""Attempts to draw inputs inside the operator's domain."""
_WITH_IGNORED = ("positive", "wide", "large")
"""Rounds in which some targets are ignored; the others have losses of all targets."""
DISTINCT = 128
"""Elements up to which the inputs of exact operators have no ties: steps that bf16 resolves."""
_UNEVEN = {"normal": 1.2345678901234567, "wide": 0.8765432109876543}
"""Factors of few distinct floats: equal ones stay equal, and none keeps its value with fewer bits."""
_STEPS = {"normal": 8.0, "positive": 16.0, "wide": 4.0}


def drawn(op: str, arguments: dict[str, Any], seed: tuple[int | str, ...], distribution: str) -> dict[str, Any] | None:
    """Return torch tensors for the operator's inputs, inside its domain; none where none are found.

    An input on which the reference is undefined (roots and logarithms of negative numbers) is drawn positive.
    """
    attempts = (
        _drawn(op, arguments, (*seed, *((attempt,) if attempt else ())), distribution) for attempt in range(ATTEMPTS)
    )
    return next((tensors for tensors in attempts if tensors is not None), None)


def _drawn(op: str, arguments: dict[str, Any], seed: tuple[int | str, ...], distribution: str) -> dict[str, Any] | None:
    import torch

    declared = OPS[op].inputs(**arguments)
    random = np.random.default_rng(zlib.crc32(repr((op, sorted(arguments.items()), *seed, distribution)).encode()))
    kind = tolerance(op, arguments).kind
    limits = {name: OPS[op].tolerance.limit(name, arguments) for name in OPS[op].tolerance.below}
    ways = {name: _of_input(name, distribution, declared) for name in declared}
    if arguments.get("softcap") and "sink" in ways:
        ways["sink"] = "normal"  # a large sink would take all the weight from capped scores
    values = {name: _values(random, spec, limits.get(name), ways[name], kind) for name, spec in declared.items()}
    if arguments.get("softcap") and distribution == "large":
        values |= _beyond_the_cap(declared, values)
    if distribution == "edges" and (edges := OPS[op].edges) is not None:
        ends = edges(**arguments)
        values |= {
            name: next_to(random, ends, spec)
            if dtype_of(spec.dtype).kind == "float"
            else _whole(random, spec, len(ends) - 1, "normal")
            for name, spec in declared.items()
        }
    if "jumps" in ways.values() and (edges := OPS[op].edges) is not None:
        among = {True: edges(**arguments), False: (*edges(**arguments), *_NO_JUMPS)}
        floats = {k: spec for k, spec in declared.items() if values[k].dtype.kind == "f" and ways[k] == "jumps"}
        values |= {key: random.choice(among[spec.elements == 1], spec.shape) for key, spec in floats.items()}
    if not any(arguments.get(flag) for flag in OPS[op].tolerance.repeats_if):
        for name in OPS[op].tolerance.distinct:
            if declared[name].shape[-1] > limits[name]:
                return None
            values[name] = _all_different(random, declared[name].shape, limits[name], ways[name])
    if (valid := OPS[op].valid) is not None:
        values |= valid(values, **arguments)
    for entry in OPS[op].tolerance.positive:
        choice, _, name = entry.rpartition(":")
        if name in values and (not choice or choice in arguments.values()):
            values[name] = np.abs(values[name]) + _LEAST.get(ways[name], 0.1)
    changed = _at_first(values, OPS[op].tolerance.states) if distribution == "first_step" else {}
    values |= _saturated(op, declared, values, random) if distribution == "saturated" else changed
    for name in OPS[op].tolerance.ignored:
        if distribution in _WITH_IGNORED and values[name].size > 1:
            values[name].flat[1:] = np.where(
                random.random(values[name].size - 1) < 0.25, IGNORED, values[name].flat[1:]
            )
            values[name].flat[-1] = IGNORED
    arrays = {name: torch.as_tensor(np.asarray(array)) for name, array in values.items()}
    tensors = {name: array.to(torch_format(declared[name].dtype)) for name, array in arrays.items()}
    return _inside_domain(op, arguments, tensors, distribution)


def _at_first(values: Mapping[str, Any], states: Sequence[str]) -> dict[str, Any]:
    """Return states of 0, and zeros among the other inputs: a parameter without gradient divides 0 by epsilon.

    The first two numbers stay, so that results are not all 0.
    """
    others = {
        name: with_zeros(array) for name, array in values.items() if name not in states and array.dtype.kind == "f"
    }
    return others | {name: np.zeros_like(values[name]) for name in states if name in values}


def _saturated(op: str, declared: Mapping[str, Tensor], values: Mapping[str, Any], random: Any) -> dict[str, Any]:
    """Return inputs whose quotients leave the quantised range: smaller scales, or larger numbers if there are none.

    The larger numbers have many magnitudes: some leave the range, however narrow it is, and some do not.
    """
    scales = {entry.rpartition(":")[2] for entry in OPS[op].tolerance.positive} & values.keys()
    if scales:
        return {name: values[name] * _SATURATED for name in scales}
    floats = [name for name, spec in declared.items() if dtype_of(spec.dtype).kind == "float"]
    return {name: values[name] * _SATURATED ** -random.random(values[name].shape) for name in floats}


def _of_input(name: str, distribution: str, declared: Mapping[str, Tensor]) -> str:
    """Return the distribution of one input: factors of a small result must not hide it."""
    if distribution in HARD_ROWS:
        return way_of(name, distribution, [k for k, spec in declared.items() if dtype_of(spec.dtype).kind == "float"])
    if distribution == "large" and name in _PARAMETERS and declared[name].dtype == "fp16":
        return "normal"  # products of large numbers leave the range of fp16, in which intermediates may be stored
    if distribution == "tiny" and declared[name].dtype == "fp16":
        return "small"  # in which tiny ones are 0
    if distribution == "jumps_first":
        return "jumps" if name == next(iter(declared)) else "normal"
    if distribution in _SMALL_ONE:
        floats = [key for key, tensor in declared.items() if dtype_of(tensor.dtype).kind == "float"]
        place, others = _SMALL_ONE[distribution]
        return "below" if floats and name == floats[place] else others
    return "normal" if name in _PARAMETERS and distribution in ("small", "tiny") else distribution


_PARAMETERS = ("weight",)
_SMALL_ONE = {
    "small_first": (0, "normal"), "small_last": (-1, "normal"),
    "small_first_sorted": (0, "ascending"), "small_last_sorted": (-1, "ascending"),
}  # fmt: skip
"""By round: which float input is far below the others, and the distribution of the others."""


_SATURATED = 2.0**-7
"""Factor of scales with which half of the quotients exceed 8 bits."""
_LEAST = {
    "integer": 1.0,
    "small": 2.0**-24,
    "tiny": 2.0**-60,
    **dict.fromkeys(("below", *_SMALL_ONE), 2.0**-24),
}
"""Added to magnitudes, so that they are positive."""


def _values(random: Any, tensor: Tensor, limit: int | None, distribution: str, contract: str) -> Any:
    kind = dtype_of(tensor.dtype).kind
    if kind == "complex":
        return random.standard_normal(tensor.shape) + 1j * random.standard_normal(tensor.shape)
    if kind != "float":
        return _whole(random, tensor, limit, distribution)
    if limit is not None and contract == "exact":
        return random.integers(0, limit, tensor.shape) * _UNEVEN.get(distribution, 1.0)
    if distribution in _OF_FORMAT:
        return _OF_FORMAT[distribution](random, tensor)
    if contract == "exact" and distribution in ALWAYS and 1 < tensor.elements <= DISTINCT:
        # Ties are not checked in these rounds.
        places = random.permutation(tensor.elements).reshape(tensor.shape) - tensor.elements // 2
        return places * (1.0 if distribution == "integer" else random.uniform(1, 2) / _STEPS[distribution])
    size = _WIDER_LARGE if distribution == "large" and tensor.dtype == "fp64" else 1.0
    return size * _OF_DISTRIBUTION[distribution](random, tensor.shape)


def _whole(random: Any, tensor: Tensor, limit: int | None, distribution: str) -> Any:
    """Return integers below `limit`, or within every integer format; booleans are all true in one round."""
    if tensor.dtype == "bool" and limit is None and distribution in _TRUE:
        row = max(tensor.shape[-1] if tensor.shape else 1, 2)
        return random.random(tensor.shape) < _TRUE[distribution](row)
    if limit is None and distribution == "whole" and tensor.dtype != "bool":
        return random.integers(0, 2 ** (dtype_of(tensor.dtype).bits_count // 2), tensor.shape)
    least = {"bool": 2, "int4": 8, "uint4": 16}.get(tensor.dtype, 100) if limit is None else limit
    numbers = random.integers(0, least, tensor.shape)
    if distribution in ("single", "last"):
        return np.full(tensor.shape, least - 1 if distribution == "last" else int(random.integers(0, least)))
    if distribution == "gaps" and tensor.dtype != "bool":
        return with_gaps(numbers)
    if distribution != "ends":
        return numbers * one_in_a_row(random, tensor.shape) if distribution == "sparse" else numbers
    side, place = np.divmod(numbers % (2 * ENDS), ENDS)
    numbers = np.where(side, least - 1 - place, place) % least
    if numbers.size:  # few numbers may miss the ends
        numbers.flat[-1], numbers.flat[0] = 0, least - 1
    return numbers


_TRUE: dict[str, Callable[[int], float]] = {
    "positive": lambda _: 1.0, "integer": lambda row: 1 / row, "wide": lambda row: 1 - 1 / row,
    "sparse": lambda row: 1 / row,
}  # fmt: skip
"""Probability of true: always; one in a row; all but one in a row, so that some rows are all false or all true."""


def _all_different(random: Any, shape: tuple[int, ...], limit: int, distribution: str) -> Any:
    """Return integers below `limit`, distinct within a row: with both ends of the range, or for `single` without."""
    rows = []
    for _ in range(int(np.prod(shape[:-1]))):
        numbers = random.permutation(limit)
        inner = numbers[(numbers > 0) & (numbers < limit - 1)]
        if distribution == "ends":
            numbers = np.concatenate(([limit - 1, 0], inner))
        if distribution == "single" and limit > 1:
            numbers = np.concatenate((inner, random.permutation([0, limit - 1])))
        rows.append(random.permutation(numbers[: shape[-1]]))
    return np.asarray(rows, dtype=np.int64).reshape(shape)


def _beyond_the_cap(declared: Mapping[str, Tensor], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return vectors whose scores all exceed the cap, above it in every other head and below it in the rest.

    Capped scores are equal, uncapped ones far apart. With random signs and masks, a small case might have no row with
    two keys above the cap.
    """
    signs = np.where(np.arange(values["query"].shape[-3]) % 2, -1.0, 1.0)[:, None, None]
    masks = {name: np.ones_like(values[name]) for name, spec in declared.items() if spec.dtype == "bool"}
    return {"query": np.abs(values["query"]) * signs, "key": np.abs(values["key"]), **masks}


def _below(random: Any, tensor: Tensor) -> Any:
    """Return numbers smaller than normal ones by about the roundoff of their format, if results stay finite."""
    size = 4 * UNIT_ROUNDOFF[dtype_of(tensor.dtype).name]
    return min(max(size, _LEAST_BELOW), _MOST_BELOW) * random.standard_normal(tensor.shape)


_LEAST_BELOW, _MOST_BELOW = 2.0**-36, 2.0**-9
"""Limits of the factor: quotients of 36 bits expose fp64 with half its digits and stay below FAR; sums in few bits
need 9."""


def _far(random: Any, tensor: Tensor) -> Any:
    """Return numbers larger than normal ones by about the inverse roundoff, below FAR and FAR_IN_FP16."""
    size = 1 / (8 * UNIT_ROUNDOFF[dtype_of(tensor.dtype).name])
    return min(max(size, 2.0**8), 1 / _LEAST_BELOW) * random.standard_normal(tensor.shape)


_OF_FORMAT: dict[str, Callable[[Any, Tensor], Any]] = {
    "close": close, "midway": midway, "midway_byte": midway_byte, "below": _below, "far": _far, **HARD_ROWS,
}  # fmt: skip
_WIDER_LARGE = 16.0
"""Factor of large numbers in fp64, whose exponentials overflow later."""
ENDS = 2
"""Integers at each end of the range."""
_OF_DISTRIBUTION: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {
    **dict.fromkeys(
        ("normal", "single", "last", "ends", "whole", "edges", "saturated", "jumps", "gaps", "first_step"),
        lambda random, shape: random.standard_normal(shape),
    ),
    "positive": lambda random, shape: random.uniform(0.5, 1.5, shape),
    "integer": lambda random, shape: random.integers(-2, 3, shape).astype(float),
    "wide": lambda random, shape: random.choice((-1.0, 1.0), shape) * 2.0 ** random.uniform(-3, 3, shape),
    "large": lambda random, shape: _large(64 * random.standard_normal(shape)),
    "small": lambda random, shape: 2.0**-9 * random.standard_normal(shape),
    "tiny": lambda random, shape: 2.0**-36 * random.standard_normal(shape),
    "ascending": lambda random, shape: np.sort(random.standard_normal(shape), axis=None).reshape(shape),
    "descending": lambda random, shape: -np.sort(random.standard_normal(shape), axis=None).reshape(shape),
    "ties": lambda random, shape: random.integers(0, 3, shape).astype(float),
    "sparse": lambda random, shape: random.standard_normal(shape) * one_in_a_row(random, shape),
    "nonfinite": lambda random, shape: random.choice((np.nan, np.inf, -np.inf, 1.0, -2.0), shape),
    "gentle": lambda random, shape: random.standard_normal(shape) / max(shape[-1] if shape else 1, 1) ** 0.5,
}


_NO_JUMPS = (1.0, -2.0)
"""Numbers drawn in addition to those at which results jump."""
LARGE = 128.0
"""Least maximum of the first row of large numbers: its exponential overflows fp32, e^88.7."""


def _large(values: Any) -> Any:
    """Return the values with the first row's maximum raised to LARGE, as a few numbers may all be small.

    The first row's target is never ignored.
    """
    first = values.reshape(-1)[: values.shape[-1] if values.ndim else 1]
    if first.size and first.max() < LARGE:
        first[first.argmax()] = LARGE
    return values


def _tries(op: str, tensors: dict[str, Any], distribution: str) -> Iterator[dict[str, Any]]:
    """Yield the inputs as drawn, with magnitudes of one float input, of all, with small states, with zero integers."""
    floats = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
    for chosen in ((), *((name,) for name in floats), tuple(floats)):
        yield tensors | {name: _positive(tensors[name], distribution) for name in chosen}
    states = [name for name in floats if name not in OPS[op].tolerance.positive]
    yield tensors | {name: (tensors[name].double() / 16).to(tensors[name].dtype) for name in states}
    yield tensors | {name: tensor * 0 for name, tensor in tensors.items() if not tensor.is_floating_point()}


def _above_one(tensor: Any) -> Any:
    return (1 + _positive(tensor, "normal").double()).to(tensor.dtype)


def _between(tensor: Any) -> Any:
    """Return the numbers mapped into (0, 1) by a sigmoid that reaches neither end, in any format."""
    return (0.5 + 0.48 * (tensor.double() / (1 + tensor.double().abs()))).to(tensor.dtype)


def _positive(tensor: Any, distribution: str) -> Any:
    return (tensor.double().abs() + _LEAST.get(distribution, 0.1)).to(tensor.dtype)


def _inside_domain(
    op: str, arguments: dict[str, Any], tensors: dict[str, Any], distribution: str
) -> dict[str, Any] | None:
    """Return the first candidate inputs whose results are finite and not huge, else the first defined ones, or none."""
    defined = None
    for tried in _tries(op, tensors, distribution):
        seen = _seen(op, arguments, tried, FAR_BEYOND if distribution == "beyond" else FAR_IN_FP16)
        if seen == "finite":
            return tried
        defined = tried if seen == "defined" and defined is None else defined
    if defined is None:
        # Inputs above 1, and between 0 and 1: some functions are defined there alone.
        floats = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
        for moved, chosen in product((_above_one, _between), (*((name,) for name in floats), tuple(floats))):
            tried = tensors | {name: moved(tensors[name]) for name in chosen}
            if _seen(op, arguments, tried, FAR_IN_FP16):
                return tried
    return defined


FAR = 2.0**40
"""Limit of results: beyond it, growing recurrences overflow fp32 in intermediates or gradients."""
FAR_IN_FP16 = 2.0**11
"""The limit where an input is fp16, whose largest number is 65,504 (IEEE 754-2019)."""
FAR_BEYOND = 2.0**15
"""The limit in the round that exceeds the range of fp16 on purpose."""


def _seen(op: str, arguments: dict[str, Any], tensors: dict[str, Any], far_in_fp16: float) -> str:
    """Return whether the reference's results are `finite`, at least `defined`, or neither."""
    try:
        with np.errstate(all="ignore"):
            results = OPS[op].reference({name: widened(tensor) for name, tensor in tensors.items()}, **arguments)
    except (ArithmeticError, LookupError, ValueError):
        return ""
    floats = [array for array in map(np.asarray, results.values()) if array.dtype.kind in "fc"]
    if any(np.isnan(array).any() for array in floats):
        return ""
    far = far_in_fp16 if any(format_name(tensor.dtype) == "fp16" for tensor in tensors.values()) else FAR
    searches = bool(OPS[op].tolerance.picks)  # a missing neighbour is infinitely far by definition
    with np.errstate(all="ignore"):  # fp16 cannot hold the other limit
        is_near = all(((np.abs(array) < far) | (np.isinf(array) & searches)).all() for array in floats)
    return "finite" if is_near else "defined"
