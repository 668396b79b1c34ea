"""Quantised files of one ONNX model, run side by side on this CPU: time, executed formats, size and accuracy."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.input_files import check_file, reading
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.frontends.onnx.model_shapes import imported_onnx
from nearpeak.measurement.machine.onnx_session import runtime_or_refusal
from nearpeak.precision.quantisation.executed_products import executed_graph
from nearpeak.precision.quantisation.expected_runtime import expected_s
from nearpeak.precision.quantisation.layer_choice import layer_choice
from nearpeak.precision.quantisation.optimised_graph import fixed_model, plain_nodes, quiet_options, read_nodes
from nearpeak.precision.quantisation.precision_table import Accuracy, SchemeRun
from nearpeak.precision.quantisation.quantised_files import MIXED, SCHEMES, Feeds, write_quantised
from nearpeak.precision.quantisation.runtime_timing import random_feeds, shortest_s

ROUNDS = 5
"""Turns of each file: files take turns, so that other load falls on all of them alike."""
CALIBRATION_COUNT = 8
"""Most batches that calibrate activations."""


def measured_files(
    path: Path, options: CaptureOptions, schemes: Sequence[str], *, data: Path | None = None,
    labels: Path | None = None, budget_s: float = 0.5,
) -> tuple[tuple[SchemeRun, ...], dict[str, str]]:  # fmt: skip
    """Return the model as it is and quantised by each scheme, measured on one thread of this CPU, and a layer choice.

    The choice is the precision of each product that is expected to be fastest in sum; empty where shapes are unknown.

    Args:
        data: an .npz with an array of examples for each input; it calibrates, and random numbers do without it.
        labels: an .npy with the right class of each example.
        budget_s: time of running each file.

    Raises:
        SpecError: data or labels that do not fit the model.
    """
    onnx, runtime = imported_onnx(), runtime_or_refusal("precision")
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "fp32.onnx"
        model = onnx.shape_inference.infer_shapes(_with_names(fixed_model(path, options)))
        onnx.save(model, str(plain))
        choice = layer_choice(model, plain_nodes(onnx, runtime, model))
        examples = None if data is None else _examples(runtime, plain, data)
        right = None if labels is None else _labels(labels, examples)
        batches = _batches(runtime, plain, examples)
        runs = [SchemeRun(scheme="fp32", text="as it is", precision="fp32")]
        files = {"fp32": plain}
        for name in schemes:
            left_out = choice.left_out if name == MIXED and choice is not None else ()
            if name == MIXED and not left_out:  # the same as all of it
                continue
            files[name] = Path(folder) / f"{name}.onnx"
            reason = write_quantised(plain, files[name], name, batches[:CALIBRATION_COUNT], left_out)
            scheme = SCHEMES[name]
            runs.append(SchemeRun(scheme=name, text=scheme.text, precision=scheme.precision, reason=reason))
        looked = [run if run.reason else _looked_at(onnx, runtime, files[run.scheme], run) for run in runs]
        timed = _timed(runtime, files, looked, batches[0], budget_s)
        if right is not None:
            timed = [
                run if run.reason else _with_accuracy(runtime, files[run.scheme], run, batches, right) for run in timed
            ]  # fmt: skip
    return tuple(timed), {} if choice is None else dict(choice.products)


def _with_names(model: Any) -> Any:
    """Return the model with a name of its own for every node, as a choice of nodes needs them."""
    seen = set[str]()
    for place, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{place}"
        seen.add(node.name)
    return model


def _looked_at(onnx: Any, runtime: Any, path: Path, run: SchemeRun) -> SchemeRun:
    """Return a run with what the runtime makes of its file, and the time expected of that."""
    try:
        nodes = read_nodes(onnx, runtime, onnx.load(str(path)), str(path))
        graph = executed_graph(path.name, f"ONNX Runtime {runtime.__version__} on this CPU", nodes)
    except NearpeakError as error:
        return replace(run, reason=str(error).partition(": ")[2])
    return replace(run, executed=graph, file_bytes=path.stat().st_size, expected_s=expected_s(nodes))


def _timed(
    runtime: Any, files: Mapping[str, Path], runs: Sequence[SchemeRun], feeds: Feeds, budget_s: float
) -> list[SchemeRun]:
    """Return the runs with the shortest time of each, taken in turns."""
    sessions = {run.scheme: _session(runtime, files[run.scheme]) for run in runs if not run.reason}
    best_s = dict.fromkeys(sessions, float("inf"))
    for _ in range(ROUNDS):
        for name, session in sessions.items():
            time_s = shortest_s(lambda session=session: session.run(None, feeds), budget_s / ROUNDS)  # type: ignore[misc]
            best_s[name] = min(best_s[name], time_s)
    return [run if run.reason else replace(run, measured_s=best_s[run.scheme]) for run in runs]


def _session(runtime: Any, path: Path) -> Any:
    return runtime.InferenceSession(str(path), quiet_options(runtime), providers=["CPUExecutionProvider"])


def _examples(runtime: Any, path: Path, data: Path) -> dict[str, Any]:
    """Return the arrays of an .npz by input, cast to what the model takes."""
    stored = _stored(f"--data {data}", data, ".npz of arrays")
    if not hasattr(stored, "files"):
        raise SpecError(f"--data {data}: holds one array; save one per input with numpy.savez")
    inputs = {item.name: item for item in _session(runtime, path).get_inputs()}
    if set(stored.files) != set(inputs):
        raise SpecError(f"--data {data}: holds {', '.join(stored.files)}; the model takes {', '.join(inputs)}")
    examples = {}
    for name, item in inputs.items():
        with reading(f"--data {data}: {name!r}", "numbers"):
            array = stored[name]
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise SpecError(
                f"--data {data}: {name!r} holds {array.dtype}; numbers are right, none infinite or not a number"
            )
        if array.shape[1:] != tuple(item.shape[1:]) or len(array) < item.shape[0]:
            got, wanted = (" × ".join(map(str, shape)) for shape in (array.shape, item.shape))
            raise SpecError(f"--data {data}: {name!r} is {got}; the model takes {wanted}, examples first")
        examples[name] = array
    if len({len(array) for array in examples.values()}) != 1:
        raise SpecError(f"--data {data}: its arrays hold different numbers of examples")
    return examples


def _labels(path: Path, examples: Mapping[str, Any] | None) -> Any:
    """Return the right classes of the examples."""
    if examples is None:
        raise SpecError("--labels: needs the examples that they belong to; give --data")
    labels = _stored(f"--labels {path}", path, ".npy of classes")
    if hasattr(labels, "files"):
        raise SpecError(f"--labels {path}: holds arrays by name; save the one of the classes with numpy.save")
    count = len(next(iter(examples.values())))
    if labels.ndim != 1 or len(labels) != count or not np.issubdtype(labels.dtype, np.integer):
        raise SpecError(
            f"--labels {path}: is {' × '.join(map(str, labels.shape))} of {labels.dtype}; {count} whole numbers are "
            "wanted, one class for each example"
        )
    if labels.min(initial=0) < 0:
        raise SpecError(f"--labels {path}: holds class {labels.min()}; classes are counted from 0")
    return labels


def _stored(where: str, path: Path, kind: str) -> Any:
    """Return what a NumPy file holds, without objects."""
    check_file(path, where)
    with reading(where, kind):
        return np.load(path, allow_pickle=False)


def _batches(runtime: Any, path: Path, examples: Mapping[str, Any] | None) -> list[Feeds]:
    """Return the examples in batches of the model's size; random ones where there are none."""
    session = _session(runtime, path)
    drawn = [random_feeds(session, seed) for seed in range(2)]
    if None in drawn:
        raise SpecError(f"{path.name}: has inputs of a format that cannot be drawn; give --data")
    if examples is None:
        return [feeds for feeds in drawn if feeds is not None]
    first = drawn[0] or {}
    size = next(iter(first.values())).shape[0]
    count = len(next(iter(examples.values()))) // size
    return [
        {name: np.ascontiguousarray(array[at * size : (at + 1) * size]).astype(first[name].dtype)
         for name, array in examples.items()}
        for at in range(count)
    ]  # fmt: skip


def _with_accuracy(runtime: Any, path: Path, run: SchemeRun, batches: Sequence[Feeds], labels: Any) -> SchemeRun:
    """Return a run with its accuracy: the largest of each row of the first output is the answer."""
    session = _session(runtime, path)
    answers = [np.asarray(session.run(None, feeds)[0]) for feeds in batches]
    class_count = answers[0].size // len(answers[0])
    if labels.max() >= class_count:
        raise SpecError(f"--labels: holds class {labels.max()}; the model tells {class_count} classes apart, from 0")
    predicted = np.concatenate([answer.reshape(len(answer), -1).argmax(1) for answer in answers])
    right = float((predicted == labels[: len(predicted)]).mean())
    return replace(run, accuracy=Accuracy(right_ratio=(right,), trained="" if run.scheme == "fp32" else "ptq"))
