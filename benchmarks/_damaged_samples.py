"""A sound file of each format that nearpeak reads, and what reads it."""

import contextlib
import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._trace_files import WRITERS, planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of file."""

    suffix: str
    write: Callable[[Path], None]
    """Writes a sound file."""
    read: Callable[[Path], Any]
    """Reads a file as a command would; returns what is then known."""
    count: Callable[[Any], int] = lambda _: 0
    """Entries of what was read."""
    losses: Callable[[Any], int] | None = field(default=None)
    """Losses that what was read states; none where a format has no place for them, and refuses damage."""


def _trace(name: str) -> Format:
    def write(path: Path) -> None:
        WRITERS[name][1](path, planned(1, 12))

    def read(path: Path) -> Any:
        from nearpeak.api.trace_analysis import analyze_trace
        from nearpeak.errors import NearpeakError
        from nearpeak.traces import read_trace

        trace = read_trace(path, name)
        with contextlib.suppress(NearpeakError):
            analyze_trace(path)
        return trace

    return Format(
        suffix=WRITERS[name][0], write=write, read=read, count=len,
        losses=lambda trace: len(trace.header.losses),
    )  # fmt: skip


def _imported(make: Callable[..., Path], name: str) -> Format:
    def write(path: Path) -> None:
        path.write_bytes(make(path.parent).read_bytes())

    def read(path: Path) -> Any:
        from nearpeak.core.history.stored_run import Device
        from nearpeak.store.importers import FileContext, file_bytes, file_digest, runs_of_file

        data = file_bytes(path)
        context = FileContext(name=path.name, digest=file_digest(data), device=Device(name="H200"), folder=path.parent)
        return runs_of_file(data, context, name)

    return Format(suffix=".json", write=write, read=read)


def _text(suffix: str, text: Callable[[], str], read: Callable[[Path], Any]) -> Format:
    return Format(suffix=suffix, write=lambda path: path.write_text(text(), encoding="utf-8") and None, read=read)


def _captured(path: Path) -> Any:
    from nearpeak.core.work.capture_options import CaptureOptions
    from nearpeak.frontends.source_types import captured

    return captured(str(path), CaptureOptions(timeout_s=15.0, memory_bytes=1 << 30))


_SWEEP = """[[case]]
op = "gemm"
dtype = "bf16"
m = 8
n = 8
k = 8
[[sweep]]
op = "gemm"
dtype = ["bf16", "fp32"]
m = "1:16"
n = [8, 64]
k = "pow2(3,8)"
"""
_POLICY = """name = "nightly"
tolerance = "2%"
[[rule]]
name = "roof"
baseline = "bound"
at_least = "80%"
[[rule]]
name = "last week"
baseline = "previous"
"""
_SCENARIO = """[[stream]]
name = "camera"
cases = ["gemm m=256 n=1024 k=1024 dtype=bf16"]
input = "2 MB"
count = 20
period = "500 us"
deadline = "400 us"
priority = 1
"""
_LOG = """Operator: aten.mm.default
cnt: 12, ((T([16, 32], f16), T([32, 64], f16)), {})
Operator: aten.add.Tensor
cnt: 3, ((T([16, 64], f16), T([16, 64], f16)), {})
"""
_HEADER = """std::vector<std::tuple<int, int, int, bool, bool>> training_set = {
    std::make_tuple(1760, 16, 700, false, false), std::make_tuple(35, 8457, 2048, true, false),
};
"""


def _workload() -> Any:
    from nearpeak.frontends.files.sweep import swept

    return swept("s", "op=gemm dtype=bf16 m=1:8 n=8 k=[1,7,8]")


def _own() -> Mapping[str, Format]:
    """Return nearpeak's own formats, and those of tables."""
    from nearpeak.frontends.files import case_tables, saved_workload
    from nearpeak.gate.policy_file import read_policy
    from nearpeak.reports.analysis.json import from_json, to_json

    def suite() -> str:
        from nearpeak.suites.suite_file import save_text
        from nearpeak.suites.suite_names import ready_names, ready_suite

        return min((save_text(ready_suite(name)) for name in ready_names()), key=len)

    def analysis() -> str:
        from nearpeak.api.questions import analyze

        return to_json(analyze(_workload(), "h100_sxm"))

    def table() -> Mapping[str, Any]:
        import numpy as np

        count = 50
        whole = {name: np.arange(1, count + 1) for name in "mnk"}
        return {"op": np.array(["gemm"] * count), "dtype": np.array(["bf16"] * count), **whole}

    def target() -> str:
        from nearpeak import targets

        return (Path(targets.__file__).parent / "h100_sxm.toml").read_text(encoding="utf-8")

    def read_target(path: Path) -> Any:
        from nearpeak.targets import target_of

        return target_of(str(path))

    def read_suite(path: Path) -> Any:
        from nearpeak.suites.suite_names import read_suite

        return read_suite(path)

    def read_scenario(path: Path) -> Any:
        from nearpeak.api.case_words import case_of
        from nearpeak.simulation.scenario_file import scenario_of

        return scenario_of(path, lambda words: case_of(words, "simulate"))

    def results() -> str:
        import tempfile

        from nearpeak.api.measured_analysis import measure
        from nearpeak.ops import case

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "r.jsonl"
            list(measure((case("fill", elements=4, dtype="fp32"),), "null", out=path))
            return path.read_text()

    def read_results(path: Path) -> Any:
        from nearpeak.measurement.result_file import read_results

        return read_results(path)

    def packed(path: Path) -> None:
        from tests.unit.store.importers import documents

        path.write_bytes(gzip.compress(documents.hyperfine(path.parent).read_bytes(), mtime=0))

    rows = "\n".join(json.dumps({"op": "gemm", "dtype": "bf16", "m": m, "n": 8, "k": 8}) for m in range(1, 40))
    return {
        "workload": _text(".json", lambda: saved_workload.save_text(_workload()), _captured),
        "analysis": _text(".json", analysis, lambda path: from_json(_read_text(path))),
        "suite": _text(".jsonl", suite, read_suite),
        "sweep_toml": _text(".toml", lambda: _SWEEP, _captured),
        "sweep_jsonl": _text(".jsonl", lambda: rows, _captured),
        "operator_log": _text(".txt", lambda: _LOG, _captured),
        "deepbench": _text(".h", lambda: _HEADER, _captured),
        "policy": _text(".toml", lambda: _POLICY, read_policy),
        "target": _text(".toml", target, read_target),
        "scenario": _text(".toml", lambda: _SCENARIO, read_scenario),
        "results": _text(".jsonl", results, read_results),
        "results_nearpeak_results": Format(
            suffix=".jsonl", write=lambda path: path.write_text(results()) and None,
            read=_imported(Path, "nearpeak_results").read,
        ),
        "chakra": _text(".json", _chakra, _captured),
        "definition": _text(".json", _definition, _captured),
        "cases_csv": Format(
            suffix=".csv", write=lambda path: case_tables.write_columns(path, table()), read=case_tables.read_columns
        ),
        "cases_jsonl": Format(
            suffix=".jsonl", write=lambda path: case_tables.write_columns(path, table()), read=case_tables.read_columns
        ),
        "cases_parquet": Format(
            suffix=".parquet", write=lambda path: case_tables.write_columns(path, table()),
            read=case_tables.read_columns,
        ),
        "packed_json": Format(
            suffix=".json.gz", write=packed, read=_imported(Path, "hyperfine").read
        ),
        "onnx": Format(suffix=".onnx", write=_onnx, read=_captured),
    }  # fmt: skip


def _chakra() -> str:
    """Return a host execution trace of two steps of a linear layer."""

    def node(number: int, name: str, parent: int, count: int) -> Mapping[str, Any]:
        inputs = {
            "values": [[1], [2], [3]][:count], "shapes": [[32, 64], [128, 64], [128]][:count],
            "types": ["Tensor(float)"] * count,
        }  # fmt: skip
        return {"id": number, "name": name, "ctrl_deps": parent, "inputs": inputs, "outputs": {}, "attrs": []}

    steps = [node(2 + 2 * step + part, name, 1 + part * (1 + 2 * step), 3 * part) for step in range(2)
             for part, name in enumerate(("step", "aten::linear"))]  # fmt: skip
    return json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": steps})


def _definition() -> str:
    """Return the definition of a kernel that adds two rows."""
    spec = {"shape": ["n"], "dtype": "float32"}
    return json.dumps({
        "name": "add_rows", "op_type": "elementwise", "axes": {"n": {"type": "const", "value": 64}},
        "inputs": {"a": spec, "b": spec}, "outputs": {"y": spec},
        "reference": "import torch\n\ndef run(a, b):\n    return a + b\n",
    })  # fmt: skip


def _power_log(text: str) -> Format:
    def read(path: Path) -> Any:
        from nearpeak.exchange.power_logs import read_log

        return read_log(path, 1.0)

    return _text(".log", lambda: text, read)


def _read_text(path: Path) -> str:
    from nearpeak.base.input_files import text_of_file

    return text_of_file(path)


def _onnx(path: Path) -> None:
    """Write a model of a product, a function, a loop and shape arithmetic."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    stored = [
        numpy_helper.from_array(np.ones((8, 4), np.float32), "w"),
        numpy_helper.from_array(np.array([2, 8], np.int64), "shape"),
    ]
    double = helper.make_function(
        "own", "double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["p"]),
        helper.make_node("double", ["p"], ["y"], domain="own"),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], stored,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, functions=[double]).SerializeToString())


def formats() -> Mapping[str, Format]:
    """Return all formats by name: traces, result files and power logs of other tools, nearpeak's own, tables, ONNX."""
    from tests.unit.exchange.power_log_texts import MADE
    from tests.unit.store.importers import documents

    imported = {f"results_{make.__name__}": _imported(make, documents.importer_name(make)) for make in documents.ALL}
    power_logs = {f"power_{name}": _power_log(text) for name, text in MADE.items()}
    return {**{f"trace_{name}": _trace(name) for name in WRITERS}, **imported, **power_logs, **_own()}
