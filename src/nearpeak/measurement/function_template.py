"""Template of a user function for a case: inputs, arguments and outputs as Python text."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from nearpeak.case_tensors.output_shapes import outputs_of
from nearpeak.case_tensors.size_limits import beyond_rounds
from nearpeak.core.work.case import Case
from nearpeak.ops import OPS, label_of
from nearpeak.ops.shared.definition.reference_constants import constants_of

_WIDTH = 80
_BACKWARD = "backward: the gradients are those that autograd takes through what this returns"


def skeleton(case: Case) -> str:
    """Return Python text of a function without a body that takes the inputs of `case` and returns its outputs.

    >>> from nearpeak.ops import case
    >>> print(skeleton(case("rms_norm", rows=4, hidden=8, dtype="bf16")))
    def rms_norm(tensors, **arguments):
        # rms_norm rows=4 hidden=8 bf16: y[rows,hidden] = x / sqrt(mean(x^2) + eps)
        #   * weight, row by row
        # arguments: rows=4, hidden=8, dtype='bf16', param_dtype='bf16', affine=True
        # constants: EPSILON = 1e-06
        input = tensors["input"]  # bfloat16 [4, 8]
        weight = tensors["weight"]  # bfloat16 [8]
        ...
        return {"output": output}  # bfloat16 [4, 8]
    """
    from nearpeak.ops.shared.torch_names import torch_format
    from nearpeak.validation import forward_case
    from nearpeak.validation.oracle.float64_oracle import declared_formats

    operator, forward = OPS[case.op], forward_case(case)
    arguments = operator.forward_arguments(forward)
    if not beyond_rounds(forward):
        declared_formats(forward)  # refuses what PyTorch does not compute
    inputs, outputs = operator.inputs(**arguments), outputs_of(forward)
    about = f"{label_of(forward)}: {operator.summary.removeprefix('Return the least work of ').rstrip('.')}"
    stated = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    fixed = ", ".join(f"{name} = {value}" for name, value in constants_of(operator).items())
    lines = [
        f"def {case.op}(tensors, **arguments):",
        *_wrapped(about),
        *_wrapped(f"arguments: {stated}"),
        *(_wrapped(_BACKWARD) if case.phase == "backward" else ()),
        *(_wrapped(f"constants: {fixed}") if fixed else ()),
        *(
            f'    {name} = tensors["{name}"]  # {_form(torch_format(spec.dtype), spec.shape)}'
            for name, spec in inputs.items()
        ),
        "    ...",
        *_returned(outputs),
    ]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="    # ", subsequent_indent="    #   ")


def _returned(outputs: Mapping[str, Any]) -> list[str]:
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        return [f'    return {{"{name}": {name}}}  # {_form(array.dtype, array.shape)}']
    return [
        "    return {",
        *(f'        "{name}": {name},  # {_form(array.dtype, array.shape)}' for name, array in outputs.items()),
        "    }",
    ]


def _form(dtype: Any, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"
