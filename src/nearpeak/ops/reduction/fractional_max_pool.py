"""Fractional max pooling: windows of one size at pseudo-random distances."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared import sliding_windows as sliding
from nearpeak.ops.shared.arithmetic import INDEX, unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum, unless_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.window_maxima import all_maxima, overloads, references, returned_work


def fractional_max_pool(
    batch: int, channels: int, w: int, kw: int, ow: int, dtype: DType, d: int = 1, h: int = 1, kd: int = 1, kh: int = 1,
    od: int = 1, oh: int = 1, indices: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of maxima over windows kd x kh x kw, od x oh x ow of them at random distances.

    Counts: one vector FLOP per comparison, one fewer than the window's positions; one random number per plane and
    dimension is read. Windows begin at different positions, so that o of them meet at least o + k - 1.

    Args:
        indices: the position of each maximum is written as int64; leave out where it is not read.

    Source: Graham 2014, arXiv:1412.6071.

    >>> fractional_max_pool(1, 2, 8, 2, 4, DType(name="fp32", bits_count=32), h=8, kh=2, oh=4).flop
    {'vector.fp32': 96}
    """
    planes = unless_empty(d * h * w, batch * channels)
    outputs = planes * od * oh * ow
    met = minimum(d, od + kd - 1) * minimum(h, oh + kh - 1) * minimum(w, ow + kw - 1)
    samples = planes * 2 + planes * ((d > 1) | (kd > 1) | (od > 1))
    return Work(
        flop={unit(dtype): outputs * maximum(kd * kh * kw - 1, 0)},
        read_bytes=unless_empty(outputs, dtype.bytes(planes * maximum(met, 0) + samples)),
        write_bytes=dtype.bytes(outputs) + indices * INDEX.bytes(outputs),
    )


def _backward(
    batch: int, channels: int, w: int, kw: int, ow: int, dtype: DType, d: int = 1, h: int = 1, kd: int = 1, kh: int = 1,
    od: int = 1, oh: int = 1,
) -> Work:  # fmt: skip
    """Return the least work of adding each output's gradient where its maximum was, as the saved indices say."""
    del kd, kh, kw
    inputs = batch * channels * d * h * w
    return returned_work(dtype, inputs, batch * channels * od * oh * ow)


def _inputs(**arguments: Any) -> dict[str, Tensor]:
    size, lead = sliding.extents(arguments), (arguments["batch"], arguments["channels"])
    return {
        "input": Tensor(shape=(*lead, *size), dtype=arguments["dtype"]),
        "samples": Tensor(shape=(*lead, len(size)), dtype=arguments["dtype"]),
    }


def _valid(drawn: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return numbers from 0 to 1, as generators of random numbers give them: all over it, however few are drawn.

    Those of two places differ where the same was drawn for both: which belongs to which dimension must show.
    """
    samples = np.abs(drawn["samples"])
    places = np.arange(samples.size).reshape(samples.shape)
    return {"samples": (_APART * samples + _GOLDEN * places) % 1}


_APART = 512 * (5**0.5 - 1)
"""Factor whose fractional multiples separate numbers that are close or whole."""
_GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it lie apart from each other, modulo 1."""


def _spans(extent: int, kernel: int, count: int, sample: float) -> list[tuple[int, int]]:
    """Return the windows of one dimension; the last one ends where the input ends."""
    step = (extent - kernel) / (count - 1) if count > 1 else 0.0
    starts = [int((i + sample) * step) - int(sample * step) for i in range(count - 1)]
    return [(start, start + kernel) for start in (*starts, extent - kernel)]


def _winners(arrays: dict[str, Any], arguments: dict[str, Any]) -> tuple[Any, Any]:
    sizes = list(zip(*(sliding.extents(arguments, prefix) for prefix in ("", "k", "o")), strict=True))
    samples = arrays["samples"].reshape(-1, len(sizes))
    # In a plane, the first number is the width's.
    ordered = samples[:, ::-1] if len(sizes) == 2 else samples
    return all_maxima(
        arrays["input"],
        [[_spans(n, k, count, s) for (n, k, count), s in zip(sizes, row, strict=True)] for row in ordered],
    )


_reference, _backward_reference = references(_winners)


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    kernel, parts = sliding.extents(arguments, "k"), sliding.extents(arguments, "o")
    run: Any = F.fractional_max_pool2d if len(parts) == 2 else F.fractional_max_pool3d
    samples = tensors["samples"].detach()
    output, where = run(tensors["input"], kernel, output_size=parts, return_indices=True, _random_samples=samples)
    return {"output": output, "indices": where} if arguments["indices"] else {"output": output}


def _from_aten(site: AtenSite) -> Match:
    """Match fractional max pooling and its gradient; whether the indices are used is not visible here."""
    x, count = site.args["self"], sliding.window_rank(site)
    kernel = sliding.named("k", site.args["kernel_size"], count)
    arguments = sliding.partition(site) | kernel
    if "grad_output" in site.args:
        return Match(arguments=arguments, phase="backward", touched_bytes={"self": 0})
    rows = zip(x.shape[-count:], site.outputs[0].shape[-count:], kernel.values(), strict=True)
    met = prod(min(size, out + kernel - 1) for size, out, kernel in rows)
    return Match(
        arguments=arguments, touched_bytes=sliding.partly_touched("self", x, prod(x.shape[:-count]) * max(met, 0))
    )


OPERATOR = Operator(
    forward=fractional_max_pool,
    family="reduction",
    backward=_backward,
    tolerance=Tolerance(kind="exact", rounds=("close", "deep"), least_format="fp32"),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten=overloads("fractional_max_pool", _from_aten),
)
