"""Cases with an extent of 0: refused unless both the operator's definition and PyTorch give a result."""

import warnings
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.case_tensors.random_inputs import drawn, error_line, forward_arguments, zeros_of
from nearpeak.case_tensors.size_limits import beyond_rounds
from nearpeak.core.work.case import Case
from nearpeak.errors import NotModelledError
from nearpeak.ops import OPS


def refuse_empty(case: Case) -> None:
    """Refuse a case with an extent of 0 for which PyTorch, or the operator's definition, has no result.

    Raises:
        NotModelledError: there is no result; the message names the extents and the reason.
    """
    if zeros_of(case) and (why := _why(case)):
        raise NotModelledError(f"{case.op}: no answer with {zeros_of(case)}: {why}")


@lru_cache(maxsize=64)
def _why(case: Case) -> str:
    """Return why there is no result; empty where there is one."""
    from nearpeak.case_tensors.torch_tensors import as_arrays, tensors_of, torch_or_refusal

    torch, (arrays,) = torch_or_refusal("measuring on the CPU"), drawn(case)
    arguments, tensors = forward_arguments(case), tensors_of(torch, case, arrays, "cpu")
    try:
        with torch.no_grad():
            outputs = as_arrays(torch, OPS[case.op].torch_call(tensors, **arguments))
    except Exception as error:  # any exception means that PyTorch does not support it
        return f"its PyTorch call says: {error_line(error)}"
    if case.phase == "backward" and not any(array.size for array in outputs.values()):
        return "its results have no element, and so no gradient"
    return "" if beyond_rounds(case) else _differs(case, arrays, arguments, outputs)


def _differs(case: Case, arrays: Any, arguments: dict[str, Any], outputs: dict[str, Any]) -> str:
    """Return how the shapes of PyTorch's results differ from those of the definition; empty where they do not."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):  # of means of nothing
            expected = OPS[case.op].reference(dict(arrays), **arguments)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return f"its definition has none ({error_line(error)})"
    for name, output in expected.items():
        if name in outputs and np.shape(output) != outputs[name].shape:
            return f"PyTorch gives {name} as {list(outputs[name].shape)}, its definition {list(np.shape(output))}"
    return ""
