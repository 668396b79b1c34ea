"""`nearpeak amp`: what mixed precision is expected to gain, said before anyone tries it."""

import shutil
import sys
from functools import partial

import typer

from nearpeak.cli import _shared as shared
from nearpeak.cli._capture import workload_of
from nearpeak.errors import SpecError
from nearpeak.units import parse


def amp(
    model: str = typer.Argument(
        help="Model name, hf:<model type>, config.json, or problem file: what can be captured in fp32 and lowered."
    ),
    target: list[str] = shared.TARGET,
    autocast: str = typer.Option("bf16", "--autocast", help="Format that autocast lowers to: bf16 or fp16."),
    step: str = shared.STEP,
    batch: int | None = shared.BATCH,
    sequence: int | None = shared.SEQUENCE,
    kv: int | None = shared.KV,
    layers: int | None = shared.LAYERS,
    host: str = typer.Option(
        "4 us", "--host", help="Time of an eager host for each operator, e.g. '4 us'; '0 s' for none."
    ),
    evaluation: bool = shared.EVAL,
    guess_sizes: bool = shared.GUESS,
    edits: list[str] = shared.EDITS,
    timeout: float = shared.TIMEOUT,
    memory: str = shared.MEMORY,
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:
    """Say whether autocast will pay on a GPU: speed-up by operator and step, every cast, and the TF32 trap.

    The step is captured in fp32, lowered as `torch.autocast("cuda")` lowers it, and converted as a whole. An fp32
    baseline may run in TF32 already: convolutions do by default, matrix products do not; both are shown.
    """
    from nearpeak.analyze.mixed_precision import verdict_of
    from nearpeak.report import precision
    from nearpeak.theory.mixed_precision import mixed_precision_of

    if json and text:
        raise SpecError("--json and --text: exclude each other; give one")
    devices, fixed_s = shared.targets_of(target, edits), parse(host, "s")
    take = partial(
        workload_of, model, step=step, batch=batch, sequence=sequence, kv=kv, layers=layers, fusion=None,
        guess_sizes=guess_sizes, evaluation=evaluation, shapes=[], axes=[], timeout_s=timeout, memory=memory,
    )  # fmt: skip
    baseline, lowered = take(dtype="fp32", autocast=None), take(dtype="fp32", autocast=autocast)
    converted = take(dtype=autocast, autocast=None)
    as_json = json or not (text or shared.on_terminal())
    for device in devices:
        alone = mixed_precision_of(baseline, lowered, device, converted)
        eager = mixed_precision_of(baseline, lowered, device, fixed_s=fixed_s)
        verdict = verdict_of(alone, eager)
        if as_json:
            sys.stdout.write(precision.to_json(alone, eager, verdict) + "\n")
        else:
            width = shutil.get_terminal_size().columns
            shown = precision.to_terminal(alone, eager, verdict, colour=shared.coloured(), width=width)
            sys.stdout.write(shown)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(amp)
