"""Conversion of a case's inputs to PyTorch tensors and of its results to NumPy arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.case_tensors.memory_placement import placed
from nearpeak.case_tensors.random_inputs import forward_arguments
from nearpeak.core.work.case import Case
from nearpeak.errors import MissingExtraError
from nearpeak.ops import OPS
from nearpeak.ops.shared.torch_names import torch_dtype


def torch_or_refusal(what: str) -> Any:
    """Return PyTorch, or raise an error that names the extra which installs it."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError(f"{what} needs PyTorch; install nearpeak[torch]") from None
    return torch


def tensors_of(torch: Any, case: Case, arrays: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Return the inputs of `case` as tensors on `device`, in their formats and with their strides and offsets."""
    specs = OPS[case.op].inputs(**forward_arguments(case))
    tensors = {
        name: torch.from_numpy(np.asarray(arrays[name])).to(device).to(torch_dtype(torch, spec.dtype))
        for name, spec in specs.items()
    }
    return placed(torch, case, tensors)


def as_arrays(torch: Any, result: Any) -> dict[str, Any]:
    """Return named tensors as NumPy arrays; floats that NumPy lacks are widened to float32."""
    known = (torch.float64, torch.float32, torch.float16)
    return {
        name: (tensor.float() if tensor.is_floating_point() and tensor.dtype not in known else tensor)
        .detach()
        .cpu()
        .numpy()
        for name, tensor in result.items()
    }
