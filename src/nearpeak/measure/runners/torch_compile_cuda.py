"""Runs cases on the first GPU through torch.compile; graph breaks go to the ledger."""

from nearpeak.core.case import Case
from nearpeak.core.measurement import Environment, RunnerAbilities, Timer, Timing
from nearpeak.measure.runners import _cuda
from nearpeak.measure.runners._torch import Call
from nearpeak.measure.runners.torch_compile import TorchCompile


class TorchCompileCuda(TorchCompile):
    """The operator's PyTorch call on a GPU, compiled by TorchInductor, timed by events."""

    name = "torch_compile_cuda"
    target = "gpu"
    abilities = RunnerAbilities(devices=("cuda",), needs=("torch",), preload=("torch",))
    device = "cuda"

    def __init__(self, argument: str, timing: Timing) -> None:
        """Refuse without a GPU."""
        del argument
        self._torch, self._timing = _cuda.cuda_or_refusal(self.name), timing
        self.target = _cuda.target_name()

    def refusal(self, case: Case) -> str:
        """Return that the tensors do not fit; empty when they do."""
        return _cuda.refusal(self._torch, case)

    def implementation(self, case: Case) -> Call:
        """Return the compiled call on tensors of the host that computes on the GPU."""
        return _cuda.from_host(super().implementation(case))

    def timer(self) -> Timer:
        """Return the device's clock."""
        return _cuda.EventTimer(self._torch, cold=self._timing.cache == "cold")

    def environment(self) -> Environment:
        """Return the GPU, its driver and PyTorch."""
        return _cuda.environment(self._torch)


RUNNER = TorchCompileCuda
