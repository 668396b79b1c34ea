"""Runs cases on the first GPU through torch.compile; graph breaks go to the ledger."""

from nearpeak.core.case import Case
from nearpeak.core.measurement import RunnerAbilities
from nearpeak.measure.runners import _cuda
from nearpeak.measure.runners._from_host import from_host
from nearpeak.measure.runners._torch import Call
from nearpeak.measure.runners.torch_compile import TorchCompile


class TorchCompileCuda(_cuda.OnFirstGpu, TorchCompile):
    """The operator's PyTorch call on a GPU, compiled by TorchInductor, timed by events."""

    name, device = "torch_compile_cuda", "cuda"
    abilities = RunnerAbilities(devices=("cuda",), needs=("torch",), preload=("torch",), places=True)

    def implementation(self, case: Case) -> Call:
        """Return the compiled call on tensors of the host that computes on the GPU."""
        return from_host(super().implementation(case))


RUNNER = TorchCompileCuda
