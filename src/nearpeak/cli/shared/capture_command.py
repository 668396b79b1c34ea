"""Capture options shared by the commands, and the capture itself with a progress display."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import typer

from nearpeak.cli.shared.options import bytes_of, progress
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError

OPTIONS: dict[str, tuple[Any, Any]] = {
    "step": (str, typer.Option("forward", "--phase", "--step", help="forward (prefill), decode, or train.")),
    "batch": (int | None, typer.Option(None, "--batch", "-b", help="Batch size.")),
    "sequence": (int | None, typer.Option(None, "--sequence", "-s", help="Tokens per sequence.")),
    "kv": (int | None, typer.Option(None, "--kv", help="Cached positions of a decode step.")),
    "layers": (
        int | None, typer.Option(None, "--layers", help="hf:<model type>: most layers of each stack; all by default.")
    ),
    "dtype": (str | None, typer.Option(None, "--dtype", help="Format of weights and activations, e.g. bf16.")),
    "autocast": (
        str | None, typer.Option(None, "--autocast", help="Lower the step as autocast on a GPU does: bf16 or fp16.")
    ),
    "fusion": (
        str | None,
        typer.Option(None, "--fusion", help="inductor: calls as TorchInductor would fuse them; forward only."),
    ),
    "guess_sizes": (
        bool,
        typer.Option(
            False, "--guess-sizes", help="Problem files: guess extents that are data, and count the guesses."
        ),
    ),
    "evaluation": (bool, typer.Option(False, "--eval", help="Problem files: all modules in evaluation mode.")),
    "shapes": (
        list[str],
        typer.Option([], "--input-shape", help="ONNX: shape of an input, e.g. x=1,3,640,640. Repeatable."),
    ),
    "axes": (
        list[str],
        typer.Option([], "--axis", help="Kernel definition: extent of a variable axis, e.g. m=128. Repeatable."),
    ),
    "timeout": (float, typer.Option(600.0, "--timeout", min=0.1, help="Seconds that capturing may take.")),
    "memory": (str, typer.Option("16 GB", "--memory", help="Memory that capturing may take, e.g. '4 GB'.")),
}  # fmt: skip
"""Type and declaration of each option of a capture on the command line."""
LIMITS = ("timeout", "memory")
SIZES = ("step", "batch", "sequence", "kv")


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
    limits = {"timeout_s": values.pop("timeout"), "memory_bytes": bytes_of(values.pop("memory"))}
    shapes, axes = shapes_of(values.pop("shapes", [])), axes_of(values.pop("axes", []))
    return CaptureOptions(training=training, shapes=shapes, axes=axes, **limits, **values)


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
