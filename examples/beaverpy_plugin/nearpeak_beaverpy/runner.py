"""Runner of beaverpy's NumPy operators, an implementation under test, not a reference."""

import time
from collections.abc import Mapping
from typing import Any

from nearpeak.case_tensors.random_inputs import forward_arguments, too_large
from nearpeak.core.runs.runner_protocols import Prepared, RunnerAbilities
from nearpeak.core.work.case import Case
from nearpeak.errors import NotModelledError
from nearpeak.measurement.machine.environment import OnCpu
from nearpeak.measurement.runners.numpy import named_arrays
from nearpeak_beaverpy.operators import RULES, implementation


class BeaverPy(OnCpu):
    """The package's operator for a case, where it has one."""

    name = "beaverpy"
    packages = ("numpy", "beaverpy")
    abilities = RunnerAbilities(
        devices=("cpu",), phases=("forward",), dtypes=frozenset(("fp16", "fp32", "fp64")), ops=frozenset(RULES),
        needs=("beaverpy",),
    )  # fmt: skip

    def refusal(self, case: Case) -> str:
        """Return why the package cannot run `case`, or that its tensors are too large; empty when it can."""
        try:
            implementation(case)
        except NotModelledError as error:
            return str(error)
        return too_large(case)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run; every call makes new objects of the package, as they keep results."""
        start = time.perf_counter()
        call, arguments = implementation(case).call, forward_arguments(case)
        runs = tuple(lambda arrays=arrays: call(arrays, **arguments) for arrays in inputs)
        build_s = time.perf_counter() - start
        return Prepared(runs=runs, outputs=named_arrays, algorithm="NumPy", phases_s={"build": build_s})
