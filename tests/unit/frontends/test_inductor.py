"""TorchInductor's fusion groups: every call in one kernel, bounds between the fused step and the unfused sum."""

import dataclasses
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import nearpeak  # noqa: E402
from nearpeak.bounds.step.fusion_groups import groups_bound_s, kernels_of, kernels_work  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import CaptureError, SpecError  # noqa: E402
from nearpeak.frontends.files.saved_workload import load_text, save_text  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.ops import work_of  # noqa: E402

pytestmark = pytest.mark.slow
PROBLEM = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2) + 1

def get_inputs():
    return [torch.rand(64, 64)]
"""


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x)))).softmax(-1)


@pytest.fixture(scope="module")
def workload():
    return capture_torch(Normed, lambda: ((torch.rand(8, 64),), {}), CaptureOptions(fusion="inductor"), name="normed")


def test_every_call_is_in_one_kernel_and_products_are_alone(workload):
    assert sorted(call for group in workload.groups for call in group) == list(range(len(workload.calls)))
    names = [[workload.calls[call].operator for call in group] for group in workload.groups]
    assert [group for group in names if "aten.addmm.default" in group] == [["aten.addmm.default"]] * 2
    assert any(len(group) > 5 and "aten.relu.default" in group for group in names)


def test_calls_keep_module_and_line_and_weights_stay_weights(workload):
    assert {"first", "norm", "second"} <= {call.module for call in workload.calls}
    assert all(call.source.startswith("frontends/test_inductor.py:") for call in workload.calls)
    weights = sum(buffer.bytes for buffer in workload.buffers if buffer.kind == "weight")
    assert weights == 4 * (2 * 64 * 65 + 2 * 64)


@pytest.mark.parametrize("target", ["h100_sxm", "t4"])
def test_the_kernels_bound_lies_between_the_fused_step_and_the_unfused_sum(workload, target):
    works = {case: work_of(case) for case in workload.case_counts()}
    analysis = nearpeak.analyze(workload, [target])
    step = analysis.targets[0]
    time_s = groups_bound_s(kernels_work(workload, works), nearpeak.target(target), analysis.policy)
    assert step.bound_s < time_s < step.unfused_s
    assert any(
        "kernels that the compiler fuses the calls into take at least" in s for s in analysis.capture_assumptions
    )


def test_opportunities_count_kernels_and_fuse_nothing_that_is_fused(workload):
    fused = nearpeak.analyze(workload, ["h100_sxm"])
    assert fused.execution == "compiled"
    (compiled,) = [one for one in fused.targets[0].executions if one.mode == "compiled"]
    assert compiled.kernel_count == len(workload.groups)
    assert all(one.kind not in ("graph", "fusion") for one in fused.targets[0].opportunities)
    unfused = nearpeak.analyze(dataclasses.replace(workload, groups=()), ["h100_sxm"])
    assert unfused.execution == "eager"
    assert {"graph", "fusion"} <= {one.kind for one in unfused.targets[0].opportunities}


def test_what_a_kernel_hands_to_itself_is_not_moved(workload):
    number = max(range(len(workload.groups)), key=lambda index: len(workload.groups[index]))
    part = kernels_of(workload)[number]
    kinds = {part.buffers[use.buffer].kind for call in part.calls for use in (*call.reads, *call.writes)}
    assert {"input", "weight", "activation", "output"} >= kinds
    assert "activation" in kinds
    assert "output" in kinds


def test_groups_survive_being_saved(workload):
    assert load_text(save_text(workload), "saved").groups == workload.groups


def test_a_problem_file_is_fused_in_a_child_process_and_one_kernel_remains(tmp_path):
    file = Path(tmp_path / "problem.py")
    file.write_text(PROBLEM)
    found = nearpeak.capture(file, fusion="inductor")
    assert found.groups == ((0, 1, 2),)
    assert found.origin["fusion"] == "inductor"


def test_what_inductor_cannot_compile_as_one_graph_is_said_in_one_line():
    class Branching(nn.Linear):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    with pytest.raises(CaptureError, match="TorchInductor cannot compile it as one graph: ") as caught:
        nearpeak.capture(Branching(4, 4), inputs=(torch.ones(2, 4),), fusion="inductor")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("options", "reason"), [
    ({"fusion": "triton"}, "fusion 'triton': is not known; use inductor"),
    ({"fusion": "inductor", "step": "train"}, "for step 'forward' only, got 'train'"),
    ({"fusion": "inductor", "autocast": "bf16"}, "fusion groups and autocast exclude each other"),
])  # fmt: skip
def test_options_that_do_not_go_together_are_refused(options, reason):
    with pytest.raises(SpecError, match=reason):
        nearpeak.capture(nn.Linear(4, 4), inputs=(torch.ones(2, 4),), **options)


def test_pooling_is_covered_and_empty_kernels_are_counted_once_per_kernel():
    network = lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)).eval()  # noqa: E731
    pooled = capture_torch(
        network, lambda: ((torch.rand(1, 3, 18, 18),), {}), CaptureOptions(fusion="inductor"), name="pooled"
    )
    rows = nearpeak.analyze(pooled, ["h100_sxm"])
    assert not rows.uncovered
    floor_s = nearpeak.target("h100_sxm").launch_floor_s
    assert rows.targets[0].launch_floor_s == pytest.approx(floor_s * len(pooled.groups))
    assert len(pooled.groups) < len(pooled.calls)
