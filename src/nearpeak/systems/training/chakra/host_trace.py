"""One micro-batch and step end of a rank program as a host execution trace in JSON, as `capture` reads it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from nearpeak.core.systems.rank_program import RankCall, RankProgram
from nearpeak.core.work.case import Case

SCHEMA = "1.1.1-chakra.0.0.4"
"""Schema that PyTorch's ExecutionTraceObserver states."""
_TYPES = {
    "fp32": "float", "tf32": "float", "fp64": "double", "fp16": "c10::Half", "bf16": "c10::BFloat16",
    "fp8": "c10::Float8_e4m3fn", "e4m3": "c10::Float8_e4m3fn", "e5m2": "c10::Float8_e5m2", "int8": "signed char",
}  # fmt: skip
_COLLECTIVES = {
    "all_reduce": "allreduce_", "all_gather": "_allgather_base_", "reduce_scatter": "_reduce_scatter_base_",
    "all_to_all": "alltoall_base_", "broadcast": "broadcast_", "send": "send",
}  # fmt: skip
_BACKWARD, _OPTIMIZER = "autograd::engine::evaluate_function: RankProgram", "Optimizer.step#RankProgram.step"


def host_trace(program: RankProgram) -> Mapping[str, Any]:
    """Return one micro-batch and the end of the step of a rank program as a host execution trace.

    Products are `aten::mm` and `aten::bmm` on their shapes; collectives are operators of `c10d` on their bytes; all
    other kernels are nodes called `nearpeak::OPERATOR` that state their axes, which other readers skip.
    """
    numbers = count(2)
    nodes: list[dict[str, Any]] = [_node(1, "[pytorch|profiler|execution_trace|process]", 0)]
    passes: Sequence[tuple[str, Sequence[RankCall]]] = (
        ("forward", program.forward), (_BACKWARD, (*program.recomputed, *program.backward, *program.weight)),
        (_BACKWARD, program.gradient), (_OPTIMIZER, program.optimizer),
    )  # fmt: skip
    for name, calls in passes:
        parent = next(numbers)
        nodes.append(_node(parent, name, 1))
        nodes += _nodes(calls, parent, numbers)
    return {"schema": SCHEMA, "pid": 0, "nodes": nodes}


def _nodes(calls: Iterable[RankCall], parent: int, numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
    for call in calls:
        for _ in range(call.count):
            if call.case is not None:
                yield _kernel(call.case, call.name, next(numbers), parent)
            elif call.transfer is not None:
                name, size = f"c10d::{_COLLECTIVES[call.transfer.kind]}", [[call.transfer.bytes]]
                yield _node(next(numbers), name, parent, size, ["Tensor(unsigned char)"], part=call.name)


def _kernel(case: Case, part: str, number: int, parent: int) -> dict[str, Any]:
    axes, dtypes = dict(case.axes), dict(case.dtypes)
    dtype = str(dtypes.get("dtype", ""))
    is_plain = case.op == "gemm" and case.phase == "forward" and not axes.get("bias_elements")
    if not is_plain or dtype not in _TYPES:
        return _node(number, f"nearpeak::{case.op}", parent, part=part, case=case.label())
    m, n, k = (int(axes[axis]) for axis in "mnk")
    batch = int(axes.get("batch", 1))
    shapes = [[batch, m, k], [batch, k, n]] if batch > 1 else [[m, k], [k, n]]
    name = "aten::bmm" if batch > 1 else "aten::mm"
    return _node(number, name, parent, shapes, [f"Tensor({_TYPES[dtype]})"] * 2, part=part)


def _node(
    number: int, name: str, parent: int, shapes: Sequence[Sequence[int]] = (), types: Sequence[str] = (), **said: str
) -> dict[str, Any]:
    attributes = [{"name": key, "type": "string", "value": value} for key, value in said.items()]
    return {
        "id": number, "name": name, "ctrl_deps": parent,
        "inputs": {"values": [[place] for place in range(len(shapes))], "shapes": list(map(list, shapes)),
                   "types": list(types)},
        "outputs": {"values": [], "shapes": [], "types": []}, "attrs": attributes,
    }  # fmt: skip
