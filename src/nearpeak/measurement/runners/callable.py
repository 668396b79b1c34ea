"""Runner of a user's function on CPU tensors, `callable:module:function`."""

from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.case_tensors.random_inputs import forward_arguments, too_large
from nearpeak.case_tensors.torch_tensors import torch_or_refusal
from nearpeak.case_tensors.user_functions import function_of, name_of, own_refusal, with_named_outputs
from nearpeak.core.runs.measurement import Timing
from nearpeak.core.runs.runner_protocols import Prepared, RunnerAbilities
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.measurement.machine.environment import OnCpu
from nearpeak.measurement.machine.torch_runner import Call, prepared, user_call
from nearpeak.measurement.runners.numpy import named_arrays


class UserCallable(OnCpu):
    """`function(inputs, **arguments)`: outputs by name, or one array or tensor for the only output.

    `inputs` are tensors by name as the operator declares them; where the function has an attribute
    `arrays = "numpy"` they are NumPy arrays, and timing needs no PyTorch.
    """

    name = "callable"
    packages = ("numpy", "torch")
    abilities = RunnerAbilities(devices=("cpu",), preload=("torch",), argument="module:function", places=True)

    def __init__(self, argument: str, timing: Timing) -> None:
        """Import the function; modules of the working directory are found."""
        self._function, self._timing = function_of(argument), timing
        self.argument = argument

    @staticmethod
    def of(function: Callable[..., Any], timing: Timing) -> "UserCallable":
        """Return the runner of a function object."""
        runner = object.__new__(UserCallable)
        runner._function, runner._timing = function, timing
        runner.argument = name_of(function)
        return runner

    def refusal(self, case: Case) -> str:
        """Return why the case cannot run: too large, or excluded by the function's own `refusal(case)`."""
        if case.memory and getattr(self._function, "arrays", "torch") == "numpy":
            return f"callable:{self.argument}: takes dense arrays only; the case has {case.lies()}"
        return too_large(case) or own_refusal(self._function, case)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run."""
        function = self._function
        if getattr(function, "arrays", "torch") == "numpy":
            if case.phase != "forward":
                raise SpecError(f"callable:{self.argument}: takes arrays, so that it has no gradient to run")
            arguments = forward_arguments(case)
            call = with_named_outputs(case, function)
            runs = tuple(lambda arrays=arrays: call(arrays, **arguments) for arrays in inputs)
            # The function gets the input arrays themselves, so that in-place changes reach it.
            return Prepared(runs=runs, outputs=named_arrays, algorithm=self.argument, refresh=lambda *_: None)
        torch = torch_or_refusal("a callable on tensors")
        torch.set_num_threads(self._timing.thread_count)
        return prepared(torch, case, inputs, "cpu", user_call(torch, case, function))

    def implementation(self, case: Case) -> Call:
        """Return the function with the attributes of the user's own."""
        named = with_named_outputs(case, self._function)
        named.__module__, _, named.__qualname__ = self.argument.rpartition(":")
        return named


RUNNER = UserCallable
