"""Low-rank adapters (LoRA): frozen weights with two narrow trained products beside some of them."""

from dataclasses import replace

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.work.dtype import dtype_of
from nearpeak.ops import case_of
from nearpeak.systems.transformer.layout import Adapters, Layout
from nearpeak.systems.transformer.pass_calls import Axes, PassCalls, collective, kernel, pointwise

_PRODUCTS = ("gemm", "scaled_gemm")
_NORMS = ("rms_norm", "layer_norm")


def adapted(part: PassCalls, layout: Layout) -> PassCalls:
    """Return a part whose weights are frozen, with adapters beside the projections that they belong to.

    Counts: beside y = x Wᵀ [rows, outputs], forward x Aᵀ [rows, rank], (x Aᵀ) Bᵀ and the sum; backward the gradients of
    both, of which that of the input is added to the projection's. No gradient of a frozen weight is formed, nor is one
    quantised. Tensor-parallel ranks gather or reduce the narrow result.

    Source: Hu et al. 2021, arXiv:2106.09685, section 4.1; over ranks: NVIDIA-NeMo/Megatron-Bridge, peft/utils.py
    (ParallelLinearAdapter).
    """
    adapters = layout.adapters
    if adapters is None:
        return part
    forward: list[RankCall] = []
    for call in part.forward:
        forward.append(call)
        if _is_target(call, adapters):
            forward += _beside(call, adapters, layout)
    backward: list[RankCall] = []
    weight: list[RankCall] = []
    for call in part.backward:
        if call.case is not None and call.case.op in _NORMS:  # the norm's own weights are frozen
            frozen = {"grad_weight": False} | ({"grad_bias": False} if call.case.op == "layer_norm" else {})
            backward.append(replace(call, case=case_of(call.case.record() | frozen), kernel_count=1))
        else:
            backward.append(call)
        if _is_target(call, adapters):
            input_gradients, weight_gradients = _gradients(call, adapters, layout)
            backward += input_gradients
            weight += weight_gradients
    return PassCalls(forward=tuple(forward), backward=tuple(backward), weight=tuple(weight))


def _is_target(call: RankCall, adapters: Adapters) -> bool:
    return call.case is not None and call.case.op in _PRODUCTS and call.name in adapters.targets


def _beside(call: RankCall, adapters: Adapters, layout: Layout) -> list[RankCall]:
    assert call.case is not None
    axes, dtype = dict(call.case.axes), layout.formats.activation
    rows, inputs, outputs = axes["m"], axes["k"], axes["n"]
    name, rank = f"{call.name}.adapter", adapters.rank
    calls = []
    if adapters.has_dropout:
        calls.append(kernel(f"{name}.dropout", "dropout", elements=rows * inputs, dtype=dtype))
    calls.append(kernel(name, "gemm", m=rows, n=rank, k=inputs, dtype=dtype, layout="nt"))
    if layout.tp > 1:
        calls.append(_narrow(name, rows, layout, adapters))
    calls.append(kernel(name, "gemm", m=rows, n=outputs, k=rank, dtype=dtype, layout="nt"))
    calls.append(pointwise(f"{name}.add", rows * outputs, dtype, "add", operands=2))
    return calls


def _gradients(call: RankCall, adapters: Adapters, layout: Layout) -> tuple[list[RankCall], list[RankCall]]:
    assert call.case is not None
    axes, dtype = dict(call.case.axes), layout.formats.activation
    rows, inputs, outputs = axes["m"], axes["n"], axes["k"]
    name, rank = f"{call.name}.adapter", adapters.rank
    calls = [kernel(name, "gemm", m=rows, n=rank, k=outputs, dtype=dtype)]
    if layout.tp > 1:
        calls.append(_narrow(name, rows, layout, adapters))
    calls.append(kernel(name, "gemm", m=rows, n=inputs, k=rank, dtype=dtype))
    if adapters.has_dropout:
        calls.append(kernel(f"{name}.dropout", "dropout", "backward", elements=rows * inputs, dtype=dtype))
    calls.append(pointwise(f"{name}.sum", rows * inputs, dtype, "add", operands=2))
    narrow: Axes = {"k": rows, "dtype": dtype, "layout": "tn"}
    weights = [
        kernel(name, "gemm", "forward", {**narrow, "m": outputs, "n": rank}),
        kernel(name, "gemm", "forward", {**narrow, "m": rank, "n": inputs}),
    ]
    return calls, weights


def _narrow(name: str, rows: int, layout: Layout, adapters: Adapters) -> RankCall:
    size = dtype_of(layout.formats.activation).bytes(rows * adapters.rank)
    return collective(f"{name}.reduce", "all_reduce", size, "tp")
