"""Every runner: what it declares is so, what it computes agrees with the reference, what it cannot do it says."""

import dataclasses
import errno
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

import nearpeak
from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.core.runs.measurement import Outcome, Timing
from nearpeak.core.runs.runner_protocols import RunnerAbilities
from nearpeak.errors import MeasureError, MissingExtraError, SpecError
from nearpeak.measurement.runners import RUNNERS, runner_of
from nearpeak.measurement.runners.replay import _by_case
from nearpeak.targets.device_names import known_target

torch = pytest.importorskip("torch")
TIMING = Timing(budget_s=0.0, flush_bytes=0, cache="hot", validate=False)
SOFTMAX = nearpeak.case("softmax", rows=8, columns=33, dtype="fp32")
GEMM = nearpeak.case("gemm", m=8, n=5, k=7, dtype="fp32")
PROGRAM = Path(__file__).parent / "program.py"


@pytest.fixture(autouse=True)
def _own_kernels(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def outputs_of(runner, case):
    """What a runner computes on the case's own inputs."""
    backend = runner_of(runner, TIMING).backend
    inputs = drawn(case)
    prepared = backend.prepare(case, inputs)
    try:
        backend.timer().read(prepared.runs[0], 1)
        return prepared.outputs(prepared.runs[0]())
    finally:
        if prepared.close:
            prepared.close()


def test_every_runner_declares_its_abilities():
    for name in RUNNERS:
        assert isinstance(RUNNERS[name].abilities, RunnerAbilities), name
        assert RUNNERS[name].name == name


@pytest.mark.parametrize("case", [SOFTMAX, GEMM], ids=lambda case: case.op)
@pytest.mark.parametrize("runner", ["torch_cpu", "onnxruntime", f"process:{sys.executable} {PROGRAM}"])
def test_runners_agree_with_the_reference(runner, case):
    if runner == "onnxruntime":
        pytest.importorskip("onnxruntime")
    wanted, got = outputs_of("numpy", case), outputs_of(runner, case)
    assert got.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("words", "first"), [
    ({"op": "gemm", "m": 8, "n": 5, "k": 7, "layout": "nt"}, ""),
    ({"op": "conv", "batch": 2, "in_channels": 3, "out_channels": 4, "h": 5, "w": 6, "kh": 3, "kw": 3,
      "layout": "channels_last"}, "Transpose+"),
    ({"op": "softmax", "rows": 3, "columns": 8, "x.layout": "transposed"}, "Transpose+"),
    ({"op": "softmax", "rows": 3, "columns": 8, "x.offset": 4}, ""),
], ids=["product", "convolution", "transposed", "offset"])  # fmt: skip
def test_onnx_runtime_is_given_tensors_as_they_lie(words, first):
    pytest.importorskip("onnxruntime")
    case = nearpeak.case(dtype="fp32", **words)
    wanted, got = outputs_of("numpy", case), outputs_of("onnxruntime", case)
    for name in wanted:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-5, atol=1e-5)
    assert runner_of("onnxruntime", TIMING).measure(case).algorithm.startswith(first)


def test_the_gradient_is_that_of_the_reference_for_the_same_upstream():
    case = nearpeak.case("softmax", "backward", rows=4, columns=9, dtype="fp64")
    got = outputs_of("torch_cpu", case)["grad_x"]
    assert got.shape == (4, 9)
    np.testing.assert_allclose(got.sum(axis=-1), 0.0, atol=1e-12)  # a row of softmax adds up to 1 whatever its input
    assert np.abs(got).max() > 0
    reference = runner_of("numpy", TIMING).measure(case)
    assert reference.samples_s


@pytest.mark.parametrize(("runner", "case", "note"), [
    ("onnxruntime", nearpeak.case("softmax", "backward", rows=4, columns=8, dtype="fp32"), "no backward phase"),
    ("onnxruntime", nearpeak.case("cast", elements=8, dtype="fp32", out_dtype="fp8_e4m3"), "has no fp8_e4m3"),
    ("onnxruntime", nearpeak.case("softmax", rows=4, columns=8, dtype="fp32", **{"x.layout": "padded"}), "gaps"),
    (f"process:{sys.executable} {PROGRAM}", nearpeak.case("layer_norm", rows=4, hidden=8, dtype="fp32"), "only"),
])  # fmt: skip
def test_what_a_runner_cannot_do_is_a_row_with_its_reason(runner, case, note):
    if runner == "onnxruntime":
        pytest.importorskip("onnxruntime")
    found = runner_of(runner, TIMING).measure(case)
    assert found.outcome is Outcome.UNSUPPORTED
    assert note in found.note


def test_a_program_s_own_times_are_kept_beside_the_host_s():
    found = runner_of(f"process:{sys.executable} {PROGRAM}", TIMING).measure(GEMM)
    assert found.method.timer == "program"
    assert all(host >= own > 0 for own, host in zip(found.samples_s, found.host_samples_s, strict=True))
    assert found.algorithm == "numpy"


@pytest.mark.parametrize(("mode", "outcome", "message"), [
    ("error", "failed", "says 'out of luck'"), ("words", "failed", "'hello' when asked to prepare, which is not JSON"),
    ("list", "failed", "no JSON object"), ("long", "failed", "more than 1048576 characters"),
    ("leave", "crash", "ended with exit code 7"), ("crash", "crash", "was ended by SIGSEGV"),
    ("version", "failed", "speaks protocol 7; this is protocol 1"), ("ledger", "failed", "as its ledger; wanted"),
    ("flop", "failed", "as its ledger; wanted"), ("ratio", "failed", "as its ledger; wanted"),
    ("node", "failed", "as its ledger; wanted"), ("rows", "failed", "as its ledger; wanted"),
    ("silent", "unsupported", "does not say why"), ("timeless", "failed", "gives time_s as None"),
    ("nan time", "failed", "gives time_s as nan"), ("negative", "failed", "gives time_s as -1"),
    ("true", "failed", "gives time_s as True"), ("cpu", "failed", "gives cpu_s as 'x'"),
])  # fmt: skip
def test_a_program_that_breaks_the_protocol_is_named(mode, outcome, message):
    found = runner_of(f"process:{sys.executable} {PROGRAM} {mode}", TIMING).measure(GEMM)
    assert (found.outcome.value, found.samples_s) == (outcome, ())
    assert message in found.note


@pytest.mark.parametrize(("mode", "message"), [
    ("dtype", "gives the dtype of y as 'float32'"), ("shape", "gives the shape of y as 'big'"),
    ("file", "gives '/dev/zero' as the file of y"), ("nothing", "answered no outputs"),
    ("later", "says 'out of luck' when asked to run"),
])  # fmt: skip
def test_a_program_that_breaks_the_protocol_where_it_is_checked_has_no_wrong_result(mode, message):
    timing = Timing(budget_s=0.02, flush_bytes=0)
    found = runner_of(f"process:{sys.executable} {PROGRAM} {mode}", timing).measure(GEMM)
    assert (found.outcome, found.samples_s, found.validation) == (Outcome.FAILED, (), None)
    assert message in found.note


def test_a_file_of_a_relative_name_lies_in_the_folder_that_the_program_was_given():
    timing = Timing(budget_s=0.02, flush_bytes=0)
    found = runner_of(f"process:{sys.executable} {PROGRAM} relative", timing).measure(GEMM)
    assert (found.has_times, found.validation.status) == (True, "PASS"), found.note
    absent = runner_of(f"process:{sys.executable} {PROGRAM} absent", timing).measure(GEMM)
    assert re.search(r"gives 'z.out' as the file of y, but /.*/z.out is no file", absent.note)


def test_a_program_that_keeps_its_answer_while_inputs_change_is_incorrect():
    timing = Timing(budget_s=0.02, flush_bytes=0, cache="hot")
    found = runner_of(f"process:{sys.executable} {PROGRAM} kept", timing).measure(GEMM)
    assert (found.outcome, found.samples_s) == (Outcome.INCORRECT, ())
    assert "a timed call" in found.note


def test_a_program_that_is_not_there_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(SpecError, match="no such program"):
        runner_of(f"process:{tmp_path}/absent", TIMING)
    with pytest.raises(SpecError, match="no closing quotation"):
        runner_of("process:./program 'one", TIMING)


def test_a_program_whose_inputs_cannot_be_written_is_ended_and_its_folder_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    def full(case, arrays, folder):
        seen.extend(tmp_path.iterdir())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("nearpeak.measurement.runners.process._written", full)
    children = set(psutil.Process().children())
    backend = runner_of("process:/bin/cat", TIMING).backend
    with pytest.raises(OSError, match="No space left") as left:
        backend.prepare(GEMM, drawn(GEMM))
    assert left.value.errno == errno.ENOSPC
    assert (len(seen), [*tmp_path.iterdir()], {*psutil.Process().children()} - children) == (1, [], set())


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler of C++")
def test_the_program_of_the_examples_computes_what_it_is_asked_for(tmp_path):
    source = Path(__file__).parents[3] / "examples" / "program" / "product.cpp"
    subprocess.run(["g++", "-O2", "-std=c++17", "-Wall", "-Werror", "-o", tmp_path / "product", source], check=True)
    runner = f"process:{tmp_path}/product"
    found = runner_of(runner, Timing(budget_s=0.0, cache="cold")).measure(GEMM)
    assert found.samples_s, found.note
    assert found.validation.status == "PASS"
    other = nearpeak.case("gemm", m=8, n=5, k=7, dtype="fp16")
    assert "it computes fp32" in runner_of(runner, TIMING).measure(other).note


@pytest.mark.parametrize(("mode", "message"), [
    ("dtype", "dtype of y as 'float32'; known are"), ("shape", "shape of y as 'big'"), ("nothing", "no outputs"),
    ("file", "'/dev/zero' as the file of y, but /dev/zero is no file"), ("transposed", "takes 320"),
])  # fmt: skip
def test_outputs_that_are_not_what_a_program_says_are_named(mode, message):
    ready = runner_of(f"process:{sys.executable} {PROGRAM} {mode}", TIMING).backend.prepare(GEMM, drawn(GEMM))
    try:
        with pytest.raises(RuntimeError, match=message):
            ready.outputs(ready.runs[0]())
    finally:
        ready.close()


@pytest.mark.parametrize("runner", ["torch_cuda", "cuda_graph", "torch_compile_cuda", "torch_tensorrt"])
def test_a_gpu_runner_is_refused_by_name_where_there_is_no_gpu(runner):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(MeasureError, match=f"runner {runner}: needs a GPU"):
        runner_of(runner, TIMING)


def test_recorded_samples_are_said_again(tmp_path):
    from nearpeak.api.measured_analysis import measure

    out = tmp_path / "results.jsonl"
    (taken,) = measure(SOFTMAX, "callable:kernels:softmax", TIMING, out=out)
    again = runner_of(f"replay:{out}", TIMING).measure(SOFTMAX)
    assert again == taken
    assert runner_of(f"replay:{out}").measure(GEMM).outcome is Outcome.UNSUPPORTED
    with pytest.raises(SpecError, match="not found"):
        runner_of(f"replay:{tmp_path / 'absent.jsonl'}")


@pytest.mark.parametrize("order", [("cold", "hot"), ("hot", "cold")])
def test_what_was_recorded_with_caches_as_asked_for_is_said_again(tmp_path, order):
    from nearpeak.api.measured_analysis import measure

    out, found = tmp_path / "results.jsonl", {}
    for cache in order:
        other = runner_of(f"replay:{out}", dataclasses.replace(TIMING, cache=cache)) if found else None
        if other is not None:
            said = other.measure(SOFTMAX)
            assert said.outcome is Outcome.UNSUPPORTED
            assert said.note == f"{out} holds it with --cache {order[0]} alone, not {cache}"
            _by_case.cache_clear()
        (found[cache],) = measure(SOFTMAX, "torch_cpu", dataclasses.replace(TIMING, cache=cache), out=out)
    for cache, taken in found.items():
        again = runner_of(f"replay:{out}", dataclasses.replace(TIMING, cache=cache)).measure(SOFTMAX)
        assert (again.method.cache, again.samples_s) == (cache, taken.samples_s)
    _by_case.cache_clear()


@pytest.mark.slow
def test_a_compiled_call_agrees_and_says_how_long_it_took_to_build():
    found = runner_of("torch_compile", Timing(budget_s=0.0, flush_bytes=0, cache="hot", validate=False)).measure(
        SOFTMAX
    )
    assert found.samples_s
    assert found.phases_s["build"] > 0
    assert found.ledger == ()


def test_a_triton_kernel_runs_in_the_interpreter(monkeypatch):
    pytest.importorskip("triton")
    runner = runner_of("triton:triton_kernels:add", TIMING)
    case = nearpeak.case("elementwise", function="add", elements=1000, b=1000, dtype="fp32")
    got, wanted = outputs_of("triton:triton_kernels:add", case), outputs_of("numpy", case)
    np.testing.assert_allclose(next(iter(got.values())), next(iter(wanted.values())), rtol=1e-6)
    bf16 = nearpeak.case("elementwise", function="add", elements=1000, dtype="bf16")
    if not torch.cuda.is_available():
        assert "bf16" in runner.measure(bf16).note


def test_without_triton_its_runner_is_refused(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="install triton"):
        runner_of("triton:kernels:softmax", TIMING)


@pytest.mark.parametrize(("name", "target"), [
    ("NVIDIA H100 80GB HBM3", "h100_sxm"), ("NVIDIA H100 PCIe", "h100_pcie"), ("NVIDIA GeForce RTX 4090", "rtx_4090"),
    ("AMD Instinct MI300X", "mi300x"), ("Tesla V100-SXM2-32GB", "v100_sxm_32gb"), ("Some New Card", "gpu"),
])  # fmt: skip
def test_a_gpu_is_known_by_the_name_that_its_driver_gives(name, target):
    assert known_target(name) == target


def test_results_are_written_for_other_tools(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    from nearpeak.measurement.result_export import write_parquet, write_pytest_benchmark

    found = [runner_of("callable:kernels:softmax", TIMING).measure(SOFTMAX), runner_of("null").measure(GEMM)]
    write_parquet(tmp_path / "a.parquet", found)
    rows = duckdb.sql(f"SELECT op, samples_s, outcome FROM '{tmp_path / 'a.parquet'}'").fetchall()
    assert [(op, tuple(samples)) for op, samples, _ in rows] == [(one.case.op, one.samples_s) for one in found]
    write_pytest_benchmark(tmp_path / "a.json", found)
    written = json.loads((tmp_path / "a.json").read_text())["benchmarks"]
    assert written[0]["stats"]["data"] == list(found[0].samples_s)
    assert written[1]["stats"]["median"] == 1e-3


def test_a_file_for_other_tools_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    from nearpeak.measurement.result_export import write_pytest_benchmark

    def full(path, text, **_):
        path.write_bytes(text.encode()[:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "a.json"
    out.write_text("before")
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(SpecError, match=r"a\.json: cannot be written: No space left on device"):
        write_pytest_benchmark(out, [runner_of("null").measure(GEMM)])
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.json", "before")]
