"""Rates of matrix products on this CPU through ONNX Runtime, and of 8-bit integers through the fastest library."""

from collections.abc import Callable
from typing import Any

import numpy as np

Best = Callable[[Callable[[], object]], float]
"""Returns the shortest time of a call in seconds."""
Make = Callable[[int], Callable[[], object]]
"""Returns the call of a square product of an extent."""


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
    return _best_rate(extents, [_torch_call(torch), _runtime_call("MatMulInteger", np.uint8, np.int8)], best_s)


def runtime_flop_per_s(extents: tuple[int, ...], best_s: Best) -> float:
    """Return the best rate of square fp32 products through ONNX Runtime, whose kernels are its own; 0 without it."""
    return _best_rate(extents, [_runtime_call("MatMul", np.float32, np.float32)], best_s)


def _best_rate(extents: tuple[int, ...], calls: list[Make | None], best_s: Best) -> float:
    makes = [make for make in calls if make is not None]
    return max((2 * extent**3 / best_s(make(extent)) for extent in extents for make in makes), default=0.0)


def _torch_call(torch: Any) -> Make | None:
    if torch is None or not hasattr(torch, "_int_mm"):
        return None

    def make(extent: int) -> Callable[[], object]:
        left, right = (torch.randint(-127, 127, (extent, extent), dtype=torch.int8) for _ in range(2))
        return lambda: torch._int_mm(left, right)

    return make


def _runtime_call(operator: str, left_kind: Any, right_kind: Any) -> Make | None:
    """Return the product of a runtime's operator with a stored right factor; none without the runtime."""
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None

    def make(extent: int) -> Callable[[], object]:
        draw, helper = np.random.default_rng(0), onnx.helper
        left, right = (draw.integers(0, 127, (extent, extent)).astype(kind) for kind in (left_kind, right_kind))
        kinds = [helper.np_dtype_to_tensor_dtype(left.dtype), onnx.TensorProto.INT32]
        kinds[1] = kinds[0] if operator == "MatMul" else kinds[1]
        graph = helper.make_graph(
            [helper.make_node(operator, ["a", "b"], ["y"])], "product",
            [helper.make_tensor_value_info("a", kinds[0], left.shape)],
            [helper.make_tensor_value_info("y", kinds[1], left.shape)], [onnx.numpy_helper.from_array(right, "b")],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {"a": left})

    return make
