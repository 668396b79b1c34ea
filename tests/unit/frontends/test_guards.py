"""A bound of calls that values decided says so: what was guessed and what was read of the inputs."""

import pytest

torch = pytest.importorskip("torch")

import nearpeak  # noqa: E402
from nearpeak.bounds.speed_of_light_score import sol_score  # noqa: E402
from nearpeak.frontends.files.saved_workload import load_text, save_text  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402

ONES = (torch.ones(4, 4), torch.ones(4, 4, dtype=torch.int64))


def captured(function, inputs):
    return capture_torch(lambda: function, lambda: (inputs() if callable(inputs) else inputs, {}), name="guarded")


def by_its_sum(x, _mask):
    return x @ x if x.sum() < 1 else x + 1


def by_its_mask(x, mask):
    return x @ x if mask.all() else x + 1


def by_itself(x, _mask):
    return x @ x if torch.arange(5).max() > 3 else x + 1


def made():
    return torch.ones(4, 4), torch.ones(4, 4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("function", "inputs", "guard"),
    [
        (by_its_sum, ONES, "1 data-dependent value assumed: bool = False"),
        (by_its_mask, made, "1 value of the inputs decided what runs: all = True"),
    ],
)
def test_a_branch_on_data_is_an_assumption_of_every_bound(function, inputs, guard):
    workload = captured(function, inputs)
    assert workload.guards == workload.assumptions == (guard,)
    bound = nearpeak.bound(workload, "h100_sxm")
    assert "A10" in bound.assumptions
    assert sol_score(2 * bound.time_s, 3 * bound.time_s, bound).kind == "headroom"
    assert load_text(save_text(workload), "w.json").guards == (guard,)


def test_a_branch_that_the_program_alone_decides_is_none():
    workload = captured(by_itself, made)
    assert workload.guards == ()
    assert "A10" not in nearpeak.bound(workload, "h100_sxm").assumptions


def test_a_loss_that_may_ignore_targets_rests_on_none_being_ignored():
    loss = nearpeak.case("cross_entropy", rows=4, classes=8, dtype="fp32")
    assert "A20" in nearpeak.bound(loss, "h100_sxm").assumptions
    assert (
        "A20" not in nearpeak.bound(nearpeak.case("softmax", rows=4, columns=8, dtype="fp32"), "h100_sxm").assumptions
    )

    def run(x, target):
        return torch.nn.functional.nll_loss(x, target)

    workload = captured(run, (torch.rand(4, 8), torch.zeros(4, dtype=torch.int64)))
    assert "A20" in nearpeak.bound(workload, "h100_sxm").assumptions
