"""Non-maximum suppression of overlapping bounding boxes."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX
from nearpeak.ops.shared.definition.array_arithmetic import minimum, unless_empty
from nearpeak.ops.shared.definition.operator import Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

_OVERLAP = 0.1 + 2.0**-15
"""Reference and PyTorch call drop what shares more of the union than this; the work does not depend on it.

Shares of drawn boxes are quotients of whole numbers up to `2 * (2 * _STEPS) ** 2`, none of which is closer to a tenth
than a 20,480th without being one: this is in between, far from all by what fp32 rounds.
"""
_STEPS, _STEP = 16, 0.31415926535897931
"""Steps from the middle that corners are apart at most, and their size: no multiple of it keeps its value in bf16."""


def non_max_suppression(batch: int, boxes: int, classes: int, dtype: DType, found: int = 0) -> Work:
    """Return the least work of the selected boxes, as image, class and position, three int64 each.

    Shapes: boxes [batch, boxes, 4]; scores [batch, classes, boxes].
    Counts: bytes only; which boxes are compared depends on the data. How many are selected is data, between 0 and
    batch * classes * boxes; a bound takes none unless the values are known (assumption A9).

    Args:
        found: selected boxes.

    Source: definition, as ONNX states it.

    >>> non_max_suppression(1, 8, 2, DType(name="fp32", bits_count=32), found=3).write_bytes
    72
    """
    scores = batch * classes * boxes
    return Work(
        read_bytes=dtype.bytes(unless_empty(scores, 4 * batch * boxes) + scores),
        write_bytes=INDEX.bytes(3 * minimum(found, scores)),
    )


def _valid(drawn: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return boxes with an area whose corners lie on few steps, so that no rounding decides which are dropped."""
    boxes = drawn["boxes"]
    steps = np.rint(boxes / max(np.abs(boxes).max(initial=0.0), 1e-300) * (_STEPS - 1))
    steps[..., 2:] += steps[..., 2:] == steps[..., :2]
    return {"boxes": steps * _STEP}


def _kept(lower: Any, upper: Any, order: Any) -> list[int]:
    """Return the positions of the selected boxes, best first, from corners [boxes, 2] in float64."""
    rest, chosen = np.asarray(order), []
    while rest.size:
        best, rest = rest[0], rest[1:]
        chosen.append(int(best))
        rest = rest[_shared(lower, upper, rest, best) <= _OVERLAP]
    return chosen


def _shared(lower: Any, upper: Any, rest: Any, best: Any) -> Any:
    """Return which part of the union with the best box is common; of edges that are NaN the other one counts."""
    high, low = upper[rest], lower[rest]
    ends = np.where(upper[best] < high, upper[best], high) - np.where(lower[best] > low, lower[best], low)
    both = np.where(ends > 0, ends, 0.0).prod(-1)
    area, best_area = (high - low).prod(-1), (upper[best] - lower[best]).prod(-1)
    union = area + best_area - both
    if np.any(union == 0):
        raise ZeroDivisionError("two boxes without an area have no share in common")
    return both / union


def _rows(boxes: Any, orders: Any) -> list[tuple[int, int, int]]:
    corner, opposite = boxes[..., :2], boxes[..., 2:]
    low, size = (corner + opposite - abs(corner - opposite)) / 2, abs(corner - opposite)
    lower, upper = (np.asarray(corners.tolist(), dtype=np.float64) for corners in (low, low + size))
    return [
        (image, kind, place)
        for image, kinds in enumerate(orders)
        for kind, order in enumerate(kinds.tolist())
        for place in _kept(lower[image], upper[image], order)
    ]


def _reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    orders = np.argsort(-arrays["scores"], axis=-1, kind="stable")
    return {"y": np.array(_rows(arrays["boxes"], orders), dtype=np.int64).reshape(-1, 3)}


def _torch_call(tensors: dict[str, Any], **_: Any) -> dict[str, Any]:
    import torch

    orders = tensors["scores"].argsort(dim=-1, descending=True, stable=True)
    return {"y": torch.tensor(_rows(tensors["boxes"], orders), dtype=torch.int64).reshape(-1, 3)}


def _from_onnx(site: OnnxSite) -> Match:
    """Match NonMaxSuppression; how many boxes are selected is not known."""
    boxes, scores = site.tensor(0), site.tensor(1)
    arguments: dict[str, Value] = {
        "batch": boxes.shape[0], "boxes": boxes.shape[1], "classes": scores.shape[1], "dtype": boxes.dtype,
    }  # fmt: skip
    return Match(arguments=arguments, touched_bytes={str(place): 0 for place in range(2, len(site.inputs))})


OPERATOR = Operator(
    forward=non_max_suppression,
    family="reduction",
    # Which boxes a NaN among scores leaves over is defined nowhere.
    tolerance=Tolerance(kind="exact", least_format="fp32", special="boxes"),
    inputs=lambda batch, boxes, classes, dtype, **_: {
        "boxes": Tensor(shape=(batch, boxes, 4), dtype=dtype),
        "scores": Tensor(shape=(batch, classes, boxes), dtype=dtype),
    },
    valid=_valid,
    reference=_reference,
    torch_call=_torch_call,
    onnx={"NonMaxSuppression": _from_onnx},
)
