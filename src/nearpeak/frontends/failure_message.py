"""One-line error messages for exceptions in model code: file, stage, cause and source line."""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nearpeak.errors import CaptureError, NearpeakError
from nearpeak.frontends.torch.call_attribution import shown_path
from nearpeak.frontends.torch.storages import NESTED

_OWN = str(Path(__file__).parents[1])
_VALUE_ERRORS = ("DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode")
_SPARSE = re.compile(r"storage of Sparse\w*Impl")
_QUANTISED = re.compile(r"quantized(::|_decomposed::| nyi)|Quantized(CPU|CUDA)")
_QUANTISED_ADVICE = (
    "capture knows plain ones: quantise with torchao, or hold int8 weights and scales in buffers; linear layers and "
    "convolutions of torch.ao are captured"
)
_NESTED = re.compile(r"_nested_tensor|NestedTensor|NestedInt")
_NO_MEMORY = (
    "can't allocate memory", "Cannot allocate memory", "not enough memory", "error return without exception set",
)  # fmt: skip


@contextmanager
def stage(subject: str, what: str, file: Path | None = None) -> Iterator[None]:
    """Add the stage to errors that the block raises.

    Args:
        subject: model or file, as the user knows it.
        what: what was running, e.g. `forward`.
        file: the user's file, whose line is named if it is in the traceback.
    """
    try:
        yield
    except NearpeakError:
        raise
    except Exception as error:
        raise CaptureError(failure(subject, what, error, file)) from error


def failure(subject: str, what: str, error: BaseException, file: Path | None = None) -> str:
    """Return the one-line message for `error`."""
    line = _line(error, file)
    at = f" ({line})" if line else ""
    if type(error).__name__ in _VALUE_ERRORS:
        operator = _first_line(error).split(",")[0]
        return (
            f"{subject}: {what} decides something from the values of a tensor ({operator}){at}; capture knows shapes, "
            "not values: make the decision from a shape or a constant, or let extents be guessed (guess_sizes)"
        )
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY):
        return f"{subject}: {what} ran out of memory{at}; give more with --memory"
    if isinstance(error, NotImplementedError) and _SPARSE.search(str(error)):
        return f"{subject}: {what} uses a sparse tensor{at}; capture knows dense ones: pass indices and values apart"
    reason = str(error).split("This could be because")[0]  # what follows lists kinds of tensor that do not occur
    if _QUANTISED.search(str(error)):
        return f"{subject}: {what} uses tensors of PyTorch's own quantised formats{at}; {_QUANTISED_ADVICE}"
    if _NESTED.search(reason):
        return f"{subject}: {what} uses a nested tensor{at}; {NESTED}"
    text = _first_line(error)
    return f"{subject}: {what} raised {type(error).__name__}{': ' + text if text else ''}{at}"


def _first_line(error: BaseException) -> str:
    """Return the first nonblank line of the message, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    return text if len(text) <= 300 else text[:299] + "…"


def _line(error: BaseException, file: Path | None) -> str:
    """Return the innermost line of the user's file, or of any file outside PyTorch and nearpeak."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    shown_line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if file is not None and Path(frame.filename) == file:
            shown_line = f"{file.name}:{frame.lineno}"
        elif file is None and not frame.filename.startswith((_OWN, "<")):
            shown = shown_path(frame.filename)
            shown_line = f"{shown}:{frame.lineno}" if shown and not shown.startswith("torch/") else shown_line
    return shown_line
