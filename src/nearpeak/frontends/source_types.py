"""Selection of the frontend by source: file format, model name or callable."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.child_capture import capture_isolated

_LISTS = (".txt", ".log", ".h")
"""Suffixes of files that list operators with their arguments."""


def captured(source: str, options: CaptureOptions) -> Workload:
    """Return the workload of a file or a named model."""
    path, suffix = Path(source), Path(source).suffix
    kind = json_kind(source)
    if options.axes and kind != "definition":
        raise SpecError(f"{source}: axes can be given for kernel definitions (.json) only")
    if suffix in (".py", ".pt2", *_LISTS, ".onnx", ".toml", ".jsonl", ".json") and not path.exists():
        raise SpecError(f"{source}: not found")
    if suffix in (".pt", ".pth", ".ts"):
        raise SpecError(
            f"{source}: does not state its inputs; load it in Python and call nearpeak.capture(module, inputs=…)"
        )
    if options.shapes and suffix != ".onnx":
        raise SpecError(f"{source}: input shapes can be given for ONNX files only")
    _refuse(source, options, _meaningless(source))
    if kind == "definition":
        return capture_isolated("nearpeak.frontends.files.definition_capture:capture_definition", source, options)
    if suffix == ".onnx":
        from nearpeak.frontends.onnx.onnx_file import capture_onnx

        if options.step != "forward":
            raise SpecError(f"{source}: an ONNX file holds the forward step only, got step {options.step!r}")
        return capture_onnx(path, options)
    if suffix in _LISTS:
        return _listed(path, options)
    if suffix in (".toml", ".jsonl"):
        from nearpeak.frontends.files.sweep import capture_sweep

        return capture_sweep(path)
    if kind == "workload":
        from nearpeak.frontends.files.saved_workload import load_text

        return load_text(path.read_text(encoding="utf-8"), path.name)
    return _executed(source, options)


def _listed(path: Path, options: CaptureOptions) -> Workload:
    """Return the workload of a file that lists operators with their arguments: an operator log, DeepBench problems."""
    if path.suffix == ".h":
        from nearpeak.frontends.files.deepbench_headers import capture_deepbench

        return capture_deepbench(path, dtype=options.dtype)
    from nearpeak.frontends.files.operator_log import capture_op_log

    return capture_op_log(path)


def captured_callable(source: Callable[..., Any], inputs: Any, options: CaptureOptions) -> Workload:
    """Return the workload of a callable or a module, captured in this process.

    Raises:
        SpecError: it has no inputs, or is JAX's, which takes no option of PyTorch.
    """
    from nearpeak.frontends.jax.jax_function import capture_jax, is_jax
    from nearpeak.frontends.torch.module_capture import capture_torch

    if inputs is None:
        raise SpecError("capture: a callable needs inputs=(tensor, …), its positional arguments")
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (inputs, {})
    args = args if isinstance(args, tuple) else (args,)
    is_module = hasattr(source, "named_parameters")
    name = type(source).__name__ if is_module else getattr(source, "__name__", "callable")
    if is_jax(source, (args, kwargs)):
        _refuse(name, options, ("training", "dtype", "autocast", "fusion", "guess_sizes"))
        return capture_jax(source, args, kwargs, name=name, step=options.step)
    return capture_torch(source if is_module else lambda: source, (args, kwargs), options, name=name)


def _executed(source: str, options: CaptureOptions) -> Workload:
    """Return the workload of a source whose code runs during capture: a problem file, an archive or a model."""
    name, frontend = source, "huggingface.architecture:capture_architecture"
    if source.startswith("hf:"):
        name, frontend = source.removeprefix("hf:"), "huggingface.model_type:capture_model_type"
    elif Path(source).suffix == ".py":
        frontend = "torch.problem_file:capture_problem"
    elif Path(source).suffix == ".pt2":
        frontend = "torch.exported_program:capture_exported"
    try:
        return capture_isolated(f"nearpeak.frontends.{frontend}", name, options)
    except SpecError as error:
        if Path(source).name in str(error):
            raise
        raise type(error)(f"{source}: {error}") from None


_OF_MODELS = ("sequence", "kv", "layers", "training", "dtype", "autocast", "fusion", "guess_sizes")
_OF_LISTS = ("batch", *_OF_MODELS)
_OF_FILES: Mapping[str, tuple[str, ...]] = {
    ".onnx": _OF_MODELS, ".py": ("batch", "sequence", "kv", "layers"),
    ".pt2": ("batch", "sequence", "kv", "layers", "guess_sizes"),
}  # fmt: skip
"""Model options without meaning, by file suffix."""


def refuse_for_lists(source: str, options: CaptureOptions) -> None:
    """Refuse model options for a source that lists its cases."""
    _refuse(source, options, _OF_LISTS)


def refuse_early(source: str, options: CaptureOptions) -> None:
    """Refuse options that have no meaning for a source, as far as this is known before capture.

    >>> refuse_early("resnet-50", CaptureOptions(batch=8, sequence=128))
    Traceback (most recent call last):
    nearpeak.errors.SpecError: --sequence 128: resnet-50 reads no text; leave it out
    """
    from nearpeak.frontends.huggingface.published_models import MODELS

    _refuse(source, options, _meaningless(source))
    if options.sequence and source in MODELS and not MODELS[source].reads_text:
        raise SpecError(f"--sequence {options.sequence}: {source} reads no text; leave it out")


def _meaningless(source: str) -> tuple[str, ...]:
    """Return the model options that have no meaning for a source, by its suffix and JSON kind."""
    suffix, kind = Path(source).suffix, json_kind(source)
    if suffix in (".toml", ".jsonl") or kind:
        return (*_OF_LISTS, "step") if kind == "definition" else _OF_LISTS
    if suffix in _LISTS:
        return tuple(name for name in _OF_LISTS if (suffix, name) != (".h", "dtype"))
    if suffix in _OF_FILES:
        return _OF_FILES[suffix]
    hub = source.startswith("hf:")
    return ("training", "autocast", "fusion", "guess_sizes") if hub else ("training", "layers", "guess_sizes")


def _refuse(source: str, options: CaptureOptions, names: Sequence[str]) -> None:
    stated = options.stated()
    for name in names:
        if name in stated:
            option = "--eval" if name == "training" else f"--{name.replace('_', '-')}"
            raise SpecError(f"{source}: {option} has no meaning for it; leave it out")


def json_kind(source: str) -> str:
    """Return the kind of a JSON file: `workload`, `definition`, or empty for model configurations and other files."""
    from nearpeak.exchange.kernel_definition import is_definition
    from nearpeak.frontends.files.saved_workload import is_workload

    path = Path(source)
    if path.suffix != ".json" or not path.is_file():
        return ""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not JSON: {error}") from None
    return "workload" if is_workload(data) else "definition" if is_definition(data) else ""
