"""Importer of nvbench's JSON (`--json`, `--jsonbin`) with samples from its binary sidecar files; one run per device."""

from pathlib import Path

import numpy as np

from nearpeak.base.input_files import bytes_of_file
from nearpeak.core.history.stored_run import TIME, Device, Metric, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.store.foreign_runs import ForeignRun, Rows, foreign
from nearpeak.store.json_tree import Tree

_VERSION = 2
_HOST = Metric(name="host_time", unit="s")
_SAMPLES, _CLOCKS = "file/sample_times", "file/sample_freqs"
_MEANS = (("nv/cold/time/gpu/mean", "cold", TIME), ("nv/cold/time/cpu/mean", "cold", _HOST),
          ("nv/batch/time/gpu/mean", "batch", TIME))  # fmt: skip


def _read(tree: Tree, path: Path) -> tuple[ForeignRun, ...]:
    """Return a run for each device; of states without a sample file the means are imported, with a note."""
    devices = {int(device.get("id").number()): device for device in tree.get("devices").each()}
    samples: dict[int, list[SampleSet]] = {number: [] for number in devices}
    rows = Rows(tree)
    for benchmark in tree.get("benchmarks").each():
        for state in benchmark.get("states").each():
            with rows.guarded():
                number = int(state.get("device").number())
                if number not in samples:
                    raise SpecError(f"{state.where}: device {number} is not among those of the file")
                samples[number] += _state(benchmark.get("name").text(), state, path)
    devices_by_id = {number: _device(device) for number, device in devices.items()}
    # The commit that the file states is that of nvbench, not of the measured code.
    version = tree.get("meta").get("version").get("nvbench").get("string").text()
    lost = (*rows.lost([entry for sets in samples.values() for entry in sets]), *tree.lost())
    return tuple(
        ForeignRun(
            device=devices_by_id[number], samples=tuple(sets), stack=(("nvbench", version),), lost=lost,
            selector=f"device={number}",
        )
        for number, sets in samples.items()
        if sets
    )  # fmt: skip


def _state(benchmark: str, state: Tree, path: Path) -> list[SampleSet]:
    axes = {
        entry.get("name").text(): entry.get("value").plain()
        for entry in (state.maybe("axis_values") or Tree([], "")).each()
    }
    label = " ".join([benchmark, *(f"{name}={value}" for name, value in axes.items())])
    common = {"case": f"nvbench:{label}", "label": label, "parameters": axes, "workload": benchmark}
    skipped = state.get("is_skipped")
    skipped.skip()
    if skipped.raw is True:
        reason = state.maybe("skip_reason")
        bed = Testbed(name="nvbench", policy={"mode": "cold"})
        note = reason.text() if reason else "it was skipped"
        return [SampleSet(**common, metric=TIME, testbed=bed, values=(), outcome="unsupported", note=note)]  # type: ignore[arg-type]
    summaries = {entry.get("tag").text(): entry for entry in state.get("summaries").each()}
    files = {hint.text(): entry for entry in summaries.values() if (hint := entry.maybe("hint")) is not None}
    sets = []
    for tag, mode, metric in _MEANS:
        if tag not in summaries:
            continue
        mean = _value(summaries[tag]).positive()
        whole = tag == _MEANS[0][0] and _SAMPLES in files
        values = _floats(files[_SAMPLES], path) if whole else (mean,)
        clocks = _floats(files[_CLOCKS], path) if whole and _CLOCKS in files else ()
        sets.append(
            SampleSet(
                **common, metric=metric, testbed=Testbed(name="nvbench", policy={"mode": mode}), values=values,  # type: ignore[arg-type]
                note="" if whole else "summary: the mean alone is known",
                clock_hz=float(np.mean(clocks)) if clocks else None,
            )
        )  # fmt: skip
    if not sets:
        raise SpecError(f"{state.where}: neither a cold nor a batch time is among its summaries")
    return sets


def _value(summary: Tree, name: str = "value") -> Tree:
    for entry in summary.get("data").each():
        if entry.get("name").text() == name:
            return entry.get("value")
    raise SpecError(f"{summary.where}: its data hold no {name!r}")


def _floats(summary: Tree, path: Path) -> tuple[float, ...]:
    """Return the samples of a binary file, little-endian float32; it must be in the folder of the JSON and complete."""
    name, count = _value(summary, "filename").text(), int(_value(summary, "size").number())
    folder = path.resolve().parent
    places = [folder / name, folder / f"{path.name}-bin" / Path(name).name]
    inside = [candidate for candidate in places if candidate.resolve().is_relative_to(folder) and candidate.is_file()]
    if not inside:
        raise SpecError(f"{summary.where}: its samples {name[:80]!r} are not in the folder of {path.name}")
    data = bytes_of_file(inside[0])
    if count < 1 or len(data) != 4 * count:
        raise SpecError(f"{inside[0]}: holds {len(data)} bytes where {count} samples of 4 belong")
    values = np.frombuffer(data, "<f4").astype(float)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise SpecError(f"{inside[0]}: holds samples that are not positive and finite")
    return tuple(values.tolist())


def _device(entry: Tree) -> Device:
    architecture = entry.maybe("sm_version")
    ecc = entry.maybe("ecc_state")
    return Device(
        name=entry.get("name").text(), vendor="NVIDIA",
        architecture=f"sm_{int(architecture.number()) // 10}" if architecture else "",
        settings=(("ecc", str(ecc.plain())),) if ecc else (),
    )  # fmt: skip


IMPORTER = foreign(
    "nvbench",
    "nvbench --json and --jsonbin",
    _VERSION,
    _read,
    marks=('"meta"', '"devices"', '"benchmarks"'),
    never=('"machine_info"', '"context"'),
)
