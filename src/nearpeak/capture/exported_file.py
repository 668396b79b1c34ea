"""Captures a `torch.export` archive (.pt2) with the example inputs that it was exported with."""

from pathlib import Path

from nearpeak.capture._failure import stage
from nearpeak.capture._fake import require_torch
from nearpeak.capture.torch_dispatch import capture_torch
from nearpeak.core.workload import Workload
from nearpeak.errors import CaptureError, SpecError


def capture_exported(
    path: Path,
    *,
    step: str = "forward",
    training: bool | None = None,
    dtype: str | None = None,
    autocast: str | None = None,
    fusion: str | None = None,
) -> Workload:
    """Return the workload of an exported program; it is loaded in this process, so prefer `run_isolated`.

    Args:
        step: `forward`, or `train` for forward, backward and optimizer.
        training: has no meaning for a program whose mode was fixed when it was exported; refused.

    Raises:
        SpecError: there is no such file, or `training` is given.
        CaptureError: the file is no such archive, or holds no example inputs.
    """
    torch = require_torch()
    if not path.is_file():
        raise SpecError(f"{path}: no such file; give an archive that torch.export.save wrote")
    if training is not None:
        raise SpecError(f"{path}: an exported program stays in the mode that it was exported in; leave --eval out")
    with stage(str(path), "reading the archive"):
        program = torch.export.load(path)
    if program.example_inputs is None:
        raise CaptureError(f"{path}: it holds no example inputs; load it and give them: capture(program, inputs=…)")
    args, kwargs = program.example_inputs
    return capture_torch(
        program,
        (args, kwargs),
        name=path.stem,
        step=step,
        dtype=dtype,
        autocast=autocast,
        fusion=fusion,
        origin={"file": path.name},
    )
