"""Runner of a user's function on tensors of the first GPU, `callable_cuda:module:function`."""

from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.case_tensors.user_functions import function_of, name_of, own_refusal, with_named_outputs
from nearpeak.core.runs.measurement import Timing
from nearpeak.core.runs.runner_protocols import Prepared, RunnerAbilities
from nearpeak.core.work.case import Case
from nearpeak.measurement.machine import cuda_device
from nearpeak.measurement.machine.host_calls import from_host
from nearpeak.measurement.machine.torch_runner import Call, prepared, user_call


class CallableOnGpu(cuda_device.OnFirstGpu):
    """`function(tensors, **arguments)` on tensors on the GPU, timed by events: outputs by name, or the only output."""

    name = "callable_cuda"
    abilities = RunnerAbilities(
        devices=("cuda",), needs=("torch",), preload=("torch",), argument="module:function", places=True
    )

    def __init__(self, argument: str, timing: Timing) -> None:
        """Import the function; modules of the working directory are found."""
        super().__init__("", timing)
        self._function, self.argument = function_of(argument), argument

    @classmethod
    def of(cls, function: Callable[..., Any], timing: Timing) -> "CallableOnGpu":
        """Return the runner of a function object."""
        runner = object.__new__(cls)
        cuda_device.OnFirstGpu.__init__(runner, "", timing)
        runner._function, runner.argument = function, name_of(function)
        return runner

    def refusal(self, case: Case) -> str:
        """Return why the case cannot run: it does not fit, or the function's own `refusal(case)` excludes it."""
        if getattr(self._function, "arrays", "torch") == "numpy":
            return f"callable_cuda:{self.argument}: takes NumPy arrays, which lie on the host; runner callable runs it"
        return super().refusal(case) or own_refusal(self._function, case)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run on the GPU."""
        return prepared(self._torch, case, inputs, "cuda", user_call(self._torch, case, self._function))

    def implementation(self, case: Case) -> Call:
        """Return the function on host tensors, which are copied to the GPU and back."""
        call = from_host(with_named_outputs(case, self._function))
        call.__module__, _, call.__qualname__ = self.argument.rpartition(":")
        return call


RUNNER = CallableOnGpu
