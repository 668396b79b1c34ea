"""Runner of cases on the CPU through eager PyTorch."""

from collections.abc import Mapping
from typing import Any

from nearpeak.case_tensors.torch_tensors import torch_or_refusal
from nearpeak.core.runs.measurement import Timing
from nearpeak.core.runs.runner_protocols import Prepared, RunnerAbilities
from nearpeak.core.work.case import Case
from nearpeak.measurement.machine.environment import OnCpu
from nearpeak.measurement.machine.torch_runner import Call, prepared
from nearpeak.ops import OPS


class TorchCpu(OnCpu):
    """The operator's PyTorch call, eagerly."""

    name = "torch_cpu"
    abilities = RunnerAbilities(devices=("cpu",), needs=("torch",), preload=("torch",), places=True)

    def __init__(self, argument: str, timing: Timing) -> None:
        """Pin the threads; PyTorch must be installed."""
        super().__init__(argument, timing)
        self._torch = torch_or_refusal("measuring on the CPU")
        self._torch.set_num_threads(timing.thread_count)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run."""
        return prepared(self._torch, case, inputs, "cpu")

    def implementation(self, case: Case) -> Call:
        """Return the call on tensors, through which gradients flow."""
        return OPS[case.op].torch_call


RUNNER = TorchCpu
