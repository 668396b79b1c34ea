"""Runner of cases on the first GPU through torch.compile with the Torch-TensorRT backend."""

import importlib
import importlib.util

from nearpeak.core.runs.measurement import Timing
from nearpeak.core.runs.runner_protocols import RunnerAbilities
from nearpeak.errors import MissingExtraError
from nearpeak.measurement.runners.torch_compile_cuda import TorchCompileCuda


class TorchTensorrt(TorchCompileCuda):
    """The operator's PyTorch call on a GPU, compiled by TensorRT; forward passes alone."""

    name = "torch_tensorrt"
    abilities = RunnerAbilities(
        devices=("cuda",), phases=("forward",), needs=("torch", "torch_tensorrt"), preload=("torch",)
    )
    compiler = "torch_tensorrt"

    def __init__(self, argument: str, timing: Timing) -> None:
        """Refuse without a GPU or the package, which registers its backend when it is imported."""
        super().__init__(argument, timing)
        if importlib.util.find_spec("torch_tensorrt") is None:
            raise MissingExtraError("runner torch_tensorrt: needs Torch-TensorRT; install torch-tensorrt")
        importlib.import_module("torch_tensorrt")


RUNNER = TorchTensorrt
