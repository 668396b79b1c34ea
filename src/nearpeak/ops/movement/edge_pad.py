"""Reflection and replication padding, and its gradient."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

_NUMPY = {"reflection": "reflect", "replication": "edge"}
_TORCH = {"reflection": "reflect", "replication": "replicate"}
_AXES = ("d", "h", "w")


@free_when_empty
def edge_pad(
    planes: int, w: int, dtype: DType, h: int = 1, d: int = 1, pd: int = 0, ph: int = 0, pw: int = 0,
    pd_end: int | None = None, ph_end: int | None = None, pw_end: int | None = None, function: str = "reflection",
) -> Work:  # fmt: skip
    """Return the least work of padding planes of d x h x w by reflecting or repeating their edges.

    Counts: bytes only; each element is read once.

    Args:
        pd: elements added at the beginning; pd_end, at the end, is the same unless given.
        function: reflection or replication.

    Source: definition.

    >>> edge_pad(2, 4, DType(name="fp32", bits_count=32), pw=1).write_bytes
    48
    """
    required_one_of("edge_pad", _NUMPY, function=function)
    return Work(
        read_bytes=dtype.bytes(planes * d * h * w),
        write_bytes=dtype.bytes(planes * _padded(d, h, w, pd, ph, pw, pd_end, ph_end, pw_end)),
    )


@free_when_empty
def _backward(
    planes: int, w: int, dtype: DType, h: int = 1, d: int = 1, pd: int = 0, ph: int = 0, pw: int = 0,
    pd_end: int | None = None, ph_end: int | None = None, pw_end: int | None = None, function: str = "reflection",
) -> Work:  # fmt: skip
    """Return the least work of the gradient: one FLOP for every padded element, which is added to where it came from.

    Counts: as forward, with read and written exchanged.
    """
    required_one_of("edge_pad", _NUMPY, function=function)
    padded, inner = _padded(d, h, w, pd, ph, pw, pd_end, ph_end, pw_end), d * h * w
    return Work(
        flop={unit(dtype): planes * (padded - inner)},
        read_bytes=dtype.bytes(planes * padded),
        write_bytes=dtype.bytes(planes * inner),
    )


def _padded(
    d: int, h: int, w: int, pd: int, ph: int, pw: int, pd_end: int | None, ph_end: int | None, pw_end: int | None
) -> int:
    """Return the elements of a padded plane."""
    sides = ((d, pd, pd_end), (h, ph, ph_end), (w, pw, pw_end))
    depth, height, width = (size + begin + (begin if end is None else end) for size, begin, end in sides)
    return depth * height * width


def _sides(arguments: dict[str, Any]) -> list[tuple[int, int]]:
    return [(arguments[f"p{axis}"], arguments[f"p{axis}_end"]) for axis in _AXES]


def _reference(arrays: dict[str, Any], function: str, **arguments: Any) -> dict[str, Any]:
    mode: Any = _NUMPY[function]
    return {"y": np.pad(arrays["x"], [(0, 0), (0, 0), *_sides(arguments)], mode=mode)}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    grad = np.zeros(arrays["x"].size)
    origin = _reference({"x": np.arange(grad.size).reshape(arrays["x"].shape)}, **arguments)["y"]
    np.add.at(grad, origin.ravel(), arrays["grad_y"].ravel())
    return {"grad_x": grad.reshape(arrays["x"].shape)}


def _torch_call(tensors: dict[str, Any], function: str, **arguments: Any) -> dict[str, Any]:
    import torch

    sides = [side for pair in reversed(_sides(arguments)) for side in pair]
    return {"y": torch.nn.functional.pad(tensors["x"], sides, mode=_TORCH[function])}


def _from_aten(site: AtenSite) -> Match:
    """Match the paddings of one to three dimensions and their gradients."""
    x, padding = site.args["self"], site.args["padding"]
    count = len(padding) // 2
    arguments: dict[str, Value] = {
        "planes": int(np.prod(x.shape[:-count], dtype=np.int64)), "dtype": x.dtype,
        "function": site.name.split(".")[1].split("_")[0],
    }  # fmt: skip
    for place, axis in enumerate(reversed(_AXES[-count:])):
        before, after = padding[2 * place : 2 * place + 2]  # negative ones crop, and what is cropped is not read
        arguments |= {axis: max(0, x.shape[-1 - place] + min(0, before) + min(0, after))}
        arguments |= {f"p{axis}": max(0, before), f"p{axis}_end": max(0, after)}
    if "grad_output" in site.args:
        return Match(arguments=arguments, phase="backward", touched_bytes={"self": 0})
    unpadded = prod(int(arguments[axis]) for axis in ("planes", *_AXES[-count:]))
    return Match(arguments=arguments, touched_bytes={"self": dtype_of(x.dtype).bytes(min(unpadded, x.distinct))})


OPERATOR = Operator(
    forward=edge_pad,
    family="movement",
    backward=_backward,
    tolerance=Tolerance(kind="exact"),
    inputs=lambda planes, d, h, w, dtype, **_: {"x": Tensor(shape=(1, planes, d, h, w), dtype=dtype)},
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    same={f"p{axis}_end": f"p{axis}" for axis in _AXES},
    aten={
        f"aten.{function}_pad{rank}d{phase}.default": _from_aten
        for function in _NUMPY
        for rank in (1, 2, 3)
        for phase in ("", "_backward")
    },
)
