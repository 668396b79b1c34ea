"""Capture of a KernelBench-style problem file: class Model, get_inputs() and get_init_inputs()."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import CaptureError, SpecError
from nearpeak.frontends.failure_message import stage
from nearpeak.frontends.huggingface.pretrained_stub import wants_pretrained, without_downloads
from nearpeak.frontends.torch.module_capture import capture_torch

_MODULE = "nearpeak_problem"


def capture_problem(path: str | Path, options: CaptureOptions = CaptureOptions()) -> Workload:
    """Return the workload of a problem file; its code runs in this process, so prefer `capture_isolated`.

    Without a stated mode modules stay in the one in which the file builds them, as the convention does: training, but
    for pretrained models, which come in evaluation mode.

    Raises:
        SpecError: there is no such file.
        CaptureError: the file lacks a part of the convention, or its code raised.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise SpecError(f"{path}: no such file; give a Python file with class Model and get_inputs()")
    loaded: list[ModuleType] = []
    pretrained = wants_pretrained(file.read_text(encoding="utf-8", errors="replace"))

    def build() -> Any:
        with stage(str(path), "reading the file", file):
            module = _loaded(file)
        loaded.append(module)
        for part in ("Model", "get_inputs"):
            if not hasattr(module, part):
                raise CaptureError(f"{path}: it has no {part}; a problem file defines class Model and get_inputs()")
        with stage(str(path), "get_init_inputs()", file):
            args, kwargs = _arguments(getattr(module, "get_init_inputs", list)())
        with stage(str(path), "Model()", file):
            return module.Model(*args, **kwargs)

    def inputs() -> tuple[Any, Any]:
        with stage(str(path), "get_inputs()", file):
            return _arguments(loaded[0].get_inputs())

    with _importable(file.parent), without_downloads() if pretrained else nullcontext():
        return capture_torch(
            build, inputs, options, name=file.stem, as_built=options.training is None and options.step != "train",
            origin={"file": file.name}, folder=file.parent,
        )  # fmt: skip


def _arguments(stated: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments; the convention gives a list, some files a dictionary."""
    if isinstance(stated, dict):
        return (), stated
    return (tuple(stated) if isinstance(stated, (list, tuple)) else (stated,)), {}


def _loaded(file: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(_MODULE, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[_MODULE] = module  # dataclasses and inspect look it up
    specification.loader.exec_module(module)
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the file import its neighbours, and forget it afterwards; no cache file is left beside it."""
    before, writes = list(sys.path), sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.path[:] = before
        sys.dont_write_bytecode = writes
        sys.modules.pop(_MODULE, None)
