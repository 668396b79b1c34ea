"""PyTorch's implementation compiled by TorchInductor, a legitimate variant with fused arithmetic."""

from functools import cache
from typing import Any

from nearpeak.base.folders import keep_compiled_code
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError
from nearpeak.validation.mutants.mutant import Tensors, right_call
from nearpeak.validation.oracle.float64_oracle import draw_inputs
from nearpeak.validation.running.implementation_run import Implementation, imported_torch


def compiled_variant(case: Case) -> Implementation:
    """Return PyTorch's implementation of `case`, compiled by TorchInductor for its shapes alone.

    The compiler's cache is reset first: after a few shapes PyTorch would run the rest uncompiled.

    Raises:
        MeasureError: the compiler fails on it, or the oracle has no inputs: then there is no such variant.
    """
    from torch._C import DisableTorchFunction as torch_function_disabled  # noqa: N813

    torch = imported_torch()
    right, draw = right_call(case), draw_inputs(case, 0, "normal")
    if draw is None:
        raise MeasureError(f"{case.label()}: no inputs on which the reference is defined were found")
    torch._dynamo.reset()
    keep_compiled_code()
    # Static shapes: dynamic ones would compile another kernel.
    compiled = torch.compile(right, dynamic=False)

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        # The mode that poisons memory would be traced too.
        with torch_function_disabled():
            outputs: Tensors = compiled(tensors, **arguments)
        return outputs

    try:
        call({name: tensor.clone() for name, tensor in draw.tensors.items()}, **draw.arguments)
    except Exception as error:  # a case that does not compile has no compiled variant
        raise MeasureError(f"{case.label()}: torch.compile fails: {_compiler_message(error)}") from error
    return Implementation(name="PyTorch, compiled", call=call)


def _compiler_message(error: Exception) -> str:
    """Return the first line of an error after the compiler's own heading."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    messages = [line for line in lines if not line.endswith("raised:")]
    return messages[0][:200] if messages else type(error).__name__


@cache
def why_not_compiled() -> str:
    """Return why torch.compile does not work here, in one line; empty where it does."""
    torch = imported_torch()
    keep_compiled_code()
    try:
        doubled = torch.compile(lambda x: 2 * x + 1, dynamic=False)(torch.ones(3))
    except Exception as error:  # the compiler is absent, too old, or cannot write its cache
        return f"torch.compile does not work here: {_compiler_message(error)}"
    return "" if torch.equal(doubled, torch.full((3,), 3.0)) else "torch.compile gives wrong results here: 2 * 1 + 1"
