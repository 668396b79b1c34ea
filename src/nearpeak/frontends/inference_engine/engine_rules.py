"""Rules by which inference engines fold operators into others, by engine."""

from dataclasses import dataclass

from nearpeak.core.work.case import Case
from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import Call
from nearpeak.ops import case as case_of

PRODUCTS = ("conv", "conv_transpose", "gemm", "scaled_gemm")
"""Operators whose kernels end in an epilogue of the engine's own."""
FORMAT_CHANGES = ("cast", "quantise", "dequantise", "fake_quantise")
"""Operators that change the format of elements and nothing else."""
_BROAD = ("elementwise", "batch_norm", "dropout")
_ACTIVATIONS = frozenset({"relu", "leaky_relu", "sigmoid", "tanh", "clamp", "hard_sigmoid", "hardsigmoid", "relu6"})

_DLA_FUNCTIONS = frozenset({
    "relu", "relu6", "hardtanh", "clamp", "leaky_relu", "prelu", "sigmoid", "tanh", "silu", "abs", "sin", "cos", "add",
    "sub", "mul", "div", "pow", "maximum", "minimum",
})  # fmt: skip
"""Element-wise functions of a deep-learning accelerator; silu is a sigmoid and a product. Source: NVIDIA TensorRT
documentation, 'DLA Supported Layers and Restrictions' (activation, element-wise and unary layers), and
NVIDIA/Deep-Learning-Accelerator-SW, operators/README.md, which lacks erf, hard sigmoid and hard swish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """What an engine folds, with its source."""

    functions: frozenset[str] | None
    """Element-wise functions that go into the epilogue of a product; none stands for all."""
    joins_pointwise: bool
    """Whether element-wise operators that follow one another become one kernel."""
    source: str
    """Document of the rules."""
    pools_means: bool = False
    """Whether a mean over the positions of a map is an average pooling of one window."""


RULES = {
    "tensorrt": EngineRules(
        functions=None, joins_pointwise=True,
        source="NVIDIA TensorRT developer guide, 'Layer Fusion' and 'Working with Quantized Types'",
    ),
    "onnxruntime": EngineRules(
        functions=_ACTIVATIONS | {"add"}, joins_pointwise=False,
        source="ONNX Runtime, 'Graph Optimizations': constant, batch-norm, activation and add fusions, QDQ propagation",
    ),
    "dla": EngineRules(
        functions=_DLA_FUNCTIONS, joins_pointwise=True, pools_means=True,
        source="NVIDIA TensorRT documentation, 'DLA Supported Layers and Restrictions'",
    ),
}  # fmt: skip
"""Rules by the name of the engine."""


def changes_format(call: Call) -> bool:
    """Return whether a call only changes the format of floating-point elements."""
    case = call.case
    if case is None or case.op not in FORMAT_CHANGES:
        return False
    return case.op != "cast" or all(is_floating(name) for _, name in case.dtypes)


def folds(case: Case, rules: EngineRules) -> bool:
    """Return whether an operator can become part of the kernel that writes its operand."""
    attributes = dict(case.attributes)
    if case.phase != "forward" or case.op not in _BROAD or attributes.get("train", False):
        return False
    return case.op != "elementwise" or rules.functions is None or attributes.get("function") in rules.functions


def takes_epilogue(case: Case, rules: EngineRules) -> bool:
    """Return whether later element-wise operators can become part of the kernel of an operator."""
    return case.op in PRODUCTS or (rules.joins_pointwise and case.op in _BROAD)


def is_floating(name: str) -> bool:
    """Return whether a format is of floating-point numbers of 16 bits and more.

    >>> is_floating("fp16"), is_floating("int64")
    (True, False)
    """
    return name in ("fp64", "fp32", "fp16", "bf16")


def pooled_mean(call: Call) -> Case | None:
    """Return the average pooling that a mean over the positions of a map is; none for any other call.

    PyTorch computes adaptive pooling to one position as a mean over the last two dimensions.
    """
    if call.operator != "aten.mean.dim" or call.form is None:
        return None
    arguments = dict(call.form.arguments)
    x, dimensions = arguments["self"], arguments["dim"]
    if not isinstance(x, Layout) or not isinstance(dimensions, tuple) or len(x.shape) != 4:
        return None
    if {int(place) % 4 for place in dimensions if isinstance(place, int)} != {2, 3}:
        return None
    batch, channels, h, w = x.shape
    return case_of("adaptive_avg_pool", batch=batch, channels=channels, h=h, w=w, ow=1, dtype=x.dtype)
