"""Copies between device memory and the memory of the host or of another device."""

from collections.abc import Mapping
from typing import Any

from nearpeak.base.registry import entry_of
from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

PORTS: Mapping[str, str] = {
    "h2d": "host.in", "d2h": "host.out",
    "d2d_out": "peer.out", "d2d_in": "peer.in",
}  # fmt: skip
"""Port that each direction takes; d2d is a copy to or from another device."""


def transfer(elements: int, dtype: DType, direction: str = "h2d") -> Work:
    """Return the least work of copying x[elements] onto the device or away from it.

    Counts: bytes only: over the link once, and read from or written to the device's own memory once. Pinned or pageable
    host memory makes no difference to the least time.

    Args:
        direction: h2d (host to device), d2h, d2d_out (to another device) or d2d_in.

    Source: definition.

    >>> transfer(8, DType(name="fp32", bits_count=32)).comm_bytes
    {'host.in': 32}
    """
    port, size, inward = entry_of("direction", PORTS, direction), dtype.bytes(elements), direction in ("h2d", "d2d_in")
    return Work(read_bytes=size * (not inward), write_bytes=size * inward, comm_bytes={port: size})


def _torch_call(tensors: dict[str, Any], direction: str, **_: Any) -> dict[str, Any]:
    x = tensors["x"]
    if not x.is_cuda:
        return {"y": x.clone()}
    if direction != "d2h":  # a copy within its memory would take the place of one over the link
        raise NotImplementedError(f"transfer {direction}: the input lies on the device already; d2h can be run")
    return {"y": x.cpu()}


def _from_aten(site: AtenSite) -> Match:
    """Match the copies that captures keep apart."""
    x = site.args["input"]
    direction = site.args["direction"]
    # One side lies in the memory of the host.
    touched = {"input": 0} if direction == "h2d" else {"write:": 0}
    arguments: dict[str, Value] = {"elements": x.distinct, "dtype": x.dtype, "direction": direction}
    return Match(arguments=arguments, touched_bytes=touched)


OPERATOR = Operator(
    forward=transfer,
    family="movement",
    tolerance=Tolerance(kind="exact"),
    inputs=lambda elements, dtype, **_: {"x": Tensor(shape=(elements,), dtype=dtype)},
    reference=lambda arrays, **_: {"y": arrays["x"] * 1},
    torch_call=_torch_call,
    aten={"nearpeak.transfer.default": _from_aten},
)
