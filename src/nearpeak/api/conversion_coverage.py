"""The public functions coverage and engine_coverage: which parts of a model a backend converts, at what cost."""

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import naming, reading
from nearpeak.conversion.converted_parts import Conversion
from nearpeak.conversion.engine_parts import EngineCoverage
from nearpeak.core.runs.measurement import Fallback, Timing
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.target import Target
from nearpeak.errors import MeasureError, SpecError, error_type


def coverage(
    model: Path, runner: str, timing: Timing = Timing(), *, without: tuple[str, ...] = (), least_count: int = 1
) -> Conversion:
    """Return which nodes of `model` the runner converts, why not the others, and what the pieces cost.

    The model runs in a process of its own.

    Args:
        model: an ONNX file for `onnxruntime`, a problem file for `torch_compile`.
        without: operator types of an ONNX model that are left out, as if they did not convert.
        least_count: nodes that a piece of an ONNX model must have to be converted.

    Raises:
        MeasureError: it crashed its process, or did not end in time.
    """
    from nearpeak.base.isolation import call_isolated

    kinds = {"onnxruntime": ".onnx", "torch_compile": ".py"}
    if runner not in kinds:
        raise SpecError(f"coverage: runner {runner!r} converts no models; choose {' or '.join(kinds)}")
    if model.suffix != kinds[runner]:
        raise SpecError(f"{model}: {runner} converts {kinds[runner]} files")
    if not model.is_file():
        raise SpecError(f"{model}: not found")
    path, preload = model.resolve(), ()  # type: Path, tuple[str, ...]
    if runner == "onnxruntime":
        from nearpeak.api.questions import capture
        from nearpeak.ops import work_of

        calls = [call for call in capture(path).calls if call.case is not None]
        node_flop = {
            c.source.partition("#")[2]: c.call_count * int(sum(work_of(c.case).flop.values())) for c in calls if c.case
        }
        function, arguments = "nearpeak.api.conversion_coverage:onnx_conversion_record", {
            "path": str(path), "flop": node_flop, "without": without, "least_count": least_count,
        }  # fmt: skip
    elif without or least_count > 1:
        raise SpecError("coverage: only onnxruntime leaves parts out on request")
    else:
        function, arguments = "nearpeak.api.conversion_coverage:torch_conversion_by_rules", {"path": str(path)}
        preload = ("torch._inductor.compile_fx",)
    ending = call_isolated(
        function, arguments, timeout_s=timing.limit_s, memory_bytes=timing.memory_bytes, preload=preload
    )
    if ending.verdict == "result":
        record = dict(ending.value)
        record["placed"] = tuple((name, count) for name, count in record["placed"])
        rows = (Fallback(**{**row, "reason": row["reason"].replace(str(path), str(model))}) for row in record["ledger"])
        conversion = Conversion(**{**record, "ledger": tuple(rows)})
        return _with_formats(conversion, model) if runner == "onnxruntime" else conversion
    if ending.verdict == "error":
        raise error_type(ending.value[0], MeasureError)(ending.value[1].replace(str(path), str(model)))
    why = {
        "timeout": f"it did not end within {timing.limit_s:g} s (--limit)", "died": "it ended its process",
        "memory": "it took too much memory (--memory)",
    }  # fmt: skip
    reason = ": ".join(ending.value).splitlines()[0] if ending.verdict == "raised" else why[ending.verdict]
    raise MeasureError(f"{model}: {reason.replace(str(path), str(model))}")


def _with_formats(conversion: Conversion, model: Path) -> Conversion:
    """Return a conversion with the number formats in which the runtime forms the products of the whole model."""
    from nearpeak.api.model_precision import executed_precision

    try:
        graph = executed_precision(model)
    except (MeasureError, SpecError):
        return conversion  # a model that does not run as a whole has no optimised graph
    formats = tuple((name, count, graph.share_ratio(name)) for name, count in graph.precisions.items())
    loose = graph.quantise_count + graph.dequantise_count
    return dataclasses.replace(conversion, executed=formats, loose_count=loose)


def engine_coverage(
    model: Path, engine: str, targets: Sequence[str | Target], *, table: Path | None = None,
    options: CaptureOptions = CaptureOptions(), without: tuple[str, ...] = (), least_count: int = 1,
    worth_s: float = 0.0,
) -> EngineCoverage:  # fmt: skip
    """Return what an engine that need not be installed takes of a model, and what the rest costs on each device.

    Nothing is executed. Where the engine is installed in this version, its parser answers instead of the table.

    Args:
        model: an ONNX file, or a problem file, which PyTorch exports in a process of its own; for engines that take
            programs of PyTorch a problem file, or an archive of `torch.export.save`.
        engine: name and version, `tensorrt:10.1`.
        table: capability table of the user's own, in place of the one that comes with nearpeak.
        without: operator types that are treated as denied.
        least_count: least nodes of an engine.
        worth_s: time of a run that a plug-in must save to pay.

    Raises:
        SpecError: the engine is unknown, the table malformed, or the file missing or with an open input.
        CaptureError: the file is not a sound ONNX model.
    """
    from nearpeak.api.questions import device_of
    from nearpeak.conversion.capability_table import ATEN, table_of
    from nearpeak.conversion.engine_conversion import engine_conversion
    from nearpeak.conversion.exported_graph import SUFFIXES, exported_graph
    from nearpeak.conversion.installed_engine import refused_nodes

    capabilities = table_of(engine, table)
    devices = [device_of(target) for target in targets]
    if not model.is_file():
        raise SpecError(f"{model}: not found")
    for device in devices if capabilities.devices else ():
        if device.kind not in capabilities.devices:
            kinds = " or ".join(capabilities.devices)
            raise SpecError(f"--target {device.name}: is a {device.kind}; {capabilities.name} runs on a {kinds}")
    question: dict[str, Any] = {"without": without, "least_count": least_count, "worth_s": worth_s}
    if capabilities.operators == ATEN:
        if model.suffix not in SUFFIXES:
            raise SpecError(
                f"{model}: {capabilities.name} takes programs of PyTorch; give a problem file (.py) or an archive of "
                "torch.export.save (.pt2)"
            )
        return engine_conversion(
            exported_graph(model, options, capabilities.preserved), capabilities, devices, **question
        )
    with naming(model), _as_onnx(model, options) as path, reading(model, "ONNX model"):
        answer = engine_conversion(
            path, capabilities, devices, options, **question,
            installed=None if table is not None else refused_nodes(capabilities, path),
        )  # fmt: skip
    return dataclasses.replace(answer, model=model.name)


@contextmanager
def _as_onnx(model: Path, options: CaptureOptions) -> Iterator[Path]:
    """Give the ONNX file of a model; a problem file is exported by PyTorch, in a process of its own."""
    if model.suffix != ".py":
        yield model
        return
    from nearpeak.base.isolation import call_isolated

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{model.stem}.onnx"
        ending = call_isolated(
            "nearpeak.api.conversion_coverage:export_problem", {"path": str(model.resolve()), "file": str(path)},
            timeout_s=options.timeout_s, memory_bytes=options.memory_bytes,
        )  # fmt: skip
        if ending.verdict == "error":
            raise error_type(ending.value[0], MeasureError)(ending.value[1])
        if ending.verdict != "result":
            reason = ": ".join(map(str, ending.value)).splitlines() if ending.verdict == "raised" else [ending.verdict]
            raise MeasureError(f"{model}: the export to ONNX ended with {reason[0]}")
        yield path


def export_problem(path: str, file: str) -> bool:
    """Write the model of a problem file as an ONNX file, in this process."""
    import torch

    from nearpeak.conversion.onnx_conversion import problem_of
    from nearpeak.measurement.machine.onnx_session import exported_module

    model, inputs = problem_of(Path(path))
    Path(file).write_bytes(exported_module(torch, model, inputs))
    return True


def onnx_conversion_record(path: str, **arguments: Any) -> dict[str, Any]:
    """Return what ONNX Runtime takes of a model, in this process, as plain data."""
    from nearpeak.conversion.onnx_conversion import onnx_conversion

    return dataclasses.asdict(onnx_conversion(Path(path), **arguments))


def torch_conversion_by_rules(path: str) -> dict[str, Any]:
    """Return what torch.compile takes of a problem file, in this process; rules of operators count the arithmetic."""
    from nearpeak.conversion.onnx_conversion import torch_conversion

    return dataclasses.asdict(torch_conversion(Path(path), _flop_by_rules))


def _flop_by_rules(run: Callable[[], Any]) -> dict[str, int]:
    """Call `run` and return the arithmetic of each operator of PyTorch in it, as far as rules cover them."""
    from nearpeak.frontends.torch.profiled_calls import run_and_recorded
    from nearpeak.ops import work_of

    flop_counts: dict[str, int] = {}
    for name, calls in run_and_recorded(run):
        flop = sum(call.call_count * int(sum(work_of(call.case).flop.values())) for call in calls if call.case)
        flop_counts[name] = flop_counts.get(name, 0) + flop
    return flop_counts
