"""Capture of a kernel definition of flashinfer-bench or SOL-ExecBench: its reference at a workload's extents."""

import sys
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

from nearpeak.base.input_files import text_of_file
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import Workload
from nearpeak.errors import CaptureError, SpecError
from nearpeak.exchange.kernel_definition import FORMATS, Definition, TensorSpec, parse_definition
from nearpeak.exchange.workload_lines import WorkloadLine, check_inputs, parse_workload
from nearpeak.frontends.failure_message import stage
from nearpeak.frontends.known_values.data_dependent_sizes import CONSTANT_ELEMENTS
from nearpeak.frontends.torch.module_capture import capture_torch, torch_dtype

_MODULE = "nearpeak_definition"
_PACKED = "float4_e2m1fn_x2"


def capture_definition(
    path: str | Path, options: CaptureOptions = CaptureOptions(), *, line: Mapping[str, Any] | None = None
) -> Workload:
    """Return the workload of a definition's reference; its code runs in this process, so prefer `capture_isolated`.

    Args:
        path: definition file (JSON).
        options: holds the extents of the `var` axes; those of `line` where it is given.
        line: the workload, as its line states it; without it every input is random, and scalars are assumed.

    Raises:
        SpecError: the file or an axis is wrong, or a scalar of the workload has no value.
        CaptureError: the reference raised.
    """
    file = Path(path).resolve()
    definition = parse_definition(text_of_file(file), str(path))
    workload = None if line is None else parse_workload(line, f"{path}: workload")
    if workload is not None:
        check_inputs(workload, definition, f"{path}: workload {workload.uuid}")
    where = str(path) if workload is None else f"{path}: workload {workload.uuid}"
    extents = definition.resolved(options.axes if workload is None else workload.axes, where)
    loaded: list[ModuleType] = []

    def build() -> Callable[..., Any]:
        with stage(where, "reading the reference", file):
            module = ModuleType(_MODULE)
            sys.modules[_MODULE] = module  # dataclasses and inspect look it up
            exec(compile(definition.reference, f"{definition.name}.reference.py", "exec"), module.__dict__)
            loaded.append(module)
        run: Callable[..., Any] = loaded[0].run
        return run

    def inputs() -> tuple[Any, Any]:
        with stage(where, "making the inputs", file):
            return _inputs(definition, extents, workload, loaded[0], file.parent, where), {}

    name = " ".join(
        (definition.name, *(f"{axis}={extents[axis]}" for axis in extents if definition.axes[axis]["type"] == "var"))
    )
    scalars = {key: _assumed(spec) for key, spec in definition.inputs.items() if spec.shape is None}
    notes = [f"no workload is given: {key} = {value} is assumed" for key, value in scalars.items() if not workload]
    origin = {"definition": definition.name, **({"workload": workload.uuid} if workload else {})}
    try:
        return capture_torch(build, inputs, name=name, origin=origin, folder=file.parent, assumptions=notes)
    finally:
        sys.modules.pop(_MODULE, None)


def _inputs(
    definition: Definition, axes: Mapping[str, int], line: WorkloadLine | None, module: ModuleType, folder: Path,
    where: str,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the arguments of `run`: fake tensors, and scalars with the workload's values."""
    rows: Mapping[str, Mapping[str, Any]] = {
        name: {"type": "random"} if spec.shape is not None else {"type": "scalar", "value": _assumed(spec)}
        for name, spec in definition.inputs.items()
    } if line is None else line.inputs  # fmt: skip
    custom = _custom(definition, axes, rows, module, where)
    arguments = []
    for name, spec in definition.inputs.items():
        if spec.shape is not None:
            values = _file_values(rows[name], folder)
            arguments.append(_empty(spec, axes, where) if values is None else values)
        elif rows[name]["type"] == "scalar":
            arguments.append(rows[name]["value"])
        elif name in custom:
            arguments.append(custom[name])
        else:
            raise SpecError(f"{where}: input {name!r} is a scalar; its workload must state a value or be custom")
    return tuple(arguments)


def _assumed(spec: TensorSpec) -> bool | int | float:
    kind = dtype_of(FORMATS[spec.dtype]).kind
    return False if kind == "bool" else 0.5 if kind == "float" else 1


def _custom(
    definition: Definition, axes: Mapping[str, int], rows: Mapping[str, Any], module: ModuleType, where: str
) -> Mapping[str, Any]:
    """Return the inputs that the definition's own entry point makes, if a scalar is among them."""
    scalars = [name for name, spec in definition.inputs.items() if spec.shape is None]
    if not any(rows[name]["type"] == "custom" for name in scalars):
        return {}
    make = getattr(module, definition.entry_point, None)
    if make is None:
        raise CaptureError(f"{where}: custom_inputs_entrypoint {definition.entry_point!r} is not in the reference")
    made: Mapping[str, Any] = make(dict(axes), "cpu")
    return made


def _empty(spec: TensorSpec, axes: Mapping[str, int], where: str) -> Any:
    import torch

    if spec.dtype == _PACKED:
        return torch.empty(spec.extents(axes), dtype=torch.float4_e2m1fn_x2)
    if FORMATS[spec.dtype] == "fp4":
        raise SpecError(f"{where}: PyTorch has no unpacked {spec.dtype}; write {_PACKED} with half the last extent")
    return torch.empty(spec.extents(axes), dtype=torch_dtype(FORMATS[spec.dtype]))


def _file_values(row: Mapping[str, Any], folder: Path) -> Any:
    """Return a small integer tensor with its values (offsets, page tables); none for other tensors."""
    if row["type"] != "safetensors" or not (folder / row["path"]).is_file():
        return None
    try:
        from safetensors import safe_open
    except ImportError:
        return None
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily(), safe_open(str(folder / row["path"]), framework="pt") as file:
        part = file.get_slice(row["tensor_key"])
        if part.get_dtype() not in ("I64", "I32", "BOOL") or prod(part.get_shape()) > CONSTANT_ELEMENTS:
            return None
        return part[:]
