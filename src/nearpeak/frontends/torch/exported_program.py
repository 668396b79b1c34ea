"""Capture of a `torch.export` archive (.pt2) with the example inputs that it was exported with."""

from pathlib import Path

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import CaptureError, SpecError
from nearpeak.frontends.failure_message import stage
from nearpeak.frontends.torch.fake_tensors import require_torch
from nearpeak.frontends.torch.module_capture import capture_torch


def capture_exported(source: str | Path, options: CaptureOptions = CaptureOptions()) -> Workload:
    """Return the workload of an exported program; it is loaded in this process, so prefer `capture_isolated`.

    Raises:
        SpecError: there is no such file, or a mode is stated: that was fixed when the program was exported.
        CaptureError: the file is no such archive, or holds no example inputs.
    """
    torch, path = require_torch(), Path(source)
    if not path.is_file():
        raise SpecError(f"{path}: no such file; give an archive that torch.export.save wrote")
    if options.training is not None:
        raise SpecError(f"{path}: an exported program stays in the mode that it was exported in; leave --eval out")
    with stage(str(path), "reading the archive"):
        program = torch.export.load(path)
    if program.example_inputs is None:
        raise CaptureError(f"{path}: it holds no example inputs; load it and give them: capture(program, inputs=…)")
    args, kwargs = program.example_inputs
    return capture_torch(program, (args, kwargs), options, name=path.stem, origin={"file": path.name})
