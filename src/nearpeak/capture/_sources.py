"""Which capture a source gets, by what it is: a file of some format, a model's name, a callable."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nearpeak.core.workload import Workload
from nearpeak.errors import SpecError

_LISTS = (".txt", ".log", ".h")
"""Suffixes of files that list operators with their arguments."""


def captured(
    source: str, options: dict[str, Any], shapes: Mapping[str, tuple[int, ...]], timeout_s: float, memory_bytes: int
) -> Workload:
    """Return the workload of a file or a named model, by what it is."""
    path, suffix = Path(source), Path(source).suffix
    given = {name: value for name, value in options.items() if value is not None}
    if suffix in (".py", ".pt2", *_LISTS, ".onnx", ".toml", ".jsonl", ".json") and not path.exists():
        raise SpecError(f"{source}: not found")
    if suffix in (".pt", ".pth", ".ts"):
        raise SpecError(
            f"{source}: does not say its inputs; load it in Python and call nearpeak.capture(module, inputs=…)"
        )
    if suffix == ".onnx":
        from nearpeak.capture.onnx_file import capture_onnx

        _refuse(source, given, _meaningless(source))
        if given["step"] != "forward":
            raise SpecError(f"{source}: an ONNX file holds the forward step only, got step {given['step']!r}")
        return capture_onnx(path, shapes=dict(shapes), batch=options["batch"])
    if shapes:
        raise SpecError(f"{source}: input shapes can be given for ONNX files only")
    if suffix in _LISTS:
        return _listed(path, given)
    if suffix in (".toml", ".jsonl"):
        from nearpeak.capture.sweep import capture_sweep

        refuse_for_lists(source, given)
        return capture_sweep(path)
    if json_kind(source) == "workload":
        from nearpeak.capture._saved import load_text

        refuse_for_lists(source, given)
        return load_text(path.read_text(encoding="utf-8"), path.name)
    return _executed(source, given, timeout_s, memory_bytes)


def _listed(path: Path, given: Mapping[str, Any]) -> Workload:
    """Return the workload of a file that lists operators with their arguments: an operator log, DeepBench problems."""
    _refuse(str(path), given, _meaningless(str(path)))
    if path.suffix == ".h":
        from nearpeak.capture.deepbench_file import capture_deepbench

        return capture_deepbench(path, dtype=given.get("dtype"))
    from nearpeak.capture.op_log_file import capture_op_log

    return capture_op_log(path)


def captured_callable(source: Callable[..., object], inputs: Any, step: str, options: Mapping[str, Any]) -> Workload:
    """Return the workload of a module or function of the caller's, captured in this process."""
    from nearpeak.capture.jax_function import capture_jax, is_jax
    from nearpeak.capture.torch_dispatch import capture_torch

    if inputs is None:
        raise SpecError("capture: a callable needs inputs=(tensor, …), its positional arguments")
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (inputs, {})
    args = args if isinstance(args, tuple) else (args,)
    is_module = hasattr(source, "named_parameters")
    name = type(source).__name__ if is_module else getattr(source, "__name__", "callable")
    given = {key: value for key, value in options.items() if value is not None}
    if is_jax(source, (args, kwargs)):
        _refuse(name, given, tuple(given))
        return capture_jax(source, args, kwargs, name=name, step=step)
    return capture_torch(source if is_module else lambda: source, (args, kwargs), name=name, step=step, **given)


def _executed(source: str, given: dict[str, Any], timeout_s: float, memory_bytes: int) -> Workload:
    """Return the workload of what must be executed to be captured: a problem file or an architecture."""
    from nearpeak.capture._isolation import run_isolated

    file = {
        ".py": "nearpeak.capture.problem_file:capture_problem",
        ".pt2": "nearpeak.capture.exported_file:capture_exported",
    }.get(Path(source).suffix)
    _refuse(source, given, _meaningless(source))
    if file:
        function, arguments = file, {"path": Path(source), **given}
    elif source.startswith("hf:"):
        function = "nearpeak.capture.model_type:capture_model_type"
        arguments = {"name": source.removeprefix("hf:"), **given}
    else:
        function, arguments = "nearpeak.capture.architecture:capture_architecture", {"name_or_config": source, **given}
    try:
        found: Workload = run_isolated(function, arguments, timeout_s=timeout_s, memory_bytes=memory_bytes)
    except SpecError as error:
        if Path(source).name in str(error):
            raise
        raise type(error)(f"{source}: {error}") from None
    return found


_OF_MODELS = ("sequence", "kv", "layers", "training", "dtype", "autocast", "fusion", "guess_sizes")
_OF_LISTS = ("batch", *_OF_MODELS)
_OF_FILES: Mapping[str, tuple[str, ...]] = {
    ".onnx": _OF_MODELS, ".py": ("batch", "sequence", "kv", "layers"),
    ".pt2": ("batch", "sequence", "kv", "layers", "guess_sizes"),
}  # fmt: skip
"""Options of models that have no meaning for files of some suffixes."""


def refuse_for_lists(source: str, options: Mapping[str, Any]) -> None:
    """Refuse options of models that are given for a source that states its cases itself."""
    _refuse(source, {k: v for k, v in options.items() if v is not None}, _OF_LISTS)


def refuse_early(source: str, options: Mapping[str, Any]) -> None:
    """Refuse options that have no meaning for a source, as far as that shows before anything of it is captured.

    >>> refuse_early("resnet-50", {"batch": 8, "sequence": 128})
    Traceback (most recent call last):
    nearpeak.errors.SpecError: --sequence 128: resnet-50 reads no text; leave it out
    """
    from nearpeak.capture._published import MODELS

    given = {name: value for name, value in options.items() if value is not None}
    if json_kind(source) != "definition":
        _refuse(source, given, _meaningless(source))
    if "sequence" in given and source in MODELS and not MODELS[source].reads_text:
        raise SpecError(f"--sequence {given['sequence']}: {source} reads no text; leave it out")


def _meaningless(source: str) -> tuple[str, ...]:
    """Return the options of models that have no meaning for a source, by what it is called and states to be."""
    suffix = Path(source).suffix
    if suffix in (".toml", ".jsonl") or json_kind(source) == "workload":
        return _OF_LISTS
    if suffix in _LISTS:
        return tuple(name for name in _OF_LISTS if (suffix, name) != (".h", "dtype"))
    if suffix in _OF_FILES:
        return _OF_FILES[suffix]
    hub = source.startswith("hf:")
    return ("training", "autocast", "fusion", "guess_sizes") if hub else ("training", "layers", "guess_sizes")


def _refuse(source: str, given: Mapping[str, Any], options: Sequence[str]) -> None:
    for name in options:
        if name in given:
            option = "--eval" if name == "training" else f"--{name.replace('_', '-')}"
            raise SpecError(f"{source}: {option} has no meaning for it; leave it out")


def json_kind(source: str) -> str:
    """Return what a JSON file is: `workload`, `definition`, or empty for a model's configuration and other files."""
    from nearpeak.capture._saved import is_workload
    from nearpeak.exchange.definition import is_definition

    path = Path(source)
    if path.suffix != ".json" or not path.is_file():
        return ""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not JSON: {error}") from None
    return "workload" if is_workload(data) else "definition" if is_definition(data) else ""


def captured_definition(
    source: str, options: dict[str, Any], axes: dict[str, int], timeout_s: float, memory_bytes: int
) -> Workload:
    """Return the workload of a kernel definition at the given extents."""
    from nearpeak.capture._isolation import run_isolated

    if json_kind(source) != "definition":
        raise SpecError(f"{source}: axes can be given for kernel definitions (.json) only")
    given = {
        name: value for name, value in options.items() if value is not None and (name, value) != ("step", "forward")
    }
    _refuse(source, given, tuple(given))
    function, arguments = "nearpeak.capture.definition_file:capture_definition", {"path": Path(source), "axes": axes}
    found: Workload = run_isolated(function, arguments, timeout_s=timeout_s, memory_bytes=memory_bytes)
    return found
