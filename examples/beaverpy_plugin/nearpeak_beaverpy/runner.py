"""Runner of beaverpy's NumPy operators, an implementation under test, not a reference."""

import time
from collections.abc import Mapping
from typing import Any

from nearpeak.case_tensors.random_inputs import forward_arguments, too_large
from nearpeak.core.runs.measurement import Backend, Environment, Prepared, RunnerAbilities, Timer, Timing
from nearpeak.core.work.case import Case
from nearpeak.errors import NotModelledError
from nearpeak.measurement.machine.environment import cpu_environment
from nearpeak.measurement.runners.numpy import named_arrays
from nearpeak.measurement.timing.clocks import HostTimer
from nearpeak.targets import CPU
from nearpeak_beaverpy.operators import RULES, implementation


class BeaverPy(Backend):
    """The package's operator for a case, where it has one."""

    name = "beaverpy"
    target = CPU
    abilities = RunnerAbilities(
        devices=("cpu",), phases=("forward",), dtypes=frozenset(("fp16", "fp32", "fp64")), ops=frozenset(RULES),
        needs=("beaverpy",),
    )  # fmt: skip

    def __init__(self, argument: str, timing: Timing) -> None:
        """Keep how to time."""
        del argument
        self._timing = timing

    def refusal(self, case: Case) -> str:
        """Return what the package cannot do of `case`, or that its tensors are too large; empty when it can."""
        try:
            implementation(case)
        except NotModelledError as error:
            return str(error)
        return too_large(case)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run; the package's objects are made anew in every call, as they keep results."""
        start = time.perf_counter()
        call, arguments = implementation(case).call, forward_arguments(case)
        runs = tuple(lambda arrays=arrays: call(arrays, **arguments) for arrays in inputs)
        build_s = time.perf_counter() - start
        return Prepared(runs=runs, outputs=named_arrays, algorithm="NumPy", phases_s={"build": build_s})

    def timer(self) -> Timer:
        """Return the clocks of the host."""
        return HostTimer(thread_count=self._timing.thread_count, flush_bytes=self._timing.swept_bytes)

    def environment(self) -> Environment:
        """Return this machine, NumPy and the package."""
        return cpu_environment("numpy", "beaverpy")
