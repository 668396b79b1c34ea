"""The public functions executed_precision and precision: which number formats a model runs in, and what others give."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.base.input_files import naming, reading
from nearpeak.base.registry import unknown_name
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import MeasureError, NotModelledError, SpecError, error_type

if TYPE_CHECKING:
    from nearpeak.core.work.target import Target
    from nearpeak.core.work.workload import Workload
    from nearpeak.precision.quantisation.executed_products import ExecutedGraph
    from nearpeak.precision.quantisation.precision_table import PrecisionRow, PrecisionTable, SchemeRun, TargetTime


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
        with naming(path):
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


def precision(
    model: str | Path, targets: Sequence["Target"] = (), options: CaptureOptions = CaptureOptions(), *,
    precisions: Sequence[str] = (), schemes: Sequence[str] | None = None, data: Path | None = None,
    labels: Path | None = None, budget_s: float = 0.5, execution: str = "",
) -> "PrecisionTable":  # fmt: skip
    """Return a model at each precision: bound and expected time on targets, and quantised files measured here.

    Args:
        model: a float ONNX file, or anything else that `capture` takes.
        precisions: rows after fp32; all but fp16 unless given.
        schemes: ways of quantising an ONNX file that are run on this CPU; all of the rows' unless given, none for none.
        data: an .npz of examples by input, which calibrates the files.
        labels: an .npy of the right classes, for the accuracy.
        budget_s: time of running each file.
        execution: mode of expected times, `eager`, `graph` or `compiled`; the usual one of the model's source if empty.

    Raises:
        SpecError: the model is quantised already, or data do not fit it.
    """
    from nearpeak.precision.quantisation.narrow_steps import USUAL
    from nearpeak.precision.quantisation.precision_table import PrecisionTable
    from nearpeak.precision.quantisation.precision_verdict import verdicts_of

    wanted = _checked(precisions or USUAL)
    with naming(model), reading(model, "model"):
        steps = _steps(str(model), options, wanted)
    rows = [_row(name, steps, targets, execution) for name in wanted]
    runtime, choice = "", dict[str, str]()
    if Path(model).suffix == ".onnx":
        runs, choice = _runs(Path(model), options, wanted, schemes, data, labels, budget_s)
        rows = [replace(row, runs=tuple(run for run in runs if run.precision == row.precision)) for row in rows]
        runtime = "ONNX Runtime on one thread of this CPU" if runs else ""
    elif data is not None or labels is not None:
        raise SpecError(f"--data, --labels: are for ONNX files, which run here; {model} is none")
    table = PrecisionTable(
        name=Path(model).name,
        targets=tuple(target.name for target in targets),
        rows=tuple(rows),
        runtime=runtime,
        layer_choice=choice or None,
    )
    return replace(table, verdicts=verdicts_of(table))


def _checked(precisions: Sequence[str]) -> tuple[str, ...]:
    from nearpeak.precision.quantisation.narrow_steps import PRECISIONS

    for name in precisions:
        if name not in PRECISIONS:
            raise unknown_name("precision", name, PRECISIONS)
    return tuple(name for name in PRECISIONS if name == "fp32" or name in precisions)


def _steps(model: str, options: CaptureOptions, precisions: Sequence[str]) -> "dict[str, Workload | str]":
    """Return the step at each precision, or why there is none."""
    from nearpeak.api.questions import capture_with
    from nearpeak.frontends.source_types import takes_format
    from nearpeak.precision.quantisation.narrow_steps import NARROW, narrow_step

    is_file = model.endswith(".onnx")
    if not is_file and not takes_format(model):
        raise SpecError("states the formats of its calls itself, so there are no others to compare; give a model")
    plain = capture_with(model, options if is_file else replace(options, dtype="fp32"))
    steps: dict[str, Workload | str] = {"fp32": plain, "tf32": plain}

    def half_of(dtype: str) -> "Workload":
        return _half_file(model, options, dtype) if is_file else capture_with(model, replace(options, dtype=dtype))

    if "fp16" in precisions:
        steps["fp16"] = half_of("fp16")
    if set(precisions) - set(steps):
        half = half_of("bf16")
        steps |= {"bf16": half} | {name: narrow_step(half, name) for name in NARROW if name in precisions}
    return steps


def _half_file(model: str, options: CaptureOptions, dtype: str) -> "Workload":
    """Return the step of an ONNX file in a format of 16 bits."""
    from nearpeak.api.questions import capture_with
    from nearpeak.frontends.onnx.model_shapes import imported_onnx
    from nearpeak.precision.quantisation.half_precision_file import in_half
    from nearpeak.precision.quantisation.optimised_graph import fixed_model

    onnx = imported_onnx()
    try:
        half = in_half(onnx, fixed_model(Path(model), options), dtype)
    except NotModelledError as error:
        raise SpecError(f"{model}: {error}") from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / Path(model).name
        onnx.save(half, str(path))
        sizes = CaptureOptions(timeout_s=options.timeout_s, memory_bytes=options.memory_bytes)
        return capture_with(path, sizes)


def _row(
    name: str, steps: "dict[str, Workload | str]", targets: Sequence["Target"], execution: str
) -> "PrecisionRow":  # fmt: skip
    """Return one precision on all targets."""
    from nearpeak.bounds.step.liveness import occupancy_of
    from nearpeak.precision.quantisation.narrow_steps import convolution_note
    from nearpeak.precision.quantisation.precision_table import PrecisionRow

    step = steps[name]
    if isinstance(step, str):
        return PrecisionRow(precision=name, weight_bytes=None, activation_bytes=None, times=(), reason=step)
    memory = occupancy_of(step).use
    return PrecisionRow(
        precision=name, weight_bytes=memory.weight_bytes, activation_bytes=memory.activation_peak_bytes,
        times=tuple(_time(name, step, target, execution) for target in targets),
        note=convolution_note(step, name),
    )  # fmt: skip


def _time(name: str, step: "Workload", target: "Target", execution: str) -> "TargetTime":
    """Return bound, expected time and energy of a step on a target; what is missing says why."""
    from nearpeak.api.questions import analyze
    from nearpeak.core.answers.bound import Policy
    from nearpeak.core.answers.execution_time import EAGER, GRAPH, HOST
    from nearpeak.judgement.step_answer import energy_of, execution_of, expected_of
    from nearpeak.precision.quantisation.precision_table import TargetTime

    if name == "tf32" and "tensor.tf32" not in target.peaks:
        return TargetTime(target=target.name, bound_s=None, reason="states no rate for TF32")
    try:
        analysis = analyze(step, target, Policy(dtype="tf32" if name == "tf32" else "strict"), execution=execution)
        answer = analysis.targets[0]
    except NotModelledError as error:
        return TargetTime(target=target.name, bound_s=None, reason=str(error).splitlines()[0])
    prediction, expected = answer.prediction, expected_of(analysis, answer)
    if not answer.bound_s:
        return TargetTime(target=target.name, bound_s=None, reason="no operator of it has a rule and a known shape")
    if prediction is None or expected is None:
        return TargetTime(target=target.name, bound_s=answer.bound_s, reason="nothing predicts it")
    modes = {execution.mode: execution.time_s for execution in answer.executions}
    return TargetTime(
        target=target.name, bound_s=answer.bound_s, predicted_s=expected.time_s,
        graph_s=modes.get(GRAPH) if analysis.execution == EAGER and expected.gap_s.get(HOST, 0.0) > 0.0 else None,
        low_s=expected.low_s, high_s=expected.high_s, energy_j=energy_of(analysis, answer),
        execution=analysis.execution if execution_of(analysis, answer) is not None else "",
        reason=f"left out of the expected time: {', '.join(prediction.unpredicted)}" if prediction.unpredicted else "",
    )  # fmt: skip


def _runs(
    path: Path, options: CaptureOptions, precisions: Sequence[str], schemes: Sequence[str] | None,
    data: Path | None, labels: Path | None, budget_s: float,
) -> "tuple[tuple[SchemeRun, ...], dict[str, str]]":  # fmt: skip
    """Return the quantised files of a model as they ran on this CPU, in a process of its own, and a layer choice."""
    from nearpeak.precision.quantisation.precision_table import Accuracy, SchemeRun
    from nearpeak.precision.quantisation.quantised_files import SCHEMES

    for name in schemes or ():
        if name not in SCHEMES:
            raise unknown_name("scheme", name, tuple(SCHEMES))
    chosen = (
        [name for name, scheme in SCHEMES.items() if scheme.precision in precisions] if schemes is None else schemes
    )
    if schemes is not None and not schemes:
        return (), {}
    for file in (data, labels):
        if file is not None and not file.is_file():
            raise SpecError(f"{file}: not found")
    records, choice = isolated(
        "measured_record", path, options, schemes=list(chosen), data=None if data is None else str(data),
        labels=None if labels is None else str(labels), budget_s=budget_s,
    )  # fmt: skip
    return tuple(
        SchemeRun(**{
            **record, "executed": record["executed"] and _graph_of(record["executed"]),
            "accuracy": record["accuracy"] and Accuracy(
                right_ratio=tuple(record["accuracy"]["right_ratio"]), trained=record["accuracy"]["trained"]
            ),
        })
        for record in records
    ), choice  # fmt: skip


def measured_record(
    path: str, options: dict[str, Any], schemes: list[str], data: str | None, labels: str | None, budget_s: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the quantised files of a model, and a layer choice, as plain data; executed in this process."""
    import dataclasses

    from nearpeak.precision.quantisation.measured_files import measured_files

    runs, choice = measured_files(
        Path(path), CaptureOptions(**options), schemes, data=Path(data) if data else None,
        labels=Path(labels) if labels else None, budget_s=budget_s,
    )  # fmt: skip
    return [dataclasses.asdict(run) for run in runs], choice


def training_precision(
    source: str, options: CaptureOptions = CaptureOptions(), *, ptq: Sequence[str] = (), qat: Sequence[str] = (),
    seed_count: int = 5, epoch_count: int = 5,
) -> "PrecisionTable":  # fmt: skip
    """Return the accuracy of a model quantised after training and in training, beside fp32 trained as long.

    The file's code runs in a process of its own, within the limits of `options`.

    Args:
        source: `file.py:function`, whose function takes a seed and returns a mapping with a trained `model`,
            `fit(model, epochs)`, `accuracy(model)` and, where calibrating differs from it, `calibrate(model)`.
        ptq: precisions of quantisation after training: int8, int4, int3, int2.
        qat: precisions of quantisation in training.
        epoch_count: extra epochs of what is trained on, the fp32 control included.

    Raises:
        SpecError: no such function or precision.
        MissingExtraError: nvidia-modelopt is not installed (extra `quantisation`).
    """
    from nearpeak.precision.quantisation.precision_table import Accuracy, PrecisionRow, PrecisionTable
    from nearpeak.precision.quantisation.precision_verdict import accuracy_verdicts_of
    from nearpeak.precision.quantisation.training_trials import WIDTHS

    for name in (*ptq, *qat):
        if name not in WIDTHS:
            raise unknown_name("precision to quantise to", name, tuple(WIDTHS))
    file = Path(source.rpartition(":")[0])
    if not file.is_file():
        raise SpecError(f"{source}: is no FILE.py:FUNCTION of a file that exists")
    records = isolated(
        "trained_record", file, options, source=source, ptq=list(ptq), qat=list(qat), seed_count=seed_count,
        epoch_count=epoch_count,
    )  # fmt: skip
    rows = [
        PrecisionRow(
            precision=name, weight_bytes=None, activation_bytes=None, times=(),
            trained=tuple(
                Accuracy(right_ratio=tuple(accuracy["right_ratio"]), control_ratio=tuple(accuracy["control_ratio"]),
                         trained=accuracy["trained"])
                for accuracy in accuracies
            ),
        )
        for name, accuracies in records.items()
    ]  # fmt: skip
    runtime = f"trained here {seed_count} times, {epoch_count} extra epochs"
    table = PrecisionTable(name=source.rpartition("/")[2], targets=(), rows=tuple(rows), runtime=runtime)
    return replace(table, verdicts=accuracy_verdicts_of(table))


def trained_record(path: str, options: dict[str, Any], source: str, **arguments: Any) -> dict[str, Any]:
    """Return accuracies by precision as plain data; executed in this process."""
    import dataclasses

    from nearpeak.precision.quantisation.training_trials import trained_accuracies

    del path, options  # of the process
    trained = trained_accuracies(source, **arguments)
    return {name: [dataclasses.asdict(accuracy) for accuracy in accuracies] for name, accuracies in trained.items()}
