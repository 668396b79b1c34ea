"""Importer of MLPerf training logs; the score is run_stop − run_start."""

from pathlib import Path

from nearpeak.core.history.stored_run import TIME, Device, Metric, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.exchange.mlperf_lines import MARK, marked_lines
from nearpeak.store.foreign_runs import ForeignRun, foreign
from nearpeak.store.json_tree import Tree

_VERSION = 1
_INIT = Metric(name="init_time", unit="s")
_THROUGHPUT = Metric(name="throughput", unit="1/s", direction="higher", kind="throughput")
_PARAMETERS = ("global_batch_size", "submission_division", "gradient_accumulation_steps")
"""Parameters that distinguish the cases of a benchmark."""
_READ = {"run_start", "run_stop", "init_start", "init_stop", "tracked_stats", "submission_benchmark",
         "submission_platform", *_PARAMETERS}  # fmt: skip
"""Events that are read."""


def events_of(data: bytes, name: str) -> Tree:
    """Return the events of a log as one document; the mark may stand anywhere in a line.

    Raises:
        SpecError: a marked line holds no event, as where the log was cut off.
    """
    rows = []
    for number, row in marked_lines(data.decode("utf-8", "replace")):
        if isinstance(row, str):
            raise SpecError(f"{name}:{number}: {row}")
        rows.append(row)
    return Tree({"events": rows}, name)


def _read(tree: Tree, _path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the log; one that was aborted has no time."""
    events: dict[str, list[Tree]] = {}
    for event in tree.get("events").each():
        events.setdefault(event.get("key").text(), []).append(event)
    start_ms, stop = _one(events, "run_start", tree).get("time_ms").number(), _one(events, "run_stop", tree)
    stop_ms = stop.get("time_ms").number()
    if stop_ms <= start_ms:
        raise SpecError(f"{stop.where}: run_stop is not after run_start")
    benchmark = _value(events, "submission_benchmark", tree)
    status = stop.maybe("metadata")
    ended = status.get("status").text() if status and status.has("status") else "success"
    parameters = {
        key: cell.plain()
        for key in _PARAMETERS
        if key in events and (cell := events[key][-1].maybe("value")) is not None
    }
    good = ended == "success"
    label = " ".join([benchmark, *(f"{key}={value}" for key, value in parameters.items())])
    common = {"case": f"mlperf:{label}", "label": label, "parameters": parameters, "workload": benchmark,
              "testbed": Testbed(name="mlperf training")}  # fmt: skip
    run = SampleSet(
        **common, metric=TIME, values=((stop_ms - start_ms) * 1e-3,) if good else (),  # type: ignore[arg-type]
        outcome="budget" if good else "failed", note="" if good else f"the run ended as {ended}",
    )  # fmt: skip
    more = [SampleSet(**common, metric=metric, values=values) for metric, values in _more(events) if good]  # type: ignore[arg-type]
    return (
        ForeignRun(
            device=Device(name=_value(events, "submission_platform", tree)), samples=(run, *more),
            started_ns=int(start_ms * 1e6), lost=tuple(sorted(events.keys() - _READ)),
        ),
    )  # fmt: skip


def _more(events: dict[str, list[Tree]]) -> list[tuple[Metric, tuple[float, ...]]]:
    """Return the time of initialisation and the throughputs on the way, where the log has them."""
    metrics: list[tuple[Metric, tuple[float, ...]]] = []
    if "init_start" in events and "init_stop" in events:
        ends = [events[key][-1].get("time_ms").number() for key in ("init_start", "init_stop")]
        if ends[1] > ends[0]:
            metrics.append((_INIT, ((ends[1] - ends[0]) * 1e-3,)))
    values = [value for event in events.get("tracked_stats", []) if (value := event.maybe("value")) is not None]
    rates = tuple(value.get("throughput").positive() for value in values if value.has("throughput"))
    return [*metrics, (_THROUGHPUT, rates)] if rates else metrics


def _one(events: dict[str, list[Tree]], key: str, tree: Tree) -> Tree:
    """Return the last event of a key: a log that was started twice holds the run that counts last."""
    if key not in events:
        raise SpecError(f"{tree.where}: the event {key!r} is missing")
    return events[key][-1]


def _value(events: dict[str, list[Tree]], key: str, tree: Tree) -> str:
    return _one(events, key, tree).get("value").text()


IMPORTER = foreign("mlperf", "MLPerf, training log", _VERSION, _read, marks=(MARK,), tree_of=events_of)
