"""Runner of cases on the CPU through eager PyTorch."""

from collections.abc import Mapping
from typing import Any

from nearpeak.case_tensors.random_inputs import too_large
from nearpeak.case_tensors.torch_tensors import torch_or_refusal
from nearpeak.core.runs.measurement import Backend, Environment, Prepared, RunnerAbilities, Timer, Timing
from nearpeak.core.work.case import Case
from nearpeak.measurement.machine.environment import cpu_environment
from nearpeak.measurement.machine.torch_runner import Call, prepared
from nearpeak.measurement.timing.clocks import HostTimer
from nearpeak.ops import OPS
from nearpeak.targets import CPU


class TorchCpu(Backend):
    """The operator's PyTorch call, eagerly."""

    name = "torch_cpu"
    target = CPU
    abilities = RunnerAbilities(devices=("cpu",), needs=("torch",), preload=("torch",), places=True)

    def __init__(self, argument: str, timing: Timing) -> None:
        """Pin the threads; PyTorch must be installed."""
        del argument
        self._torch, self._timing = torch_or_refusal("measuring on the CPU"), timing
        self._torch.set_num_threads(timing.thread_count)

    def refusal(self, case: Case) -> str:
        """Return that the tensors are too large; empty when they are not."""
        return too_large(case)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run."""
        return prepared(self._torch, case, inputs, "cpu")

    def implementation(self, case: Case) -> Call:
        """Return the call on tensors, through which gradients flow."""
        return OPS[case.op].torch_call

    def timer(self) -> Timer:
        """Return the clocks of the host."""
        return HostTimer(thread_count=self._timing.thread_count, flush_bytes=self._timing.swept_bytes)

    def environment(self) -> Environment:
        """Return this machine and PyTorch."""
        return cpu_environment("torch", "numpy")


RUNNER = TorchCpu
