"""Runner of cases on the first GPU (CUDA or ROCm) through eager PyTorch."""

from collections.abc import Mapping
from typing import Any

from nearpeak.core.runs.runner_protocols import Prepared
from nearpeak.core.work.case import Case
from nearpeak.measurement.machine import cuda_device
from nearpeak.measurement.machine.host_calls import from_host
from nearpeak.measurement.machine.torch_runner import Call, prepared
from nearpeak.ops import OPS


class TorchCuda(cuda_device.OnFirstGpu):
    """The operator's PyTorch call on a GPU, eagerly, timed by events."""

    name = "torch_cuda"

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run on the GPU."""
        return prepared(self._torch, case, inputs, "cuda")

    def implementation(self, case: Case) -> Call:
        """Return the call on tensors of the host that computes on the GPU, through which gradients flow."""
        return from_host(OPS[case.op].torch_call)


RUNNER = TorchCuda
