"""Runs a function of the user's, `callable_cuda:module:function`, on tensors on the first GPU."""

from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.core.case import Case
from nearpeak.core.measurement import Prepared, RunnerAbilities, Timing
from nearpeak.measure.runners import _cuda
from nearpeak.measure.runners._torch import Call, prepared
from nearpeak.measure.runners.callable import UserCallable
from nearpeak.measure.user_functions import function_of


class CallableOnGpu(_cuda.OnFirstGpu):
    """`function(tensors, **arguments)` on tensors on the GPU, timed by events: outputs by name, or the only output."""

    name = "callable_cuda"
    abilities = RunnerAbilities(
        devices=("cuda",), needs=("torch",), preload=("torch",), argument="module:function"
    )  # fmt: skip

    def __init__(self, argument: str, timing: Timing) -> None:
        """Import the function; modules of the working directory are found."""
        super().__init__("", timing)
        self._inner = UserCallable.of(function_of(argument), timing)
        self.argument = argument

    @classmethod
    def of(cls, function: Callable[..., Any], timing: Timing) -> "CallableOnGpu":
        """Return the runner of a function at hand."""
        found = object.__new__(cls)
        _cuda.OnFirstGpu.__init__(found, "", timing)
        found._inner = UserCallable.of(function, timing)
        found.argument = found._inner.argument
        return found

    def refusal(self, case: Case) -> str:
        """Return why the case cannot run: it does not fit, or the function's own `refusal(case)` says so."""
        return super().refusal(case) or self._inner.own_refusal(case)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run on the GPU."""
        return prepared(self._torch, case, inputs, "cuda", lambda _: self._inner.implementation(case))

    def implementation(self, case: Case) -> Call:
        """Return the function on tensors of the host, which go to the GPU and back."""
        own = self._inner.implementation(case)
        call = _cuda.from_host(own)
        call.__module__, call.__qualname__ = own.__module__, own.__qualname__
        return call


RUNNER = CallableOnGpu
