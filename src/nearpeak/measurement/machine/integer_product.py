"""Rate of 8-bit integer products on this CPU, through the fastest library that is installed."""

from collections.abc import Callable
from typing import Any

import numpy as np

Best = Callable[[Callable[[], object]], float]
"""Returns the shortest time of a call in seconds."""


def integer_flop_per_s(extents: tuple[int, ...], torch: Any, best_s: Best) -> float:
    """Return the best rate of square int8 products, 2 operations per multiply-add; 0 where no library forms one.

    PyTorch's `_int_mm` and ONNX Runtime's `MatMulInteger` (uint8 by int8, the pair that x86 multiplies in one
    instruction) are both tried: which is faster differs with the extent and with the processor.

    Args:
        extents: extents of the products; the best one counts.
        torch: the PyTorch package; none where it is not installed.

    >>> integer_flop_per_s((), None, lambda call: 1.0)
    0.0
    """
    calls = [make for make in (_torch_call(torch), _runtime_call()) if make is not None]
    return max((2 * extent**3 / best_s(make(extent)) for extent in extents for make in calls), default=0.0)


def _torch_call(torch: Any) -> Callable[[int], Callable[[], object]] | None:
    if torch is None or not hasattr(torch, "_int_mm"):
        return None

    def make(extent: int) -> Callable[[], object]:
        left, right = (torch.randint(-127, 127, (extent, extent), dtype=torch.int8) for _ in range(2))
        return lambda: torch._int_mm(left, right)

    return make


def _runtime_call() -> Callable[[int], Callable[[], object]] | None:
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None

    def make(extent: int) -> Callable[[], object]:
        draw, helper, kinds = np.random.default_rng(0), onnx.helper, onnx.TensorProto
        left = draw.integers(0, 255, (extent, extent)).astype(np.uint8)
        right = onnx.numpy_helper.from_array(draw.integers(-127, 127, (extent, extent)).astype(np.int8), "b")
        graph = helper.make_graph(
            [helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product",
            [helper.make_tensor_value_info("a", kinds.UINT8, left.shape)],
            [helper.make_tensor_value_info("y", kinds.INT32, left.shape)], [right],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {"a": left})

    return make
