"""Runner of cases on the first GPU through torch.compile; graph breaks go to the ledger."""

from nearpeak.core.runs.runner_protocols import RunnerAbilities
from nearpeak.core.work.case import Case
from nearpeak.measurement.machine import cuda_device
from nearpeak.measurement.machine.host_calls import from_host
from nearpeak.measurement.machine.torch_runner import Call
from nearpeak.measurement.runners.torch_compile import TorchCompile


class TorchCompileCuda(cuda_device.OnFirstGpu, TorchCompile):
    """The operator's PyTorch call on a GPU, compiled by TorchInductor, timed by events."""

    name, device = "torch_compile_cuda", "cuda"
    abilities = RunnerAbilities(devices=("cuda",), needs=("torch",), preload=("torch",), places=True)

    def implementation(self, case: Case) -> Call:
        """Return the compiled call on tensors of the host that computes on the GPU."""
        return from_host(super().implementation(case))


RUNNER = TorchCompileCuda
