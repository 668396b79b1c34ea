"""The CPU runner: samples kept, what cannot run says why; runners of other packages are found."""

import importlib.metadata

import pytest

import nearpeak
from nearpeak.api.measured_analysis import measured
from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.case_tensors.torch_tensors import tensors_of
from nearpeak.core.runs.measurement import Measurement, Outcome, Timing
from nearpeak.errors import MeasureError, SpecError
from nearpeak.measurement.runners import runner_of

torch = pytest.importorskip("torch")
GEMM = nearpeak.case("gemm", m=16, n=16, k=16, dtype="fp32")
SHORT = Timing(budget_s=0.0, flush_bytes=0)


def test_every_sample_is_kept_and_the_best_is_the_shortest():
    taken = runner_of("torch_cpu", SHORT).measure(GEMM)
    assert len(taken.samples_s) == len(taken.cpu_samples_s) >= SHORT.least_count
    assert taken.best_s == min(taken.samples_s) > 0
    assert taken.method.process == "caller"
    assert dict(taken.environment.packages)["torch"] == torch.__version__


@pytest.mark.parametrize("op", [("softmax", {"rows": 4, "columns": 8}), ("layer_norm", {"rows": 4, "hidden": 8})])
def test_gradients_are_timed_without_the_forward_pass(op):
    case = nearpeak.case(op[0], "backward", dtype="fp32", **op[1])
    assert runner_of("torch_cpu", SHORT).measure(case).samples_s


@pytest.mark.parametrize(
    ("case", "strides"),
    [
        (nearpeak.case("gemm", m=4, n=8, k=16, dtype="fp32"), {"a": (64, 16, 1), "b": (128, 8, 1)}),
        (nearpeak.case("gemm", m=4, n=8, k=16, dtype="fp32", layout="nt"), {"a": (64, 16, 1), "b": (0, 1, 16)}),
        (
            nearpeak.case("gemm", m=4, n=8, k=16, batch=2, dtype="bf16", layout="tn"),
            {"a": (64, 1, 4), "b": (128, 8, 1)},
        ),
        (
            nearpeak.case("gemm", m=4, n=8, k=16, dtype="fp32", layout="nt", **{"b.layout": "padded", "a.offset": 4}),
            {"a": (0, 16, 1), "b": (0, 9, 1)},
        ),
        (
            nearpeak.case(
                "conv", batch=2, in_channels=3, out_channels=2, h=5, w=4, kw=2, dtype="fp32", layout="channels_last"
            ),
            {"input": (60, 1, 12, 3), "weight": (6, 1, 0, 3)},
        ),
    ],
)
def test_inputs_lie_as_the_layout_of_the_case_says(case, strides):
    (arrays,) = drawn(case)
    tensors = tensors_of(torch, case, arrays, "cpu")
    assert {name: tensor.stride() for name, tensor in tensors.items()} == strides
    for name, tensor in tensors.items():
        assert torch.equal(tensor, torch.from_numpy(arrays[name]).to(tensor.dtype))


@pytest.mark.parametrize("axes", [{"m": 2**18, "n": 8, "k": 2**12}, {"m": 2**16, "n": 2**16, "k": 8}])
def test_a_case_too_large_becomes_a_row_with_its_reason(axes):
    taken = runner_of("torch_cpu", SHORT).measure(nearpeak.case("gemm", dtype="fp32", **axes))
    assert taken.outcome is Outcome.UNSUPPORTED
    assert "GiB" in taken.note
    with pytest.raises(MeasureError, match="GiB"):
        _ = taken.best_s


def test_measured_times_stand_beside_the_bounds_of_the_runner_s_target(monkeypatch):
    class Fixed:
        name, target = "fixed", "t4"

        def __init__(self, argument, timing):
            pass

        def measure(self, case):
            return Measurement(case=case, target="t4", runner="fixed", samples_s=(2.0, 1.0))

    entry = importlib.metadata.EntryPoint(name="fixed", value="nowhere:Fixed", group="nearpeak.runners")
    monkeypatch.setattr("nearpeak.base.registry._entry_points", lambda group: (entry,) if group == entry.group else ())
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda _self: Fixed)
    from nearpeak.api import questions

    analysis = questions.analyze(
        questions.capture(lambda a, b: a @ b, inputs=(torch.ones(4, 8), torch.ones(8, 2))), ["t4", "l4"]
    )
    beside = measured(analysis, "fixed")
    assert [time.measured_s for time in beside.targets[0].times] == [1.0]
    assert beside.targets[1] == analysis.targets[1]
    with pytest.raises(SpecError, match="add --target t4"):
        measured(questions.analyze(questions.capture(lambda a: a + a, inputs=(torch.ones(4),)), "l4"), "fixed")


def test_a_step_of_lbfgs_that_is_timed_is_one_that_can_be_taken_again():

    timing = Timing(cache="hot", budget_s=0.02, validate=False)
    found = runner_of("torch_cpu", timing).measure(nearpeak.case("lbfgs", parameters=20, history=1, dtype="fp32"))
    assert found.outcome in (Outcome.CONVERGED, Outcome.BUDGET), found.note
