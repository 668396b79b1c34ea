"""Workload files of flashinfer-bench and SOL-ExecBench: axis extents and inputs for a definition, one per line."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearpeak.base.input_files import json_value
from nearpeak.errors import SpecError
from nearpeak.exchange.kernel_definition import Definition

KINDS: Mapping[str, tuple[str, ...]] = {
    "random": (), "scalar": ("value",), "safetensors": ("path", "tensor_key"), "custom": (),
}  # fmt: skip
"""Kinds of input with the entries that each needs."""

FLAVOURS = ("sol", "flashinfer")
"""Output formats: SOL-ExecBench or flashinfer-bench."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLine:
    """One workload."""

    uuid: str
    """Identifier."""
    axes: Mapping[str, int]
    """Extent of each variable axis."""
    inputs: Mapping[str, Mapping[str, Any]]
    """How each input is made, by name."""
    definition: str = ""
    """Name of the definition, where the line states it."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """The whole workload object, including entries that nearpeak does not interpret."""


def parse_workloads(text: str, where: str) -> list[WorkloadLine]:
    """Return the workloads of a file: SOL-ExecBench writes them bare, flashinfer-bench inside a trace.

    Raises:
        SpecError: a line is malformed, or two have one uuid.

    >>> line = '{"uuid": "a", "axes": {"n": 4}, "inputs": {"x": {"type": "random"}}}'
    >>> parse_workloads(line, "w.jsonl")[0].axes
    {'n': 4}
    """
    workloads: dict[str, WorkloadLine] = {}
    for place, data in json_lines(text, where):
        line = parse_workload(data, place)
        if line.uuid in workloads:
            raise SpecError(f"{place}: uuid {line.uuid!r} occurs twice in the file")
        workloads[line.uuid] = line
    if not workloads:
        raise SpecError(f"{where}: holds no workload")
    return list(workloads.values())


def parse_workload(data: Mapping[str, Any], where: str) -> WorkloadLine:
    """Return the workload that a line states, bare or inside a trace."""
    inner = data.get("workload", data)
    for key, wanted in (("uuid", str), ("axes", dict), ("inputs", dict)):
        if not isinstance(inner, dict) or not isinstance(inner.get(key), wanted):
            raise SpecError(f"{where}: workload needs {key!r}, a {wanted.__name__}; it has uuid, axes and inputs")
    for name, extent in inner["axes"].items():
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 0:
            raise SpecError(f"{where}: axis {name!r} is {extent!r}; it must be a whole number, at least 0")
    for name, row in inner["inputs"].items():
        kind = str(row.get("type")) if isinstance(row, dict) else ""
        if kind not in KINDS:
            raise SpecError(f"{where}: input {name!r} has type {kind!r}; it must be one of {', '.join(KINDS)}")
        for key in KINDS[kind]:
            if key not in row:
                raise SpecError(f"{where}: input {name!r} is {kind} and needs {key!r}")
    custom = [name for name, row in inner["inputs"].items() if row["type"] == "custom"]
    if custom and len(custom) < len(inner["inputs"]):  # documents describe a mix, the benchmark's own reader rejects it
        raise SpecError(f"{where}: inputs {', '.join(custom)} are custom and the others are not; write all or none so")
    return WorkloadLine(
        uuid=inner["uuid"], axes=inner["axes"], inputs=inner["inputs"], definition=str(data.get("definition") or ""),
        record=inner,
    )  # fmt: skip


def workload_text(line: WorkloadLine, definition: str, flavour: str = "sol") -> str:
    """Return the workload as one line of JSON.

    >>> line = WorkloadLine(uuid="a", axes={}, inputs={}, record={"uuid": "a", "axes": {}, "inputs": {}})
    >>> workload_text(line, "gemm").strip()
    '{"uuid": "a", "axes": {}, "inputs": {}}'
    """
    data = dict(line.record)
    if check_flavour(flavour) == "flashinfer":
        data = {"definition": definition, "solution": None, "workload": data, "evaluation": None}
    return json.dumps(data, ensure_ascii=False) + "\n"


def check_inputs(line: WorkloadLine, definition: Definition, where: str) -> None:
    """Refuse a workload whose inputs are not those of the definition."""
    if sorted(line.inputs) != sorted(definition.inputs):
        raise SpecError(
            f"{where}: makes the inputs {', '.join(line.inputs) or 'none'}; {definition.name} has "
            f"{', '.join(definition.inputs)}"
        )


def check_flavour(flavour: str) -> str:
    """Return `flavour`; refuse an unknown one."""
    if flavour not in FLAVOURS:
        raise SpecError(f"flavour {flavour!r} is not one of {', '.join(FLAVOURS)}")
    return flavour


def json_lines(text: str, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield position and object of each line that is not blank."""
    for number, row in enumerate(text.split("\n"), start=1):
        if not row.strip():
            continue
        try:
            data = json_value(row)
        except ValueError as error:
            raise SpecError(f"{where}, line {number}: not JSON: {error}") from None
        if not isinstance(data, dict):
            raise SpecError(f"{where}, line {number}: is not an object")
        yield f"{where}, line {number}", data
