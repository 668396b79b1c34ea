"""What runs in the process of a capture: the first imports, and the call whose errors become one line."""

import importlib
from collections.abc import Mapping
from typing import Any

from nearpeak.capture._failure import failure
from nearpeak.errors import CaptureError, NearpeakError


def warm_up() -> None:
    """Import PyTorch and everything that its first capture would import; without it the child says what is missing."""
    import torch

    from nearpeak.capture.torch_dispatch import capture_torch

    importlib.import_module("torch._dynamo")  # optimizers import it at their first step
    torch.set_num_threads(1)
    capture_torch(lambda: torch.nn.Linear(4, 4), lambda: ((torch.rand(2, 4),), {}), name="warm-up")


def told(function: str, arguments: Mapping[str, Any], subject: str) -> Any:
    """Return what `function` returns; whatever it raises becomes an error of nearpeak that names `subject`."""
    try:
        module, name = function.split(":")
        return getattr(importlib.import_module(module), name)(**arguments)
    except NearpeakError:
        raise
    except SystemExit as error:
        raise CaptureError(f"{subject}: it called sys.exit({error.code!r}) while being captured") from None
    except BaseException as error:
        raise CaptureError(failure(subject, "capture", error)) from error
