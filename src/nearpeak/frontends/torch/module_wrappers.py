"""Unwrapping of compiled, data-parallel, exported and scripted modules."""

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nearpeak.frontends.torch.fake_tensors import faked, faked_module


def opened(source: Any) -> Any:
    """Return the module or function that `source` wraps, or itself.

    Compilation (`torch.compile`) and `DataParallel` change how a module is run, not what it computes; an
    `ExportedProgram` holds a module. `DistributedDataParallel` stays, as its collectives are part of the step.
    """
    import torch

    while True:
        if hasattr(source, "_orig_mod"):
            source = source._orig_mod
        elif hasattr(source, "_torchdynamo_orig_callable"):
            source = source._torchdynamo_orig_callable
        elif isinstance(source, torch.nn.DataParallel):
            source = source.module
        elif isinstance(source, torch.export.ExportedProgram):
            return source.module()
        else:
            return source


def faked_copy(mode: Any, module: Any) -> Any:
    """Return a copy of `module` whose tensors have no memory; scripted modules keep their tensors outside Python."""
    import torch

    if not isinstance(module, torch.jit.ScriptModule):
        return faked_module(mode, module)
    twin = copy.deepcopy(module)
    for part in twin.modules():
        for name, tensor in list(part.named_parameters(recurse=False)):
            setattr(part, name, torch.nn.Parameter(faked(mode, tensor.detach()), tensor.requires_grad))
        for name, tensor in list(part.named_buffers(recurse=False)):
            setattr(part, name, faked(mode, tensor))
    return twin


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """Run compiled functions as they are written, and scripted ones without rewriting, while the block runs."""
    import torch

    if "torch._dynamo" in sys.modules:  # else nothing can be compiled yet, and importing it takes a second
        with torch.compiler.set_stance("force_eager"), torch.jit.optimized_execution(False):
            yield
    else:
        with torch.jit.optimized_execution(False):
            yield
