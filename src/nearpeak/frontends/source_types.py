"""Capture of a source by the frontend of its kind (file, model name, callable), which refuses unfit options."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, json_value, text_of_file
from nearpeak.core.work.capture_options import STORED, CaptureOptions
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.stored_formats import WIDE_FORMAT, cache_format, weight_format
from nearpeak.core.work.workload import Workload
from nearpeak.errors import CaptureError, MissingExtraError, NearpeakError, SpecError
from nearpeak.exchange.file_kinds import HEAD_BYTES, described
from nearpeak.frontends.child_capture import PRELOAD, WITH_TRANSFORMERS, capture_isolated

_ONNX = "nearpeak.frontends.onnx.onnx_file:capture_onnx"
_LISTS = (".txt", ".log", ".h")
"""Suffixes of files that list operators with their arguments."""


@border("workload")
def captured(source: str, options: CaptureOptions) -> Workload:
    """Return the workload of a file or a named model."""
    path, suffix = Path(source), Path(source).suffix
    refuse_other_kind(path)
    kind = json_kind(source)
    if options.axes and kind != "definition":
        raise SpecError(f"{source}: axes can be given for kernel definitions (.json) only")
    if suffix in (".py", ".pt2", *_LISTS, ".onnx", ".toml", ".jsonl", ".json") and not path.exists():
        raise SpecError(f"{source}: not found")
    if suffix in (".pt", ".pth", ".ts"):
        raise SpecError(
            f"{source}: does not state its inputs; load it in Python and call nearpeak.capture(module, inputs=…)"
        )
    if (options.shapes or options.input_values) and suffix != ".onnx":
        raise SpecError(f"{source}: input shapes and values can be given for ONNX files only")
    _refuse(source, options, _meaningless(source))
    if kind == "definition":
        return capture_isolated("nearpeak.frontends.files.definition_capture:capture_definition", source, options)
    if suffix == ".onnx":
        if options.step != "forward":
            raise SpecError(f"{source}: an ONNX file holds the forward step only, got step {options.step!r}")
        return _named(source, _ONNX, options, preload=(_ONNX.partition(":")[0], "onnx"))
    if suffix in (*_LISTS, ".toml", ".jsonl") or kind in ("chakra", "workload"):
        return _stored(_listed(path, options, kind), options)
    refuse_narrow(source, options)
    return _stored(_executed(source, _wide(options)), options)


_COMPUTED = ("fp64", "fp32", "bf16", "fp16")


def refuse_narrow(source: str, options: CaptureOptions) -> None:
    """Refuse a format in which no model computes its whole step, and a cache of a step that keeps none.

    >>> refuse_narrow("llama-3-8b", CaptureOptions(dtype="fp8"))
    Traceback (most recent call last):
    nearpeak.errors.SpecError: llama-3-8b: --dtype fp8: a whole step runs in fp32, bf16 or fp16; for weights stored in
    fp8 give --weights fp8
    """
    if options.kv_cache is not None and options.step != "decode":
        raise SpecError(f"{source}: --kv-cache {options.kv_cache}: a decode step alone has one; give --phase decode")
    if options.dtype is None or dtype_of(options.dtype).name in _COMPUTED:
        return
    raise SpecError(
        f"{source}: --dtype {options.dtype}: a whole step runs in fp32, bf16 or fp16; for weights stored in "
        f"{options.dtype} give --weights {options.dtype}"
    )


def _wide(options: CaptureOptions) -> CaptureOptions:
    """Return the options of the step before its weights and caches are stored in narrower formats."""
    if not options.narrow_formats:
        return options
    return dataclasses.replace(options, dtype=WIDE_FORMAT, weights=None, activations=None, kv_cache=None)


def _stored(workload: Workload, options: CaptureOptions) -> Workload:
    """Return the step with weights and caches in the formats that the options state."""
    from nearpeak.frontends.quantisation.narrow_cache import with_narrow_cache
    from nearpeak.frontends.quantisation.quantised_weights import with_quantised_weights

    if options.weights is not None:
        workload = with_quantised_weights(workload, weight_format(options.weights, options.activations))
    return workload if options.kv_cache is None else with_narrow_cache(workload, cache_format(options.kv_cache))


_READ = (".py", ".pt", ".pth", ".ts", ".pt2", ".onnx")
"""Suffixes of programs and models, which say what they are when they are loaded."""
_TEXTS = (*_LISTS, ".toml", ".jsonl", ".json")


def refuse_other_kind(path: Path) -> None:
    """Refuse a file of another kind than models, workloads and lists of operators, and say what to give instead.

    Raises:
        SpecError: the file is there, and its bytes or the end of its name tell another kind, or none.
    """
    if not path.is_file() or path.suffix in _READ:
        return
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    is_json = head.lstrip()[:1] in (b"{", b"[")
    if (words := described(head, path.name)) and not (is_json and json_kind(str(path))):
        raise SpecError(f"{path}: {words}")
    if not head.strip():
        raise SpecError(f"{path}: is empty")
    if path.suffix not in _TEXTS:
        raise SpecError(
            f"{path}: is of no kind that is known; give a profiler's trace, a model's name or config.json, a problem"
            " file, ONNX, .pt2, or a list of operators (.txt)"
        )


def _listed(path: Path, options: CaptureOptions, kind: str) -> Workload:
    """Return the workload of a file that lists operators or cases: a log, a trace of operators, a sweep, a workload."""
    if path.suffix in (".toml", ".jsonl"):
        from nearpeak.frontends.files.sweep import capture_sweep

        return capture_sweep(path)
    if kind == "chakra":
        from nearpeak.frontends.files.chakra_trace import capture_chakra

        return capture_chakra(path)
    if kind == "workload":
        from nearpeak.frontends.files.saved_workload import load_text

        return load_text(text_of_file(path), path.name)
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
    from nearpeak.frontends.torch.module_capture import Existing, capture_torch

    if inputs is None:
        raise SpecError("capture: a callable needs inputs=(tensor, …), its positional arguments")
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (inputs, {})
    args = args if isinstance(args, tuple) else (args,)
    is_module = hasattr(source, "named_parameters")
    name = type(source).__name__ if is_module else getattr(source, "__name__", "callable")
    if is_jax(source, (args, kwargs)):
        _refuse(name, options, ("training", "dtype", *STORED, "autocast", "fusion", "guess_sizes"))
        return capture_jax(source, args, kwargs, name=name, step=options.step)
    module = source if is_module else Existing(function=source)
    return _stored(capture_torch(module, (args, kwargs), _wide(options), name=name), options)


def _executed(source: str, options: CaptureOptions) -> Workload:
    """Return the workload of a source whose code runs during capture: a problem file, an archive or a model."""
    name, frontend, preload = source, "huggingface.architecture:capture_architecture", WITH_TRANSFORMERS
    if source.startswith("hf:"):
        name, frontend = source.removeprefix("hf:"), "huggingface.model_type:capture_model_type"
    elif Path(source).suffix == ".py":
        frontend = "torch.problem_file:capture_problem"
        text = Path(source).read_text(encoding="utf-8", errors="replace") if Path(source).is_file() else ""
        preload = WITH_TRANSFORMERS if "transformers" in text else PRELOAD
    elif Path(source).suffix == ".pt2":
        frontend, preload = "torch.exported_program:capture_exported", PRELOAD
    if preload is WITH_TRANSFORMERS and Path(source).suffix != ".py":
        if (step := _library_step(source, options)) is not None:
            return step
        _require_packages(source)
    return _named(source, f"nearpeak.frontends.{frontend}", options, name=name, preload=preload)


def shipped_step(source: str, options: CaptureOptions) -> Workload | None:
    """Return a step that comes with nearpeak, weights and caches stored as the options state; none where it does not.

    >>> shipped_step("llama-3-8b", CaptureOptions(step="decode", weights="fp8", kv_cache="fp8")).name
    'llama-3-8b'
    """
    refuse_narrow(source, options)
    step = _library_step(source, _wide(options))
    return None if step is None else _stored(step, options)


def _library_step(source: str, options: CaptureOptions) -> Workload | None:
    """Return the step that comes with nearpeak, unless other releases of what captured it are installed."""
    from nearpeak.frontends.huggingface.published_inputs import check_cache
    from nearpeak.frontends.huggingface.step_library import contents_of, covers_model, library_step

    name = _shipped_name(source)
    if not covers_model(name):
        return None
    check_cache(options)
    captured_with = contents_of(name)[0].versions
    if all(find_spec(package) for package in captured_with):
        installed = {package: version(package).partition("+")[0] for package in captured_with}
        if any(installed[package] != known.partition("+")[0] for package, known in captured_with.items()):
            return None
    return library_step(name, options)


def _shipped_name(source: str) -> str:
    """Return the name of the model whose dimensions come with nearpeak; empty where they do not."""
    from nearpeak.frontends.huggingface.published_models import published

    if Path(source).suffix == ".json" or Path(source).is_dir():
        return ""
    with suppress(NearpeakError):
        return published(source).name
    return ""


def _require_packages(source: str) -> None:
    """Refuse a model whose packages are absent before a process is started, and say what answers without them."""
    from nearpeak.frontends.huggingface.step_library import covers_model, extent_in_words
    from nearpeak.frontends.huggingface.transformer_models import shape_of

    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if not missing:
        return
    hint = ""
    name = _shipped_name(source)
    if covers_model(name):
        hint = f"; without them answers what comes with nearpeak: {extent_in_words(name)}"
    else:
        with suppress(NearpeakError):
            shape_of(source)
            hint = f"; from its dimensions alone answers 'nearpeak plan serve {source} --on h200_sxm --concurrency 1'"
    raise MissingExtraError(
        f"{source}: capturing it needs {' and '.join(missing)}; install them with: pip install 'nearpeak[hf]'{hint}"
    )


def _named(
    source: str, frontend: str, options: CaptureOptions, *, name: str = "", preload: Sequence[str] = PRELOAD
) -> Workload:
    """Return the workload that a frontend makes in a child process; its errors name the source.

    Args:
        name: how the frontend knows the source, where otherwise.
    """
    try:
        return capture_isolated(frontend, name or source, options, preload=preload)
    except (SpecError, CaptureError) as error:
        if Path(source).name in str(error):
            raise
        raise type(error)(f"{source}: {error}") from None


_OF_MODELS = ("sequence", "kv", "layers", "training", "dtype", "autocast", "fusion", "guess_sizes")
_OF_LISTS = ("batch", *_OF_MODELS, *STORED)
_OF_FILES: Mapping[str, tuple[str, ...]] = {
    ".onnx": (*(name for name in _OF_MODELS if name != "guess_sizes"), *STORED),
    ".py": ("batch", "sequence", "kv", "layers", "kv_cache"),
    ".pt2": ("batch", "sequence", "kv", "layers", "guess_sizes", *STORED),
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
    if not json_kind(source):
        refuse_narrow(source, options)
    if options.sequence and source in MODELS and not MODELS[source].reads_text:
        raise SpecError(f"--sequence {options.sequence}: {source} reads no text; leave it out")


def takes_format(source: str) -> bool:
    """Return whether a source can be captured in another number format; lists of cases state their own.

    >>> takes_format("llama-3-8b"), takes_format("sweep.toml")
    (True, False)
    """
    return "dtype" not in _meaningless(source)


def _meaningless(source: str) -> tuple[str, ...]:
    """Return the model options that have no meaning for a source, by its suffix and JSON kind."""
    suffix, kind = Path(source).suffix, json_kind(source)
    if suffix in (".toml", ".jsonl") or kind:
        names = (*_OF_LISTS, "step") if kind == "definition" else _OF_LISTS
        return tuple(name for name in names if kind != "workload" or name not in STORED)
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
    """Return the kind of a JSON file: `workload`, `definition`, `chakra`; empty for model configurations and others."""
    path = Path(source)
    if path.suffix != ".json" or not path.is_file():
        return ""
    from nearpeak.exchange.kernel_definition import is_definition
    from nearpeak.frontends.files.chakra_trace import is_chakra
    from nearpeak.frontends.files.saved_workload import is_workload

    text = text_of_file(path)
    try:
        data = json_value(text)
    except ValueError as error:
        raise SpecError(f"{path}: not JSON: {error}") from None
    tests = {"workload": is_workload, "definition": is_definition, "chakra": is_chakra}
    return next((kind for kind, test in tests.items() if test(data)), "")
