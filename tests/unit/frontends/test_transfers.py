"""Copies to the host and back within a step are cases of their own, over the host link."""

import pytest

torch = pytest.importorskip("torch")

from nearpeak.bounds.step.step_bound import step_bound  # noqa: E402
from nearpeak.core.answers.bound import Policy  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.targets import target_of  # noqa: E402


def directions(workload):
    return [
        (call.phase, call.case.record()["direction"], call.case.record()["elements"])
        for call in workload.calls
        if call.case is not None and call.case.op == "transfer"
    ]


def captured(function, step="forward"):
    return capture_torch(lambda: function, lambda: ((torch.empty(8, 16),), {}), CaptureOptions(step=step), name="model")


@pytest.mark.parametrize("fetch", [lambda x: x.cpu(), lambda x: x.to("cpu"), lambda x: x.to(device="cpu")])
def test_fetching_a_result_crosses_the_host_link_and_writes_no_device_memory(fetch):
    workload = captured(lambda x: fetch(x + 1))
    assert directions(workload) == [("forward", "d2h", 128)]
    h100 = target_of("h100_sxm")
    terms = step_bound(workload, h100, Policy(output_credit=False)).terms_s
    assert terms["host"] == pytest.approx(512 / 64e9)
    assert terms["dram"] == pytest.approx(512 / 3.35e12)  # x is read; the sum need not be written on the device


def test_what_was_fetched_comes_back_and_its_gradient_goes_the_other_way():
    class Offloaded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(16, 4)

        def forward(self, x):
            return self.layer(x).cpu().cuda() * 2

    workload = capture_torch(Offloaded, lambda: ((torch.empty(8, 16),), {}), CaptureOptions(step="train"), name="model")
    assert directions(workload) == [
        ("forward", "d2h", 32), ("forward", "h2d", 32), ("backward", "d2h", 32), ("backward", "h2d", 32),
    ]  # fmt: skip
    assert not workload.uncovered_counts()


def test_known_values_and_moves_between_device_tensors_are_no_copies():
    def function(x):
        positions = torch.arange(8).cpu()
        return x.to(positions.device) + positions[:, None].to("cuda"), x.cuda()

    assert directions(captured(function)) == []


def test_tensors_move_as_ever_after_a_capture():
    before = torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda
    captured(lambda x: x.cpu())
    assert (torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda) == before
