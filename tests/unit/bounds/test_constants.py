"""Tensors that every step makes alike are found in a captured model, and nothing else is taken for one."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from nearpeak.api import questions  # noqa: E402
from nearpeak.bounds.step.step_constants import constant_calls  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.prediction.host_costs import eager_cost  # noqa: E402


class Remaking(nn.Linear):
    """Makes a mask and positions anew in each layer, draws noise, and fills a buffer with what it is given."""

    def forward(self, x):
        for _ in range(3):
            mask = torch.triu(torch.ones(64, 64), 1)
            kept = torch.zeros(4, 64)
            kept[0] = x[0]
            x = super().forward(x) + mask[torch.arange(64), 0] + kept + torch.rand(64)
        return x


class Keeping(nn.Linear):
    """Keeps its mask."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("mask", torch.triu(torch.ones(64, 64), 1))

    def forward(self, x):
        return super().forward(x) + self.mask[0]


def captured(kind):
    return capture_torch(
        lambda: kind(64, 64), lambda: ((torch.rand(4, 64),), {}), CaptureOptions(dtype="fp32"), name="model"
    )


def test_what_depends_on_no_input_is_constant_and_what_is_drawn_or_written_into_is_not():
    names = sorted(call.operator.split(".")[1] for call in constant_calls(captured(Remaking)))
    assert names == ["arange"] * 3 + ["index"] * 3 + ["ones"] * 3 + ["triu"] * 3
    assert constant_calls(captured(Keeping)) == ()


def test_the_report_names_their_lines_and_what_making_them_once_gains():
    analysis = questions.analyze(captured(Remaking), ["h100_sxm"])
    found = [one for one in analysis.targets[0].opportunities if one.kind == "constants"]
    assert len(found) == 1
    assert "12 calls depend on no weight and no input" in found[0].evidence
    assert "test_constants.py" in found[0].where
    assert found[0].gain_s == pytest.approx(12 * eager_cost(1, 1, 0).usual_s)  # the host submits twelve calls less
    kept = questions.analyze(captured(Keeping), ["h100_sxm"]).targets[0].opportunities
    assert all(one.kind != "constants" for one in kept)
