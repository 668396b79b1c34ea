"""Capture options shared by the commands, and the capture itself with a progress display."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import typer

from nearpeak.cli.shared.options import bytes_of, progress, seconds_of
from nearpeak.core.work.capture_options import STORED, CaptureOptions
from nearpeak.core.work.engine_choice import ENGINE_FORMATS, ENGINES
from nearpeak.core.work.scheme import SCHEMES
from nearpeak.core.work.stored_formats import CACHES, EXPERTS, WEIGHTS
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError

_SCHEME_NAMES = [name for name in SCHEMES if name not in WEIGHTS]
_ACTIVATIONS = "; ".join(f"{name} takes {', '.join([*kinds][1:])}" for name, kinds in WEIGHTS.items() if len(kinds) > 1)
"""Formats of activations beside the usual one, by format of the weights."""
OPTIONS: dict[str, tuple[Any, Any]] = {
    "step": (str, typer.Option("forward", "--phase", "--step", help="forward (prefill), decode, or train.")),
    "batch": (int | None, typer.Option(None, "--batch", "-b", help="Batch size.")),
    "sequence": (int | None, typer.Option(None, "--sequence", "-s", help="Tokens per sequence.")),
    "kv": (int | None, typer.Option(None, "--kv", help="Cached positions of a decode step.")),
    "layers": (
        int | None, typer.Option(None, "--layers", help="hf:<model type>: most layers of each stack; all by default.")
    ),
    "dtype": (str | None, typer.Option(None, "--dtype", help="Format of weights and activations: bf16, fp16, fp32.")),
    "autocast": (
        str | None, typer.Option(None, "--autocast", help="Lower the step as autocast on a GPU does: bf16 or fp16.")
    ),
    "weights": (
        str | None,
        typer.Option(
            None, "--weights",
            help=f"Weights as stored: {', '.join(WEIGHTS)}; or a scheme by its name: {', '.join(_SCHEME_NAMES)}; "
            f"{EXPERTS}=mxfp4 for those alone.",
        ),
    ),
    "activations": (
        str | None,
        typer.Option(None, "--activations", help=f"With --weights, where not as usual: {_ACTIVATIONS}."),
    ),
    "kv_cache": (
        str | None,
        typer.Option(None, "--kv-cache", help=f"Keys and values of a decode step as stored: {', '.join(CACHES)}."),
    ),
    "fusion": (
        str | None,
        typer.Option(None, "--fusion", help="inductor: calls as TorchInductor would fuse them; forward only."),
    ),
    "guess_sizes": (
        bool,
        typer.Option(
            False, "--guess-sizes",
            help="Problem files: guess extents that are data. ONNX: usual extents of open dimensions.",
        ),
    ),
    "evaluation": (bool, typer.Option(False, "--eval", help="Problem files: all modules in evaluation mode.")),
    "shapes": (
        list[str],
        typer.Option([], "--input-shape", help="ONNX: shape of an input, e.g. x=1,3,640,640. Repeatable."),
    ),
    "input_values": (
        list[str],
        typer.Option([], "--input-value", help="ONNX: value of an input that decides what runs, e.g. sr=16000."),
    ),
    "axes": (
        list[str],
        typer.Option([], "--axis", help="Kernel definition: extent of a variable axis, e.g. m=128. Repeatable."),
    ),
    "engine": (
        str | None,
        typer.Option(
            None, "--engine",
            help=f"Inference engine that runs the step: {' or '.join(ENGINES)}; built in "
            f"{', '.join(ENGINE_FORMATS)} as tensorrt:int8.",
        ),
    ),
    "timeout": (str, typer.Option("600 s", "--timeout", help="Wall time that capturing may take, e.g. '20 s'.")),
    "memory": (str, typer.Option("16 GB", "--memory", help="Memory that capturing may take, e.g. '4 GB'.")),
}  # fmt: skip
"""Type and declaration of each option of a capture on the command line."""
LIMITS = ("timeout", "memory")
SIZES = ("step", "batch", "sequence", "kv")
FORMATS = ("dtype", *STORED)


def takes_capture_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator of commands, whose parameter `options` becomes the options of these names, the limits last."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        own_parameters = list(inspect.signature(command).parameters.values())
        place = [parameter.name for parameter in own_parameters].index("options")
        parameters = [
            *own_parameters[:place], *map(_parameter, names), *own_parameters[place + 1 :], *map(_parameter, LIMITS)
        ]  # fmt: skip

        @functools.wraps(command)
        def run(**values: Any) -> None:
            options = _options_of({name: values.pop(name) for name in (*names, *LIMITS)})
            command(options=options, **values)

        vars(run)["__signature__"] = inspect.Signature(parameters)  # what typer reads
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorated


def _parameter(name: str) -> inspect.Parameter:
    kind, declaration = OPTIONS[name]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=declaration, annotation=kind)


def _options_of(values: dict[str, Any]) -> CaptureOptions:
    """Return the options of a capture that the command line states."""
    training = False if values.pop("evaluation", False) else None
    limits: dict[str, Any] = {
        "timeout_s": seconds_of(values.pop("timeout"), "--timeout", "s"),
        "memory_bytes": bytes_of(values.pop("memory")),
    }
    shapes, axes = shapes_of(values.pop("shapes", [])), axes_of(values.pop("axes", []))
    numbers = input_values_of(values.pop("input_values", []))
    return CaptureOptions(training=training, shapes=shapes, input_values=numbers, axes=axes, **limits, **values)


def shapes_of(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """Return input shapes by name.

    >>> shapes_of(["x=1,3,224,224"])
    {'x': (1, 3, 224, 224)}
    """
    shapes = {}
    for text in texts:
        name, sign, extents = text.partition("=")
        parts = extents.split(",")
        if not sign or not all(part.strip().isdigit() for part in parts):
            raise SpecError(f"--input-shape {text!r}: is not NAME=N,N,…; e.g. x=1,3,640,640")
        shapes[name.strip()] = tuple(int(part) for part in parts)
    return shapes


def input_values_of(texts: list[str]) -> dict[str, tuple[float, ...]]:
    """Return the values of inputs by name; `true` and `false` are 1 and 0.

    >>> input_values_of(["sr=16000", "mask=true,false"])
    {'sr': (16000,), 'mask': (1, 0)}
    """
    values: dict[str, tuple[float, ...]] = {}
    for text in texts:
        name, sign, listed = text.partition("=")
        try:
            numbers = tuple(_number(part) for part in listed.split(","))
        except ValueError:
            numbers = ()
        if not sign or not name.strip() or not numbers:
            raise SpecError(f"--input-value {text!r}: is not NAME=VALUE,VALUE,…; e.g. sr=16000 or training=false")
        values[name.strip()] = numbers
    return values


def _number(text: str) -> float:
    words = {"true": 1, "false": 0}
    word = text.strip().lower()
    if word in words:
        return words[word]
    return int(word) if word.lstrip("+-").isdigit() else float(word)


def axes_of(texts: list[str]) -> dict[str, int]:
    """Return extents by axis.

    >>> axes_of(["m=128"])
    {'m': 128}
    """
    axes = {}
    for text in texts:
        name, _, extent = text.partition("=")
        if not name.strip() or not extent.strip().isdigit():
            raise SpecError(f"--axis {text!r}: is not NAME=EXTENT; e.g. m=128")
        axes[name.strip()] = int(extent)
    return axes


def workload_of(model: str, options: CaptureOptions) -> Workload:
    """Return the workload of the model that the options describe."""
    from nearpeak.api import questions

    with progress(f"capturing {model} (its code runs in a child process)"):
        return questions.capture_with(model, options)
