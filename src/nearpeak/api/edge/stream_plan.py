"""Plans of sensor streams on a board: predicted times of copies and models, the schedule, and its power modes."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from nearpeak.api.questions import analyze, capture, device_of
from nearpeak.base.registry import unknown_name
from nearpeak.core.answers.prediction import Prediction
from nearpeak.core.edge.stream_answer import PlannedStreams
from nearpeak.core.edge.stream_rig import SCHEDULES
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.edge.rig_file import StagePrices, rig_of, stated_modes
from nearpeak.systems.edge.stream_schedule import compare_modes, plan_streams


class ModelTime(NamedTuple):
    """Time of one inference on a board."""

    time_s: float
    """Expected."""
    high_s: float
    """High end of the 90 % interval."""
    bound_s: float
    """Least, in any number of kernels."""


def plan_rig(
    path: Path, target: str | Target, *, schedule: str = "streams", compares_modes: bool = False,
    is_pessimistic: bool = False, engine: str = "",
) -> PlannedStreams:  # fmt: skip
    """Return whether the streams of a rig file meet their deadlines on a board, and what they wait for.

    Args:
        compares_modes: whether every power mode of the board is judged and the least that is proved is named.
        is_pessimistic: whether predicted times are the high ends of their intervals.
        engine: inference engine that runs the models, `tensorrt:int8`; kernels as captured without one.

    Raises:
        SpecError: the file is malformed, the schedule unknown, or the board has no power modes to compare.
    """
    if schedule not in SCHEDULES:
        raise unknown_name("schedule", schedule, SCHEDULES)
    board = device_of(target)
    mode = board.name.partition(":")[2]
    rig = rig_of(path, _prices(board, is_pessimistic, engine), mode, is_compared=compares_modes)
    planned = replace(plan_streams(rig, board.name, schedule), notes=_notes(path, board))
    if not compares_modes:
        return planned
    stated = stated_modes(path)
    modes = [name for name in mode_names(board) if stated is None or name.partition(":")[2] in stated]
    rows, least = compare_modes(
        [(name, device_of(name).power_w) for name in modes],
        lambda name: rig_of(
            path, _prices(device_of(name), is_pessimistic, engine), name.partition(":")[2], is_compared=True
        ),
        schedule,
    )  # fmt: skip
    return replace(planned, modes=rows, least_mode=least)


def _notes(path: Path, board: Target) -> tuple[str, ...]:
    """Return what predicted times of accelerators rest on."""
    from nearpeak.systems.edge.dla_engine import INTERVAL_RATIO, MEMORY_RATIO, dla_unit
    from nearpeak.systems.edge.rig_file import predicts_accelerators
    from nearpeak.units import show

    if not predicts_accelerators(path):
        return ()
    unit = dla_unit(board.name)
    return (
        f"A model on a DLA takes its int8 products at {show(unit.op_per_s, 'OP/s')} ({unit.source}), then its bytes at "
        f"{MEMORY_RATIO:.0%} of the memory rate; within a factor of {INTERVAL_RATIO:g} for three measured networks.",
    )


def mode_names(board: Target) -> tuple[str, ...]:
    """Return the power modes of a board as names of targets, the board without a mode last.

    Modes of an older software release, which carry its number after `@`, are those of boards that were asked for so.

    Raises:
        SpecError: it states none.

    >>> from nearpeak.targets import target_of
    >>> mode_names(target_of("jetson_agx_orin:30W"))
    ('jetson_agx_orin:15W', 'jetson_agx_orin:30W', 'jetson_agx_orin:50W', 'jetson_agx_orin')
    """
    from nearpeak.targets import TARGETS

    stem, _, mode = board.name.partition(":")
    release = mode.partition("@")[2]
    rows = TARGETS[stem].get("partition", {}) if stem in TARGETS else {}
    names = [f"{stem}:{name}" for name, row in rows.items() if "clock" in row and name.partition("@")[2] == release]
    if not names:
        raise SpecError(f"--modes: {stem} states no power modes; leave it out, or name a board that has some")
    return (*names, stem)


def _prices(board: Target, is_pessimistic: bool, engine: str) -> StagePrices:
    """Return the predicted times on a board."""
    from nearpeak.ops import case
    from nearpeak.prediction.case_prediction import predict_case

    def copy_s(size_bytes: int) -> float:
        if not size_bytes:
            return 0.0
        predicted: Prediction = predict_case(case("copy", elements=size_bytes, read=size_bytes, dtype="int8"), board)
        return predicted.high_s if is_pessimistic else predicted.time_s

    def model_s(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> float:
        times = model_time(path, board, tuple(sorted(shapes.items())), engine)
        return times.high_s if is_pessimistic else times.time_s

    def dla_s(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> float:
        from nearpeak.systems.edge.dla_engine import dla_time

        times = dla_time(_captured(path.resolve(), tuple(sorted(shapes.items())), ""), board)
        return times.high_s if is_pessimistic else times.time_s

    return StagePrices(copy_s, model_s, dla_s)


def model_time(
    path: Path, board: Target, shapes: tuple[tuple[str, tuple[int, ...]], ...], engine: str = ""
) -> ModelTime:  # fmt: skip
    """Return the expected time of one inference, submitted as a graph, and its bound.

    Raises:
        NotModelledError: none of its operators can be predicted.
    """
    analysis = analyze(_captured(path.resolve(), shapes, engine), board, execution="graph")
    answer = analysis.targets[0]
    times = next((row for row in answer.executions if row.mode == "graph"), answer.prediction)
    if times is None:
        raise NotModelledError(f"{path}: none of its operators can be predicted on {board.name}")
    return ModelTime(times.time_s, times.high_s, answer.bound_s)


@lru_cache(maxsize=64)
def _captured(path: Path, shapes: tuple[tuple[str, tuple[int, ...]], ...], engine: str) -> Workload:
    return capture(path, shapes=dict(shapes), engine=engine or None)
