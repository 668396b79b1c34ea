"""Mutants of inputs: slices dropped or counted twice, wrong groups, operands ignored or rounded."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.mutants.legitimate_variants import summed
from nearpeak.validation.mutants.mutant import Mutant, Tensors, of_inputs_changed, right_call
from nearpeak.validation.oracle.expected_results import arguments_of, tolerance_of
from nearpeak.validation.running.implementation_run import Call


def of_inputs(case: Case) -> Iterator[Mutant]:
    """Yield the mutants of every input and dimension."""
    declared = OPS[case.op].inputs(**arguments_of(case))
    floats = [name for name, tensor in declared.items() if torch_format(tensor.dtype).is_floating_point]
    for name, tensor in declared.items():
        yield _changed(case, "operand ignored", name, lambda x: x * 0)
        for dimension, extent in enumerate(tensor.shape):
            if extent > 1:
                yield from _of_dimension(case, name, dimension, has_zero=name in floats)
        if name in floats and len(tensor.shape) > 1 and min(tensor.shape[-2:]) > 1:
            yield _changed(case, "operand transposed", name, _transposed, moves=True)
    numerics = tolerance_of(case)
    compared = numerics.kind != "exact" or "close" in numerics.rounds
    if compared and any(declared[name].dtype in _NARROWER for name in floats):
        yield of_inputs_changed(case, "computed in fewer bits", "", partial(_narrowed, names=floats))
    if numerics.kind == "contraction" and all(declared[name].dtype == "fp32" for name in floats):
        yield of_inputs_changed(case, "inputs in TF32", "", partial(_in_tf32, names=floats))
    for name, dimension in summed(case):
        if declared[name].shape[dimension] >= LONG:
            where = f"{name}[{dimension}]"
            yield Mutant(row="sums in fewer bits", where=where, make=partial(_partial_sums, case, name, dimension))


def _of_dimension(case: Case, name: str, dimension: int, *, has_zero: bool) -> Iterator[Mutant]:
    where = f"{name}[{dimension}]"
    yield _changed(case, "wrong group or row", where, partial(_rolled, dimension=dimension), moves=True)
    if has_zero:
        yield _changed(case, "last slice dropped", where, partial(_dropped, dimension=dimension))
        yield _changed(case, "last tile dropped", where, partial(_tile_dropped, dimension=dimension))
        yield _changed(case, "tile counted twice", where, partial(_twice, dimension=dimension))


def _changed(case: Case, row: str, where: str, change: Callable[[Any], Any], *, moves: bool = False) -> Mutant:
    name = where.partition("[")[0]
    made = of_inputs_changed(case, row, where, lambda inputs: {name: change(inputs[name])})
    return replace(made, moves=change) if moves else made


def _rolled(x: Any, dimension: int) -> Any:
    import torch

    return torch.cat((x.narrow(dimension, 1, x.shape[dimension] - 1), x.narrow(dimension, 0, 1)), dimension)


def _scaled_end(x: Any, dimension: int, count: int, factor: float) -> Any:
    """Multiply the last `count` slices of a dimension by `factor`."""
    import torch

    start = x.shape[dimension] - count
    end = x.narrow(dimension, start, count)
    changed = (end.to(torch.float64) * factor).to(x.dtype)
    return torch.cat((x.narrow(dimension, 0, start), changed), dimension)


def _dropped(x: Any, dimension: int) -> Any:
    return _scaled_end(x, dimension, 1, 0.0)


def _tile_dropped(x: Any, dimension: int) -> Any:
    return _scaled_end(x, dimension, max(x.shape[dimension] // 4, 1), 0.0)


def _twice(x: Any, dimension: int) -> Any:
    return _scaled_end(x, dimension, max(x.shape[dimension] // 4, 1), 2.0)


def _transposed(x: Any) -> Any:
    return x.transpose(-1, -2).contiguous().view(x.shape)


_NARROWER = {"fp64": "fp32", "fp32": "bf16"}
"""The narrower format that a kernel might use without permission."""


def _narrowed(inputs: dict[str, Any], names: list[str]) -> Tensors:
    import torch

    narrower = {torch.float64: torch.float32, torch.float32: torch.bfloat16}
    return {
        name: inputs[name].to(narrower[inputs[name].dtype]).to(inputs[name].dtype)
        for name in names
        if inputs[name].dtype in narrower
    }


def _in_tf32(inputs: dict[str, Any], names: list[str]) -> Tensors:
    """Return fp32 inputs with the 11 significant bits of TF32, rounded to nearest."""
    import torch

    bits = {name: inputs[name].view(torch.int32) for name in names if inputs[name].dtype == torch.float32}
    return {name: ((whole + 0x1000) & ~0x1FFF).view(torch.float32) for name, whole in bits.items()}


LONG, BLOCK = 64, 4
"""Least summands that expose an accumulator of few bits, and summands of one block."""


def _partial_sums(case: Case, name: str, dimension: int) -> Call:
    """Return a call that sums blocks of four summands and rounds to bf16 after each."""
    import torch

    right = right_call(case)

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        x = tensors[name]
        total: dict[str, Any] = {}
        for start in range(0, x.shape[dimension], BLOCK):
            share = torch.zeros_like(x)
            count = min(BLOCK, x.shape[dimension] - start)
            share.narrow(dimension, start, count).copy_(x.narrow(dimension, start, count))
            for key, part in right({**tensors, name: share}, **arguments).items():
                total[key] = (total.get(key, 0) + part).to(torch.bfloat16).to(part.dtype)
        return total

    return call
