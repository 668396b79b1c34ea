"""Definition files captured: the reference on a workload's extents, and cases written as definitions."""

import json
from pathlib import Path

import pytest

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import CaptureError, SpecError
from nearpeak.exchange.case_definition import definition_of
from nearpeak.exchange.kernel_definition import definition_text
from nearpeak.frontends.files.definition_capture import capture_definition
from nearpeak.ops import case, label_of

FOLDER = Path(__file__).parents[2] / "fixtures" / "definitions"
FILE = FOLDER / "scaled_rows.json"
SMALL = json.loads((FOLDER / "scaled_rows.jsonl").read_text().splitlines()[0])


def test_reference_is_captured_at_the_workloads_extents():
    workload = capture_definition(FILE, line=SMALL)
    assert next(label_of(one) for one in workload.case_counts()).startswith("gemm m=8 n=32 k=64")
    assert workload.uncovered_counts() == {}
    assert dict(workload.origin)["workload"] == "small"


def test_scalar_is_assumed_without_a_workload_and_needs_a_value_in_one():
    assert (
        "no workload is given: scale = 0.5 is assumed"
        in capture_definition(FILE, CaptureOptions(axes={"m": 8})).assumptions
    )
    line = {**SMALL, "inputs": {name: {"type": "random"} for name in SMALL["inputs"]}}
    with pytest.raises(SpecError, match="input 'scale' is a scalar; its workload must state a value"):
        capture_definition(FILE, line=line)


def variant(tmp_path, **entries):
    path = tmp_path / "d.json"
    path.write_text(json.dumps({**json.loads(FILE.read_text()), **entries}))
    return path


def test_scalars_of_custom_inputs_come_from_the_definitions_own_function(tmp_path):
    source = (
        json.loads(FILE.read_text())["reference"] + "\n\ndef make(axes, device):\n    return {'scale': axes['m']}\n"
    )
    path = variant(tmp_path, reference=source, custom_inputs_entrypoint="make")
    line = {**SMALL, "inputs": {name: {"type": "custom"} for name in SMALL["inputs"]}}
    assert capture_definition(path, line=line).uncovered_counts() == {}
    with pytest.raises(CaptureError, match="custom_inputs_entrypoint 'other' is not in the reference"):
        capture_definition(variant(tmp_path, custom_inputs_entrypoint="other"), line=line)


def test_reference_that_raises_is_named_with_its_file(tmp_path):
    path = variant(tmp_path, reference="def run(a, w, scale):\n    return a @ w\n")
    with pytest.raises(CaptureError, match="scaled_rows m=8: forward raised RuntimeError") as caught:
        capture_definition(path, line=SMALL)
    assert "\n" not in str(caught.value)


def test_offsets_of_a_safetensors_file_keep_their_values(tmp_path):
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    safetensors.save_file({"lens": torch.tensor([0, 3, 7])}, str(tmp_path / "w.safetensors"))
    reference = "def run(x, lens):\n    return x[: int(lens[-1].item())] * 2\n"
    path = variant(
        tmp_path, reference=reference, constraints=[], axes={"m": {"type": "var"}},
        inputs={"x": {"shape": ["m"], "dtype": "float32"}, "lens": {"shape": ["3"], "dtype": "int64"}},
        outputs={"y": {"shape": ["m"], "dtype": "float32"}},
    )  # fmt: skip
    made = {"x": {"type": "random"}, "lens": {"type": "safetensors", "path": "w.safetensors", "tensor_key": "lens"}}
    workload = capture_definition(path, line={"uuid": "a", "axes": {"m": 9}, "inputs": made})
    assert [dict(one.axes)["elements"] for one in workload.case_counts()] == [7]


@pytest.mark.parametrize("flavour", ["sol", "flashinfer"])
@pytest.mark.parametrize(
    "given",
    [case("gemm", m=8, n=4, k=2, dtype="bf16"),
     case("softmax", phase="backward", rows=4, columns=8, dtype="fp32"),
     case("attention", batch=1, heads=2, q=8, kv=8, dim=16, causal=True, dtype="bf16"),
     case("attention", phase="backward", batch=1, heads=2, q=8, kv=8, dim=16, causal=True, dtype="bf16")],
    ids=label_of,
)  # fmt: skip
def test_exported_case_is_captured_as_itself(tmp_path, given, flavour):
    definition, line = definition_of(given, flavour)
    path = tmp_path / "d.json"
    path.write_text(definition_text(definition))
    workload = capture_definition(path, line=dict(line.record))
    assert given in workload.case_counts()
