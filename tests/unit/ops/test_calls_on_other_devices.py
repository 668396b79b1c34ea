"""PyTorch calls of operators compute where their inputs lie: shown on tensors without data, as there may be no GPU."""

import pytest
from benchmarks.device.cases import operator_cases
from tests.sampling import sampled

from nearpeak.case_tensors.random_inputs import drawn, forward_arguments
from nearpeak.case_tensors.torch_tensors import tensors_of
from nearpeak.measurement.machine.torch_runner import on_device
from nearpeak.ops import OPS

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

NEED_DATA = frozenset({
    "adafactor", "embedding_bag", "fake_quantise", "grouped_gemm", "lbfgs", "margin_loss", "masked_select",
    "max_unpool", "non_max_suppression", "nonzero", "sgd", "unique", "varlen_attention",
})  # fmt: skip
"""Operators that look into their inputs, or whose kernel PyTorch cannot trace: their files were read instead."""
OTHER = "meta"


class _OneDevice(TorchDispatchMode):
    """Refuses a call on tensors of two devices, as a GPU would; single numbers may come from the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = [one for one in tree_leaves((args, kwargs or {})) if isinstance(one, torch.Tensor) and one.dim()]
        devices = {one.device.type for one in given}
        assert len(devices) < 2 or "copy" in str(func), f"{func} mixes {sorted(devices)}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", sampled([one for one in OPS if one not in NEED_DATA], 25))
def test_nothing_that_a_call_makes_stays_on_the_host(name):
    ((_, case, why),) = operator_cases((name,))
    assert case is not None, why
    on_host = tensors_of(torch, case, drawn(case)[0], "cpu")
    elsewhere = {key: tensor.to(OTHER) for key, tensor in on_host.items()}
    call = OPS[name].torch_call if elsewhere else on_device(torch, OTHER, OPS[name].torch_call)
    with _OneDevice():
        found = call(elsewhere, **forward_arguments(case))
    assert {tensor.device.type for tensor in found.values()} == {OTHER}


def test_a_table_made_on_the_host_is_caught():
    with pytest.raises(AssertionError, match="mixes"), _OneDevice():
        torch.empty(4, device=OTHER) + torch.ones(4)
