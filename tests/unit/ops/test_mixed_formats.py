"""Steps of optimizers whose states, gradients and parameters differ in format: PyTorch's own way takes them all."""

import pytest
from tests.sampling import in_turn

import nearpeak
from nearpeak.validation import pytorch, validate

pytest.importorskip("torch")


OPTIMIZERS = (
    ("adamw", {}), ("adamw", {"amsgrad": True, "decay": "l2"}), ("sgd", {"momentum": True}),
    ("optimizer", {"rule": "nadam"}), ("optimizer", {"rule": "lion"}),
)  # fmt: skip
FORMATS = (
    {"dtype": "fp32", "state_dtype": "bf16"}, {"dtype": "bf16", "state_dtype": "fp32"},
    {"dtype": "fp32", "grad_dtype": "bf16", "state_dtype": "bf16"},
    {"dtype": "bf16", "grad_dtype": "fp32", "state_dtype": "bf16"},
)  # fmt: skip


@pytest.mark.parametrize(("optimizer", "formats"), in_turn(OPTIMIZERS, FORMATS))
def test_states_keep_their_format_and_results_pass_the_contract(optimizer, formats):
    op, axes = optimizer
    case = nearpeak.case(op, parameters=4000, **axes, **formats)
    assert validate(case, pytorch(case), seed=1).status == "PASS"
