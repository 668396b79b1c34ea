"""Unwrapping of compiled, data-parallel, exported and scripted modules."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nearpeak.frontends.caller_state.loan import Loan
from nearpeak.frontends.torch.fake_tensors import is_faked


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


def lent(loan: Loan, module: Any, mode: Any) -> Any:
    """Return a module whose tensors have no memory; what existed before the capture is put back with the loan."""
    import torch

    if not loan.is_existing and is_faked(module, mode):
        return module
    if not isinstance(module, torch.nn.parallel.DistributedDataParallel):  # its reducer holds the real tensors
        return loan.lend(module)
    bucket_mb = module.bucket_bytes_cap / 2**20
    return type(module)(loan.lend(module.module), process_group=module.process_group, bucket_cap_mb=bucket_mb)


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
