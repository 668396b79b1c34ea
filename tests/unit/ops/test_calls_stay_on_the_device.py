"""Calls of operators keep to the device: one that asks the host makes a GPU wait, and no graph can hold it."""

import numpy as np
import pytest
from tests.golden.directed import directed
from tests.sampling import sampled

from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.core.runs.measurement import Timing
from nearpeak.errors import NearpeakError
from nearpeak.measurement.runners import runner_of
from nearpeak.ops import OPS, case

torch = pytest.importorskip("torch")
from torch.overrides import TorchFunctionMode, resolve_name  # noqa: E402

ASKING = {
    "torch.Tensor.cpu", "torch.Tensor.numpy", "torch.Tensor.item", "torch.Tensor.tolist", "torch.Tensor.__bool__",
    "torch.Tensor.__int__", "torch.Tensor.__float__", "torch.Tensor.__index__", "torch.as_tensor", "torch.tensor",
    "torch.from_numpy",
}  # fmt: skip
KNOWN = {
    "adafactor": "PyTorch's step counts on the host",
    "grouped_gemm": "groups that PyTorch's grouped product does not take, or that are added up, go one by one",
    "lbfgs": "its step is refused where the curvature is not positive",
    "non_max_suppression": "which box is next hangs on those kept before",
    "optimizer": "PyTorch's steps count on the host; within a capture they do not",
}
"""Operators whose calls ask the host all the same, and why."""


class _Asked(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = resolve_name(function) or getattr(function, "__name__", "")
        if name in ASKING or (name.endswith("__getitem__") and _by_array(args[1])):
            self.names.add(name)
        return function(*args, **(kwargs or {}))


def _by_array(index):
    return any(isinstance(one, (np.ndarray, list)) for one in (index if isinstance(index, tuple) else (index,)))


def asked(op, phase="forward"):
    found = set()
    for row in directed(op):
        given = {key: value for key, value in row.items() if key[0] != "_"}
        try:
            one = case(op, phase, **{"dtype": "fp32", **given})
            ready = runner_of("torch_cpu", Timing(cache="hot")).backend.prepare(one, drawn(one))
            ready.runs[0]()
        except (NearpeakError, RuntimeError, NotImplementedError, AttributeError, ValueError):
            continue  # not computed by this PyTorch: other tests say of which that may be so
        with _Asked() as mode:
            ready.runs[0]()
        found |= mode.names
    return found


@pytest.mark.parametrize("op", sampled(OPS, 30))
def test_the_second_call_neither_reads_tensors_on_the_host_nor_makes_them_there(op):
    assert bool(asked(op)) == (op in KNOWN)
