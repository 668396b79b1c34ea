"""Layers of a deep-learning accelerator (NVDLA): which kernels of a step it runs, and which fall back to the GPU."""

from collections.abc import Iterable, Mapping

from nearpeak.core.work.case import Case
from nearpeak.core.work.engine_choice import EngineChoice
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError
from nearpeak.frontends.inference_engine.engine_lowering import lowered
from nearpeak.frontends.inference_engine.engine_rules import RULES

ENGINE = EngineChoice(name="dla", dtype="int8")
"""Lowering of a step to the layers of an accelerator, whose documented rates are of int8."""
LAYERS = frozenset({
    "conv", "conv_transpose", "gemm", "scaled_gemm", "elementwise", "batch_norm", "max_pool", "avg_pool",
    "adaptive_avg_pool", "softmax", "interpolate", "copy", "edge_pad", "cast", "quantise", "dequantise",
})  # fmt: skip
"""Operators that an accelerator has. Source: NVIDIA/Deep-Learning-Accelerator-SW, README (convolution, deconvolution,
fully connected, activation, pooling, batch normalisation) and operators/README.md; padding goes into convolutions."""
WINDOW, KERNEL, STRIDE = 8, 32, 8
"""Largest window of a pooling, and largest kernel and stride of a convolution. Source: NVIDIA TensorRT documentation,
'DLA Supported Layers and Restrictions'."""


def accelerator_kernels(step: Workload) -> Workload:
    """Return a captured step as an accelerator runs it: int8, element-wise layers folded, global means as poolings.

    Raises:
        NotModelledError: the step is none of inference, or has a layer that an accelerator does not run, which is named
            with its module and how many others fall back.
    """
    if step.step == "train":
        raise NotModelledError(f"{step.name}: a DLA runs inference, and this step is trained")
    kernels = lowered(step, ENGINE)
    absent = [(call, reason) for call in kernels.calls if (reason := refusal_of(call))]
    if absent:
        call, reason = absent[0]
        place = f" at {call.module}" if call.module else ""
        others = f" and {len(absent) - 1} others" if len(absent) > 1 else ""
        raise NotModelledError(
            f"{step.name}: a DLA does not run {reason}{place}; it{others} of {len(kernels.calls)} kernels would fall "
            "back to the GPU: split the model there, or state the time of the stage"
        )
    return kernels


def refusal_of(call: Call) -> str:
    """Return what of a kernel an accelerator does not run, in words; empty where it runs it."""
    case = call.case
    if case is None:
        return call.operator
    axes, function = dict(case.axes), str(dict(case.attributes).get("function", ""))
    if case.op not in LAYERS:
        hint = f" ({call.operator}; a mean over a map runs as AveragePool)" if function == "mean" else ""
        return f"{function or case.op}{hint}"
    if case.op == "elementwise" and function not in (RULES[ENGINE.name].functions or ()):
        return function
    if case.op in ("conv", "conv_transpose") and (
        _largest(axes, ("kd", "kh", "kw")) > KERNEL or _largest(axes, ("sd", "sh", "sw")) > STRIDE
    ):
        return f"a kernel of {axes['kh']} × {axes['kw']}, stride {axes['sh']} × {axes['sw']}"
    window = _window(case, axes)
    if max(window) > WINDOW:
        return f"a pooling of {' × '.join(map(str, window))} (at most {WINDOW} × {WINDOW})"
    return ""


def _window(case: Case, axes: Mapping[str, int]) -> tuple[int, int]:
    """Return the window of a pooling; 1 × 1 of any other kernel."""
    if case.op in ("max_pool", "avg_pool"):
        return axes["kh"], axes["kw"]
    if case.op == "adaptive_avg_pool":
        return -(-axes["h"] // axes["oh"]), -(-axes["w"] // axes["ow"])
    return 1, 1


def _largest(axes: Mapping[str, int], names: Iterable[str]) -> int:
    return max(axes.get(name, 1) for name in names)
