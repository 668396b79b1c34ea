"""Names, shapes and dtypes of a case's outputs, from PyTorch's meta device where data do not decide them."""

import functools
import sys
from math import prod
from typing import Any

import numpy as np

from nearpeak.case_tensors.random_inputs import drawn, forward_arguments
from nearpeak.core.work.case import Case
from nearpeak.ops import OPS

_SMALL_COUNT = 1 << 16
"""Input elements up to which every reference is faster than importing PyTorch."""


@functools.lru_cache(maxsize=64)
def output_names(case: Case) -> tuple[str, ...]:
    """Return the names of the outputs of the forward pass of `case`, whatever its size.

    >>> from nearpeak.ops import case
    >>> output_names(case("topk", rows=2, columns=3, dtype="fp32"))
    ('values', 'indices')
    """
    specs = OPS[case.op].inputs(**forward_arguments(OPS[case.op].forward_case(case)))
    if "torch" not in sys.modules and sum(prod(spec.shape) for spec in specs.values()) <= _SMALL_COUNT:
        return _names_of_reference(case)  # sooner than PyTorch is imported, which takes seconds in a new process
    try:
        return tuple(outputs_of(case))
    except ImportError:  # functions on arrays need no PyTorch
        return _names_of_reference(case)


def _names_of_reference(case: Case) -> tuple[str, ...]:
    forward = OPS[case.op].forward_case(case)
    return tuple(OPS[case.op].reference(dict(drawn(forward)[0]), **forward_arguments(forward)))


def outputs_of(case: Case) -> dict[str, Any]:
    """Return PyTorch's outputs of the forward pass by name, as meta tensors without data where possible.

    >>> from nearpeak.ops import case
    >>> list(outputs_of(case("gemm", m=10**6, n=10**6, k=10**6, dtype="bf16"))["y"].shape)
    [1, 1000000, 1000000]
    """
    import torch

    from nearpeak.ops.shared.torch_names import torch_format

    forward = OPS[case.op].forward_case(case)
    operator, arguments = OPS[case.op], forward_arguments(forward)
    formats = {name: (spec.shape, torch_format(spec.dtype)) for name, spec in operator.inputs(**arguments).items()}
    try:
        with torch.device("meta"), torch.no_grad():
            empty = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in formats.items()}
            return operator.torch_call(empty, **arguments)
    except Exception:  # some operators need data; an error of the case itself is raised again below
        arrays = drawn(forward)[0]
        tensors = {name: torch.from_numpy(np.asarray(arrays[name])).to(dtype) for name, (_, dtype) in formats.items()}
        return operator.torch_call(tensors, **arguments)
