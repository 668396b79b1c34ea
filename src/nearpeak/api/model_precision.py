"""The public functions executed_precision and precision: which number formats a model runs in, and what others give."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import MeasureError, SpecError, error_type

if TYPE_CHECKING:
    from nearpeak.precision.quantisation.executed_products import ExecutedGraph


def executed_precision(path: str | Path, options: CaptureOptions = CaptureOptions()) -> "ExecutedGraph":
    """Return in which number formats the products of a model, a profile or an engine are formed.

    An ONNX file is optimised by ONNX Runtime for this CPU, in a process of its own, and run once.

    Args:
        options: sizes of open inputs of an ONNX file, and limits of the process.

    Raises:
        SpecError: the file is missing, or of no kind that is read.
        MeasureError: the runtime refuses the model.
    """
    from nearpeak.precision.quantisation.recorded_products import executed_recording

    file = Path(path)
    if not file.is_file():
        raise SpecError(f"{path}: not found")
    if file.suffix == ".onnx":
        return _graph_of(isolated("executed_record", file, options))
    if file.suffix != ".json":
        raise SpecError(f"{path}: is read as an ONNX file (.onnx), or as a profile or layers of an engine (.json)")
    return executed_recording(file)


def isolated(function: str, path: Path, options: CaptureOptions, **arguments: Any) -> Any:
    """Return what a function of this module gives in a process of its own, within the limits of `options`."""
    from nearpeak.base.isolation import call_isolated

    ending = call_isolated(
        f"{__name__}:{function}", {"path": str(path), "options": options.record(), **arguments},
        timeout_s=options.timeout_s, memory_bytes=options.memory_bytes,
    )  # fmt: skip
    if ending.verdict == "result":
        return ending.value
    if ending.verdict == "error":
        raise error_type(ending.value[0], MeasureError)(ending.value[1])
    why = {
        "timeout": f"it did not end within {options.timeout_s:g} s (--timeout)", "died": "it ended its process",
        "memory": "it took too much memory (--memory)",
    }  # fmt: skip
    reason = ": ".join(ending.value).splitlines()[0] if ending.verdict == "raised" else why[ending.verdict]
    raise MeasureError(f"{path}: {reason}")


def executed_record(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the executed precision of an ONNX file as plain data; executed in this process."""
    import dataclasses

    from nearpeak.precision.quantisation.optimised_graph import executed_file

    return dataclasses.asdict(executed_file(Path(path), CaptureOptions(**options)))


def _graph_of(record: dict[str, Any]) -> "ExecutedGraph":
    from nearpeak.precision.quantisation.executed_products import ExecutedGraph, ExecutedProduct

    return ExecutedGraph(**{**record, "products": tuple(ExecutedProduct(**row) for row in record["products"])})
