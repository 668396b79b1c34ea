"""How many public operators of PyTorch and ONNX are captured with a rule for every call; the misses go to a file."""

import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks._census import Answer, answers, causes_of, torch_subjects
from benchmarks._figures import ROOT, Figure
from nearpeak.frontends.onnx.onnx_file import capture_onnx

FIGURES = ("census_torch_forward", "census_torch_train", "census_onnx")
MISSES = ROOT / "docs" / "lab" / "census.json"
"""Every operator that is not covered, with its causes, and how many there are of which."""
_LARGEST_ARGUMENT = 64


def measure() -> Iterator[Figure]:
    """Yield the share of covered operators forward, in training and in ONNX files, and write down the misses."""
    found: dict[str, list[Answer]] = {name: [] for name in FIGURES}
    found["census_onnx"] = list(onnx_answers())
    for subject in torch_subjects():
        for answer in answers(subject):
            found[f"census_torch_{answer.step}"].append(answer)
    record = {name: _record(rows) for name, rows in found.items()}
    MISSES.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, least in zip(FIGURES, (95.0, 95.0, 85.0), strict=True):
        share = 100.0 * record[name]["covered"] / record[name]["total"]
        yield Figure(name=name, value=share, unit="%", bar=f">= {least:g} %", passed=share >= least)


def _record(rows: list[Answer]) -> dict[str, Any]:
    missed = {row.name: list(row.causes) for row in sorted(rows, key=lambda row: row.name) if not row.is_covered}
    return {"total": len(rows), "covered": len(rows) - len(missed), "missed": missed}


def onnx_answers() -> Iterator[Answer]:
    """Yield what the backend cases that ship with the package onnx gave, by operator type.

    Cases of several nodes, of domains beside the standard's own and of nothing at all (an extent of 0) are left out.
    """
    import onnx
    from onnx.backend.test.case.node import collect_testcases

    causes: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            (node, *others), path = case.model.graph.node, Path(folder) / "case.onnx"
            if others or node.domain not in ("", "ai.onnx") or _is_empty(case.model):
                continue
            onnx.save(_with_constants(onnx, case), path)
            found = {cause.removeprefix(f"{path}: ") for cause in causes_of(lambda path=path: capture_onnx(path))}
            causes[node.op_type] = causes.get(node.op_type, set()) | found
            counts[node.op_type] = counts.get(node.op_type, 0) + 1
    for name, own in sorted(causes.items()):
        yield Answer(name=name, step="forward", sample_count=counts[name], causes=tuple(sorted(own)))


def _is_empty(model: Any) -> bool:
    shapes = (item.type.tensor_type.shape.dim for item in model.graph.input if item.type.HasField("tensor_type"))
    return any(dim.HasField("dim_value") and dim.dim_value == 0 for shape in shapes for dim in shape)


def _with_constants(onnx: Any, case: Any) -> Any:
    """Return the case's model with what files keep as constants made constant: shapes, axes, bounds, scales."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    values: Mapping[str, Any] = dict(zip([i.name for i in model.graph.input], case.data_sets[0][0], strict=False))
    small = {name: value for name, value in values.items() if _is_argument(value)}
    for position, item in reversed(list(enumerate(model.graph.input))):
        if item.name in small and (position or len(small) == len(values)):
            model.graph.initializer.append(onnx.numpy_helper.from_array(small[item.name], item.name))
            del model.graph.input[position]
    return model


def _is_argument(value: Any) -> bool:
    if not hasattr(value, "ndim") or value.size > _LARGEST_ARGUMENT:
        return False
    return value.ndim == 0 or (value.ndim == 1 and value.dtype.kind in "iub")
