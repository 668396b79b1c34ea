"""Steps whose convolutions in repeated layers take 8-bit weights and activations, as TensorRT runs them."""

import dataclasses
import re
from collections.abc import Iterator
from functools import cache

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.scheme import Scheme
from nearpeak.core.work.stored_formats import WIDE_FORMAT
from nearpeak.core.work.workload import Buffer, Call, Use, Workload
from nearpeak.frontends.quantisation.replaced_calls import with_replaced_calls
from nearpeak.ops import case as case_of

_IN_LAYERS = re.compile(r"(^|\.)\d+(\.|$)")
_WIDE_BYTES = 2
_SCALE_BYTES = 4
SOURCE = "TensorRT 10, 'Working with Quantized Types': a scale per output channel of weights, one per activation tensor"
"""What the format of convolutions follows."""


def takes_convolutions(scheme: Scheme) -> bool:
    """Return whether convolutions have kernels for a scheme: 8 bits on both sides, no blocks along the sum.

    >>> from nearpeak.core.work.scheme import SCHEMES
    >>> [takes_convolutions(SCHEMES[name]) for name in ("int8_row", "fp8_row", "fp8_block", "int8_weight_only")]
    [True, True, False, False]
    """
    sides = (scheme.a, scheme.b)
    return all(side.scaled and not side.column_count and dtype_of(side.dtype).bits_count == 8 for side in sides)


def with_quantised_convolutions(workload: Workload, scheme: Scheme) -> tuple[Workload, int]:
    """Return the step with 8-bit convolutions, and their number; the first layer, outside the repeated ones, stays.

    Activations are quantised with one scale that calibration gave, once for all convolutions that read them; results
    stay in 16 bits.
    """
    convolutions = {index: call for index, call in enumerate(workload.calls) if _is_quantisable(workload, call)}
    weights = {index: _weight(workload, call) for index, call in convolutions.items()}
    used = {
        use.buffer for index, call in enumerate(workload.calls) for use in (*call.reads, *call.writes)
        if index not in weights or use is not weights[index]
    }  # fmt: skip
    chosen = {index: call for index, call in convolutions.items() if weights[index].buffer not in used}
    edit = _Edit(workload, scheme.a.dtype)
    calls = {index: tuple(edit.calls_of(index, call, weights[index])) for index, call in chosen.items()}
    return with_replaced_calls(workload, calls, edit.buffers), len(chosen)


def _is_quantisable(workload: Workload, call: Call) -> bool:
    """Return whether a call is a 16-bit convolution of a whole tensor with whole weights in a repeated layer."""
    case = call.case
    if case is None or case.op != "conv" or (case.phase, call.phase) != ("forward", "forward"):
        return False
    is_wide = set(dict(case.dtypes).values()) == {WIDE_FORMAT}
    kinds = [workload.buffers[use.buffer].kind for use in call.reads]
    if not (is_wide and _IN_LAYERS.search(call.module) and "weight" in kinds and set(kinds) != {"weight"}):
        return False
    axes, weight, source = dict(case.axes), _weight(workload, call), _source(workload, call)
    taps = axes["out_channels"] * axes["in_channels"] // axes["groups"] * axes["kd"] * axes["kh"] * axes["kw"]
    sizes = workload.buffers[weight.buffer].bytes, workload.buffers[source.buffer].bytes
    return sizes[0] == _WIDE_BYTES * taps and sizes[1] >= _WIDE_BYTES * _elements(case)


def _weight(workload: Workload, call: Call) -> Use:
    weights = [use for use in call.reads if workload.buffers[use.buffer].kind == "weight"]
    return max(weights, key=lambda use: workload.buffers[use.buffer].bytes)


def _source(workload: Workload, call: Call) -> Use:
    return next(use for use in call.reads if workload.buffers[use.buffer].kind != "weight")


def _elements(case: Case) -> int:
    """Return the elements of the input."""
    axes = dict(case.axes)
    return axes["batch"] * axes["in_channels"] * axes["d"] * axes["h"] * axes["w"]


class _Edit:
    """Storages of the step, which grow by those of quantised activations."""

    def __init__(self, workload: Workload, dtype: str) -> None:
        self.buffers: list[Buffer] = list(workload.buffers)
        self._old, self._dtype = workload, dtype
        self._made: dict[tuple[int, int, int], int] = {}
        self._writers: dict[int, list[int]] = {}
        for index, call in enumerate(workload.calls):
            for use in call.writes:
                self._writers.setdefault(use.buffer, []).append(index)

    def calls_of(self, index: int, call: Call, weight: Use) -> Iterator[Call]:
        """Yield the quantisation of the input, unless done before, and the convolution."""
        assert call.case is not None
        source, elements = _source(self._old, call), _elements(call.case)
        writes = sum(writer < index for writer in self._writers.get(source.buffer, ()))
        key = (source.buffer, writes, elements)
        if key not in self._made:
            self.buffers.append(Buffer(bytes=elements, kind="activation"))
            self._made[key] = len(self.buffers) - 1
            whole = dataclasses.replace(source, bytes=_WIDE_BYTES * elements)
            made = Use(buffer=self._made[key], bytes=elements, stop_bytes=elements)
            yield _replaced(call, _quantise(elements, self._dtype), (whole,), (made,))
        narrow = Use(buffer=self._made[key], bytes=min(source.bytes // _WIDE_BYTES, elements), stop_bytes=elements)
        scales = _SCALE_BYTES * dict(call.case.axes)["out_channels"]
        size = self._old.buffers[weight.buffer].bytes // _WIDE_BYTES + scales
        self.buffers[weight.buffer] = dataclasses.replace(self._old.buffers[weight.buffer], bytes=size)
        stored = Use(buffer=weight.buffer, bytes=weight.bytes // _WIDE_BYTES + scales, stop_bytes=size)
        reads = tuple(stored if use is weight else narrow if use is source else use for use in call.reads)
        yield _replaced(call, _convolution(call.case, self._dtype), reads, call.writes)


def _replaced(call: Call, case: Case, reads: tuple[Use, ...], writes: tuple[Use, ...]) -> Call:
    return dataclasses.replace(
        call, operator=f"nearpeak.{case.op}", case=case, reads=reads, writes=writes, form=None, storages=()
    )  # fmt: skip


@cache  # equal calls share one case
def _convolution(case: Case, dtype: str) -> Case:
    return case_of(
        "conv", "forward", **dict(case.axes), **dict(case.attributes), dtype=dtype, out_dtype=WIDE_FORMAT
    )  # fmt: skip


@cache
def _quantise(elements: int, dtype: str) -> Case:
    return case_of(
        "quantise", "forward", rows=1, columns=elements, dtype=WIDE_FORMAT, out_dtype=dtype, scaling="given"
    )  # fmt: skip
