"""Runner of cases on the CPU through torch.compile; graph breaks go to the ledger."""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from nearpeak.base.folders import keep_compiled_code
from nearpeak.case_tensors.random_inputs import drawn, forward_arguments
from nearpeak.case_tensors.torch_tensors import tensors_of, torch_or_refusal
from nearpeak.core.runs.measurement import Fallback, Timing
from nearpeak.core.runs.runner_protocols import Prepared, RunnerAbilities
from nearpeak.core.work.case import Case
from nearpeak.measurement.machine.compile_breaks import breaks, graph_coverage, library_kernels
from nearpeak.measurement.machine.environment import OnCpu
from nearpeak.measurement.machine.torch_runner import Call, prepared
from nearpeak.ops import OPS


class TorchCompile(OnCpu):
    """The operator's PyTorch call, compiled by TorchInductor; other runners set another device or compiler."""

    name = "torch_compile"
    abilities = RunnerAbilities(
        devices=("cpu",), needs=("torch",), preload=("torch._inductor.compile_fx",), converts=True, places=True
    )
    device, compiler = "cpu", "inductor"

    def __init__(self, argument: str, timing: Timing) -> None:
        """Pin the threads; PyTorch must be installed."""
        super().__init__(argument, timing)
        self._torch = torch_or_refusal("compiling")
        self._torch.set_num_threads(timing.thread_count)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` compiled; the ledger lists graph breaks and library kernels."""
        start = time.perf_counter()
        ledger = self._ledger(case)
        ready = prepared(self._torch, case, inputs, self.device, self._compiled)
        for run in ready.runs:
            run()
        build_s = time.perf_counter() - start
        return dataclasses.replace(ready, algorithm=self.compiler, ledger=ledger, phases_s={"build": build_s})

    def _compiled(self, call: Call) -> Call:
        # Static shapes: dynamic ones would compile another kernel.
        keep_compiled_code()
        compiled: Call = self._torch.compile(call, dynamic=False, backend=self.compiler)
        return compiled

    def _ledger(self, case: Case) -> tuple[Fallback, ...]:
        """Return the graph breaks of the call, and the library kernels that the graph calls."""
        call, arguments = OPS[case.op].torch_call, forward_arguments(case)
        tensors = tensors_of(self._torch, case, drawn(case)[0], self.device)
        coverage = graph_coverage(self._torch, call, (tensors,), arguments)
        kernels = library_kernels(self._torch, self._compiled(call), (tensors,), arguments, coverage)
        return (*breaks(coverage), *kernels)

    def implementation(self, case: Case) -> Call:
        """Return the compiled call on tensors, through which gradients flow."""
        return self._compiled(OPS[case.op].torch_call)


RUNNER = TorchCompile
