"""Runs cases on the first GPU through PyTorch, operator by operator; ROCm goes the same way."""

from collections.abc import Mapping
from typing import Any

from nearpeak.core.case import Case
from nearpeak.core.measurement import Environment, Prepared, RunnerAbilities, Timer, Timing
from nearpeak.measure.runners import _cuda
from nearpeak.measure.runners._torch import Call, prepared
from nearpeak.ops import OPS


class TorchCuda:
    """The operator's PyTorch call on a GPU, eagerly, timed by events."""

    name = "torch_cuda"
    target = "gpu"
    abilities = RunnerAbilities(devices=("cuda",), needs=("torch",), preload=("torch",))

    def __init__(self, argument: str, timing: Timing) -> None:
        """Refuse without a GPU."""
        del argument
        self._torch, self._timing = _cuda.cuda_or_refusal(self.name), timing
        self.target = _cuda.target_name()

    def refusal(self, case: Case) -> str:
        """Return that the tensors do not fit; empty when they do."""
        return _cuda.refusal(self._torch, case)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run on the GPU."""
        return prepared(self._torch, case, inputs, "cuda")

    def implementation(self, case: Case) -> Call:
        """Return the call on tensors of the host that computes on the GPU, through which gradients flow."""
        return _cuda.from_host(OPS[case.op].torch_call)

    def timer(self) -> Timer:
        """Return the device's clock."""
        return _cuda.EventTimer(self._torch, cold=self._timing.cache == "cold")

    def environment(self) -> Environment:
        """Return the GPU, its driver and PyTorch."""
        return _cuda.environment(self._torch)


RUNNER = TorchCuda
