"""The names of outputs: the same by the reference and by PyTorch, which small cases are told without."""

import subprocess
import sys

import pytest

import nearpeak
from nearpeak.case_tensors import output_shapes

SMALL = {
    "gemm": {"m": 4, "n": 5, "k": 6},
    "topk": {"rows": 2, "columns": 3},
    "softmax": {"rows": 64, "columns": 256},
    "layer_norm": {"rows": 4, "hidden": 8},
}


@pytest.mark.parametrize("op", SMALL)
def test_the_reference_and_pytorch_name_the_same_outputs(op):
    pytest.importorskip("torch")
    case = nearpeak.case(op, dtype="fp32", **SMALL[op])
    assert output_shapes._names_of_reference(case) == tuple(output_shapes.outputs_of(case))


def test_a_function_on_small_arrays_is_named_without_importing_pytorch():
    code = (
        "import sys, nearpeak\nfrom nearpeak.case_tensors.output_shapes import output_names\n"
        "print(output_names(nearpeak.case('softmax', rows=64, columns=256, dtype='fp32')), 'torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "('y',) False\n"


def test_what_is_too_large_to_compute_is_told_by_pytorch(monkeypatch):
    case = nearpeak.case("softmax", rows=4096, columns=4096, dtype="fp32")
    monkeypatch.setattr(output_shapes, "_names_of_reference", lambda _: pytest.fail("the reference was evaluated"))
    assert output_shapes.output_names.__wrapped__(case) == ("y",)
