"""In-place optimizer steps on tensors of mixed formats, computed in the widest one."""

from collections.abc import Callable, Sequence
from typing import Any


def in_widest(
    tensors: dict[str, Any], names: Sequence[str], step: Callable[[dict[str, Any]], object], beside: str
) -> dict[str, Any]:
    """Return the named tensors after `step`, which changes them in the widest of their formats; each keeps its own.

    Where two formats are equally wide, the step is in fp32. The tensor `beside` them, a gradient, counts as well.
    """
    import torch

    formats = {tensors[name].dtype for name in (*names, beside)}
    most = max(dtype.itemsize for dtype in formats)
    widest = [dtype for dtype in formats if dtype.itemsize == most]
    wide = widest[0] if len(widest) == 1 else torch.float32
    worked = {name: tensors[name].to(wide) for name in names}
    step(worked)
    for name, dtype in worked.items():
        if dtype is not tensors[name]:
            tensors[name].copy_(dtype.detach())
    return {name: tensors[name] for name in names}
