"""Steps of optimizers whose states, gradients and parameters differ in format: PyTorch's own way takes them all."""

import pytest

import nearpeak
from nearpeak.validation import pytorch, validate

pytest.importorskip("torch")


@pytest.mark.parametrize(("op", "axes"), [
    ("adamw", {}), ("adamw", {"amsgrad": True, "decay": "l2"}), ("sgd", {"momentum": True}),
    ("optimizer", {"rule": "nadam"}), ("optimizer", {"rule": "lion"}),
])  # fmt: skip
@pytest.mark.parametrize("formats", [
    {"dtype": "fp32", "state_dtype": "bf16"}, {"dtype": "bf16", "state_dtype": "fp32"},
    {"dtype": "fp32", "grad_dtype": "bf16", "state_dtype": "bf16"},
    {"dtype": "bf16", "grad_dtype": "fp32", "state_dtype": "bf16"},
], ids=lambda formats: "-".join(formats.values()))  # fmt: skip
def test_states_keep_their_format_and_results_pass_the_contract(op, axes, formats):
    case = nearpeak.case(op, parameters=4000, **axes, **formats)
    assert validate(case, pytorch(case), seed=1).status == "PASS"
