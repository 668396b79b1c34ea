"""Number formats in which an engine runs the kernels of a step: those of the model, or those that it builds with."""

from collections.abc import Mapping, Sequence

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import Buffer
from nearpeak.errors import NearpeakError
from nearpeak.frontends.inference_engine.engine_rules import PRODUCTS, is_floating
from nearpeak.frontends.inference_engine.kernel_group import KernelGroup
from nearpeak.ops import case as case_of

_NARROW_TOO = ("max_pool", "avg_pool", "adaptive_avg_pool", "interpolate", "elementwise", "copy", "edge_pad")
"""Operators besides products that engines run in 8 bits where their operands are."""
_LOOKED_UP = ("embedding", "gather", "scatter", "one_hot", "embedding_bag", "non_max_suppression", "topk")
"""Operators that read indices beside elements."""

Scaled = tuple[list[KernelGroup], dict[int, float]]
"""Kernels, and new over old bytes of the storages whose format changed."""


def narrowed(groups: list[KernelGroup], narrow: Mapping[int, str], buffers: Sequence[Buffer]) -> Scaled:
    """Return the kernels with those in 8 bits whose operands are quantised.

    Args:
        narrow: format by storage whose elements are quantised when written, or stored so.
    """
    scales: dict[int, float] = {}
    for group in groups:
        case = group.case
        if case is None or not narrow or case.op not in (*PRODUCTS, *_NARROW_TOO):
            continue
        operands = sorted(group.first_reads, key=lambda use: -use.bytes)
        operands = [use for use in operands if buffers[use.buffer].kind != "constant"]
        operands = operands[:2] if case.op in PRODUCTS else operands
        names = {_eight_bit(narrow[use.buffer]) if use.buffer in narrow else "" for use in operands}
        if len(names) != 1 or "" in names:
            continue
        name, is_written = names.pop(), any(use.buffer in narrow for use in group.call.writes)
        for use in group.call.writes:
            if use.buffer in narrow:
                scales[use.buffer] = 8 / _bits(case, "out_dtype")
        formats = {"dtype": name, "out_dtype": name if is_written else dict(case.dtypes).get("out_dtype", name)}
        group.case = _with_formats(case, formats if case.op in PRODUCTS else dict.fromkeys(formats, name))
    return groups, scales


def with_formats(groups: list[KernelGroup], scales: dict[int, float], dtype: str, buffers: Sequence[Buffer]) -> Scaled:
    """Return the kernels in the format that the engine builds with: int8 for products, pooling and the like.

    Softmax, normalisation and reductions stay in 16 bits, as calibration leaves them.
    """
    scales = dict(scales)
    for group in groups:
        case = group.case
        if case is None:
            continue
        is_narrow = case.op in (*PRODUCTS, *_NARROW_TOO)
        name = dtype if dtype != "int8" or is_narrow else "fp16"
        formats = {key: name for key, value in case.dtypes if is_floating(value)}
        if not formats:
            continue
        new = _with_formats(case, formats)
        if new is case:
            continue
        for uses, key in ((group.call.writes, "out_dtype"), (group.call.reads, "dtype")):
            for use in uses:
                has_indices = case.op in _LOOKED_UP and buffers[use.buffer].kind == "input"
                if use.buffer not in scales and not has_indices:
                    scales[use.buffer] = _bits(new, key) / _bits(case, key)
        group.case = new
    return groups, scales


def _with_formats(case: Case, formats: Mapping[str, str]) -> Case:
    """Return the case in other formats; the same one where its operator has no such rule."""
    named = {**dict(case.dtypes), **{key: name for key, name in formats.items() if key in dict(case.dtypes)}}
    if named == dict(case.dtypes):
        return case
    try:
        return case_of(case.op, case.phase, **dict(case.axes), **named, **dict(case.attributes))
    except NearpeakError:
        return case


def _eight_bit(name: str) -> str:
    """Return the format in which units multiply: unsigned numbers with their zero points are taken as signed."""
    return "int8" if name in ("int8", "uint8") else name


def _bits(case: Case, key: str) -> int:
    formats = dict(case.dtypes)
    return dtype_of(formats.get(key, formats["dtype"])).bits_count
