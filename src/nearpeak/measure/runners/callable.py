"""Runs a function of the user's, `callable:module:function`, on the case's tensors."""

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.core.case import Case
from nearpeak.core.measurement import Environment, Prepared, RunnerAbilities, Timer, Timing
from nearpeak.errors import SpecError
from nearpeak.measure.environment import cpu_environment
from nearpeak.measure.inputs import forward_arguments, too_large
from nearpeak.measure.runners._torch import Call, prepared, torch_or_refusal
from nearpeak.measure.runners.numpy import named_arrays
from nearpeak.measure.timers import HostTimer
from nearpeak.targets import CPU


class UserCallable:
    """`function(inputs, **arguments)`: outputs by name, or one array or tensor for the only output.

    `inputs` are tensors by name as the operator declares them; where the function has an attribute
    `arrays = "numpy"` they are NumPy arrays, and timing needs no PyTorch.
    """

    name = "callable"
    target = CPU
    abilities = RunnerAbilities(devices=("cpu",), preload=("torch",), argument="module:function", places=True)

    def __init__(self, argument: str, timing: Timing) -> None:
        """Import the function; modules of the working directory are found."""
        self._function, self._timing = function_of(argument), timing
        self.argument = argument

    @staticmethod
    def of(function: Callable[..., Any], timing: Timing) -> "UserCallable":
        """Return the runner of a function at hand."""
        found = object.__new__(UserCallable)
        found._function, found._timing = function, timing
        found.argument = f"{function.__module__}:{getattr(function, '__qualname__', type(function).__name__)}"
        return found

    def refusal(self, case: Case) -> str:
        """Return why the case cannot run: too large, or excluded by the function's own `refusal(case)`."""
        if case.memory and getattr(self._function, "arrays", "torch") == "numpy":
            return f"callable:{self.argument}: takes dense arrays only; the case has {case.lies()}"
        return too_large(case) or self.own_refusal(case)

    def own_refusal(self, case: Case) -> str:
        """Return why the function says that it cannot run the case; empty where it says nothing."""
        own = getattr(self._function, "refusal", None)
        return str(own(case) or "") if callable(own) else ""

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run."""
        function = self._function
        if getattr(function, "arrays", "torch") == "numpy":
            if case.phase != "forward":
                raise SpecError(f"callable:{self.argument}: takes arrays, so that it has no gradient to run")
            arguments = forward_arguments(case)
            runs = tuple(lambda arrays=arrays: _named(function(arrays, **arguments)) for arrays in inputs)
            return Prepared(runs=runs, outputs=named_arrays, algorithm=self.argument)
        torch = torch_or_refusal("a callable on tensors")
        torch.set_num_threads(self._timing.thread_count)
        return prepared(
            torch, case, inputs, "cpu", lambda _: lambda tensors, **given: _named(function(tensors, **given))
        )

    def implementation(self, case: Case) -> Call:
        """Return the function, whatever the case."""
        del case
        function = self._function

        def named(inputs: Any, **arguments: Any) -> dict[str, Any]:
            return _named(function(inputs, **arguments))

        named.__module__, named.__qualname__ = self.argument.partition(":")[::2]
        for name in ("arrays", "backward", "ledger"):
            if hasattr(function, name):
                setattr(named, name, getattr(function, name))
        return named

    def timer(self) -> Timer:
        """Return the clocks of the host."""
        return HostTimer(thread_count=self._timing.thread_count, flush_bytes=self._timing.swept_bytes)

    def environment(self) -> Environment:
        """Return this machine, NumPy and PyTorch."""
        return cpu_environment("numpy", "torch")


def function_of(text: str) -> Callable[..., Any]:
    """Return the function that `module:function` names.

    Raises:
        SpecError: there is none.

    >>> function_of("math:sqrt")(4.0)
    2.0
    """
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise SpecError(f"callable {text!r}: is not module:function; e.g. callable:kernels:my_softmax")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"callable {text!r}: {error}") from None
    if not callable(found):
        raise SpecError(f"callable {text!r}: is no function but {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


def _named(result: Any) -> dict[str, Any]:
    return result if isinstance(result, dict) else {"y": result}


RUNNER = UserCallable
