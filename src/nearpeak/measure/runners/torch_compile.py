"""Runs cases on this machine's CPU through torch.compile; graph breaks go to the ledger."""

import time
from collections.abc import Mapping
from typing import Any

from nearpeak.core.case import Case
from nearpeak.core.measurement import Environment, Fallback, Prepared, RunnerAbilities, Timer, Timing
from nearpeak.measure.environment import cpu_environment
from nearpeak.measure.inputs import forward_arguments, too_large
from nearpeak.measure.runners._torch import Call, prepared, torch_or_refusal
from nearpeak.measure.timers import HostTimer
from nearpeak.ops import OPS, work_of
from nearpeak.targets import CPU


class TorchCompile:
    """The operator's PyTorch call, compiled by TorchInductor; other runners set another device or compiler."""

    name = "torch_compile"
    target = CPU
    abilities = RunnerAbilities(devices=("cpu",), needs=("torch",), preload=("torch._inductor.compile_fx",))
    device, compiler = "cpu", "inductor"

    def __init__(self, argument: str, timing: Timing) -> None:
        """Pin the threads; PyTorch must be installed."""
        del argument
        self._torch, self._timing = torch_or_refusal("compiling"), timing
        self._torch.set_num_threads(timing.thread_count)

    def refusal(self, case: Case) -> str:
        """Return that the tensors are too large; empty when they are not."""
        return too_large(case)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` compiled; what could not be compiled stands in the ledger."""
        start = time.perf_counter()
        ledger = self._ledger(case)
        ready = prepared(self._torch, case, inputs, self.device, self._compiled)
        for run in ready.runs:
            run()
        build_s = time.perf_counter() - start
        return Prepared(
            runs=ready.runs, outputs=ready.outputs, algorithm=self.compiler, ledger=ledger, phases_s={"build": build_s}
        )

    def _compiled(self, call: Call) -> Call:
        # Shapes are those of the case: dynamic ones would compile another kernel than the case is about.
        compiled: Call = self._torch.compile(call, dynamic=False, backend=self.compiler)
        return compiled

    def _ledger(self, case: Case) -> tuple[Fallback, ...]:
        """Return where the call leaves the compiled graph: at each break Python goes on by itself."""
        import torch._dynamo

        from nearpeak.measure.inputs import drawn
        from nearpeak.measure.runners._torch import tensors_of

        tensors, arguments = tensors_of(self._torch, case, drawn(case)[0], self.device), forward_arguments(case)
        explained: Any = torch._dynamo.explain(OPS[case.op].torch_call)(tensors, **arguments)
        flop = sum(work_of(case).flop.values()) if not explained.graph_count else 0
        return tuple(
            Fallback(node=OPS[case.op].name, ran_on="python", reason=str(one.reason).splitlines()[0][:200], flop=flop)
            for one in explained.break_reasons
        )

    def implementation(self, case: Case) -> Call:
        """Return the compiled call on tensors, through which gradients flow."""
        return self._compiled(OPS[case.op].torch_call)

    def timer(self) -> Timer:
        """Return the clocks of the host."""
        return HostTimer(thread_count=self._timing.thread_count, flush_bytes=self._timing.flush_bytes)

    def environment(self) -> Environment:
        """Return this machine and PyTorch."""
        return cpu_environment("torch", "numpy")


RUNNER = TorchCompile
