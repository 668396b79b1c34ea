"""Kernel definition files of flashinfer-bench and SOL-ExecBench: axes, tensors, constraints and reference."""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nearpeak.base.input_files import json_value
from nearpeak.errors import SpecError
from nearpeak.exchange.axis_expression import evaluate, is_over

REQUIRED = ("name", "axes", "inputs", "outputs", "reference")
"""Entries that every definition has."""

FORMATS: Mapping[str, str] = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2", "float4_e2m1": "fp4", "float4_e2m1fn_x2": "fp4", "int64": "int64", "int32": "int32",
    "int16": "int16", "int8": "int8", "bool": "bool",
}  # fmt: skip
"""Number formats of the files and their names here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """An input or output."""

    shape: tuple[str, ...] | None
    """Axis names or decimal literals; () is a tensor without dimensions, none a Python scalar."""
    dtype: str
    """Format as the file calls it."""

    def extents(self, axes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the extent of each dimension."""
        return tuple(int(name) if name.isdigit() else axes[name] for name in self.shape or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One definition; its identity is its axes, their roles and the values of constant ones."""

    name: str
    """Name."""
    axes: Mapping[str, Mapping[str, Any]]
    """Axis by name, as the file states it: `const` with value, `var`, or `expr` with expression."""
    inputs: Mapping[str, TensorSpec]
    """Parameters of `run`, in order."""
    outputs: Mapping[str, TensorSpec]
    """Results of `run`, in order."""
    reference: str
    """Python source with a function `run` at the top level."""
    constraints: tuple[str, ...] = ()
    """Conditions on axes, and conditions on tensor values, which are not checked here."""
    entry_point: str = ""
    """Function of the reference that makes the inputs, where they are `custom`."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """The whole file."""

    def resolved(self, variables: Mapping[str, int], where: str) -> dict[str, int]:
        """Return the extent of every axis, in the file's order.

        Args:
            variables: extents of the `var` axes.
            where: workload, for messages.

        Raises:
            SpecError: an axis is missing or too many, or a constraint does not hold.

        >>> text = '''{"name": "scale", "axes": {"n": {"type": "var"}, "m": {"type": "expr", "expression": "n * 2"}},
        ... "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
        ... "outputs": {"y": {"shape": ["m"], "dtype": "float32"}},
        ... "reference": "def run(x): ..."}'''
        >>> parse_definition(text, "scale.json").resolved({"n": 4}, "w")
        {'n': 4, 'm': 8}
        """
        wanted = [name for name, axis in self.axes.items() if axis["type"] == "var"]
        if sorted(variables) != sorted(wanted):
            raise SpecError(
                f"{where}: gives axes {_listed(variables)}; {self.name} has the variable axes {_listed(wanted)}"
            )
        extents: dict[str, int] = {}
        for name, axis in self.axes.items():
            extents[name] = _extent(name, axis, variables, extents, f"{where}: axis {name!r}")
        for text in self.constraints:
            if is_over(text, extents) and not evaluate(text, extents):
                raise SpecError(f"{where}: constraint {text!r} of {self.name} does not hold for {_listed(extents)}")
        return extents


def is_definition(data: object) -> bool:
    """Return whether JSON data has the entries of a definition.

    >>> is_definition({"axes": {}, "inputs": {}, "outputs": {}, "reference": ""})
    True
    """
    return isinstance(data, dict) and {"axes", "inputs", "outputs", "reference"} <= set(data)


def parse_definition(text: str, where: str) -> Definition:
    """Return the definition that JSON `text` states.

    Raises:
        SpecError: not JSON, an entry missing or malformed, or `run` takes other parameters than the inputs.
    """
    try:
        data = json_value(text)
    except ValueError as error:
        raise SpecError(f"{where}: not JSON: {error}") from None
    for key in REQUIRED:
        if not isinstance(data, dict) or key not in data:
            raise SpecError(f"{where}: entry {key!r} is missing; a definition has {', '.join(REQUIRED)}")
    axes = _axes(data["axes"], where)
    inputs = _tensors(data["inputs"], axes, f"{where}: inputs")
    outputs = _tensors(data["outputs"], axes, f"{where}: outputs")
    for name in inputs:
        if name in axes or name in outputs:
            raise SpecError(
                f"{where}: input {name!r} has the same name as an {'axis' if name in axes else 'output'}; rename one"
            )
    _check_run(data["reference"], inputs, where)
    return Definition(
        name=_text(data["name"], f"{where}: name"), axes=axes, inputs=inputs, outputs=outputs,
        reference=data["reference"], record=data,
        constraints=tuple(_text(condition, f"{where}: constraints") for condition in data.get("constraints") or ()),
        entry_point=data.get("custom_inputs_entrypoint") or "",
    )  # fmt: skip


def definition_text(definition: Definition) -> str:
    """Return the definition as JSON text."""
    return json.dumps(definition.record, indent=2, ensure_ascii=False) + "\n"


def _axes(data: object, where: str) -> dict[str, Mapping[str, Any]]:
    if not isinstance(data, dict):
        raise SpecError(f"{where}: axes must be an object of axes by name")
    needed = {"const": "value", "var": "", "expr": "expression"}
    for name, axis in data.items():
        kind = axis.get("type") if isinstance(axis, dict) else None
        if kind not in needed:
            raise SpecError(f"{where}: axis {name!r} has type {kind!r}; it must be const, var or expr")
        if needed[kind] and needed[kind] not in axis:
            raise SpecError(f"{where}: axis {name!r} is {kind} and needs {needed[kind]!r}")
        if kind == "const" and not _is_extent(axis["value"]):
            raise SpecError(
                f"{where}: axis {name!r} has value {axis['value']!r}; it must be a whole number, at least 0"
            )
    return data


def _extent(
    name: str, axis: Mapping[str, Any], variables: Mapping[str, int], extents: Mapping[str, int], where: str
) -> int:
    value = axis.get("value") if axis["type"] == "const" else variables.get(name)
    if axis["type"] == "expr":
        value = evaluate(_text(axis["expression"], where), extents)
    if not _is_extent(value):
        raise SpecError(f"{where} is {value!r}; it must be a whole number, at least 0")
    return int(value or 0)


def _tensors(data: object, axes: Mapping[str, Any], where: str) -> dict[str, TensorSpec]:
    if not isinstance(data, dict) or not data:
        raise SpecError(f"{where} must be an object of tensors by name, at least one")
    return {name: _tensor(row, axes, f"{where}.{name}") for name, row in data.items()}


def _tensor(row: object, axes: Mapping[str, Any], where: str) -> TensorSpec:
    if not isinstance(row, dict) or "dtype" not in row or "shape" not in row:
        raise SpecError(f"{where} needs 'shape' (a list of axes, or null for a scalar) and 'dtype'")
    if row["dtype"] not in FORMATS:
        raise SpecError(f"{where}: dtype {row['dtype']!r} is not known; known are {', '.join(FORMATS)}")
    shape = row["shape"]
    if shape is None:
        return TensorSpec(shape=None, dtype=row["dtype"])
    names = [str(name) for name in shape] if isinstance(shape, list) else [str(shape)]
    for name in names:
        if name not in axes and not (name.isascii() and name.isdigit()):
            raise SpecError(
                f"{where}: shape entry {name!r} is neither an axis nor a number; define an expr axis for it"
            )
    return TensorSpec(shape=tuple(names), dtype=row["dtype"])


def _check_run(source: object, inputs: Mapping[str, Any], where: str) -> None:
    """Refuse a reference whose `run` does not take the inputs, in their order."""
    try:
        tree = ast.parse(_text(source, f"{where}: reference"))
    except SyntaxError as error:
        raise SpecError(f"{where}: reference is not Python: {error.msg}, line {error.lineno}") from None
    runs = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
    if not runs:
        raise SpecError(f"{where}: reference has no function run at the top level")
    parameters = [
        parameter.arg for parameter in (*runs[-1].args.posonlyargs, *runs[-1].args.args, *runs[-1].args.kwonlyargs)
    ]
    if parameters != list(inputs):
        raise SpecError(
            f"{where}: run takes {_listed(parameters)}, the inputs are {_listed(list(inputs))}; they must agree"
        )


def _is_extent(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise SpecError(f"{where}: {value!r} is not a text")
    return value


def _listed(names: Any) -> str:
    pairs = [f"{name}={names[name]}" for name in names] if isinstance(names, dict) else list(names)
    return ", ".join(pairs) or "none"
