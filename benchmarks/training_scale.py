"""Score predicted training steps of many devices against published ones, by source and GPU.

python -m benchmarks.training_scale [ROWS.parquet] [--source NAME] [--rows NAME]: rows of the schema of ../shared/scale.
`--rows` prints each row of one source. vTrain's two host times are fitted on half of its models, scored on the other.
"""

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks._figures import Figure
from benchmarks._training_rows import NOISE, TrainingCase, UnansweredError, target_name, training_case
from nearpeak.api.training.training_time import training_time
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.stack import Stack
from nearpeak.core.systems.training_answer import TrainingAnswer
from nearpeak.errors import NearpeakError
from nearpeak.systems.training.stack_files import stack_of
from nearpeak.systems.training.stack_fit import fit_stack
from nearpeak.targets.clusters import cluster_of

FIGURES = (
    "training_vtrain_mean", "training_vtrain_p90", "training_bridge_h100_median", "training_bridge_b200_median",
    "training_foundry_median", "training_foundry_p90", "training_korthikanti_mean", "training_refused",
)  # fmt: skip
_DATA = Path(__file__).parents[2] / "shared" / "scale" / "train.parquet"
_FITTED = ("vtrain",)
"""Sources whose two host times are fitted, on halves by model."""
_RACK, _USED = 72, 64
_FIT_ROWS = 30
"""Most rows of a half that a fit looks at, spread over it."""


def measure() -> Iterator[Figure]:
    """Yield the errors of the sources that have bars, and the rows of those sources that are refused."""
    cases, _ = _cases(pq.read_table(_DATA).to_pylist())
    refused = 0

    def errors(source: str, gpu: str = "") -> Any:
        nonlocal refused
        answers, failed = _answers(source, [case for case in cases[source] if gpu in ("", case.row["gpu"])])
        refused += failed.total()
        return np.array([abs(answer.step_s / case.measured_s - 1) for case, answer in answers])

    found = errors("vtrain")
    yield _percent("training_vtrain_mean", found.mean(), 6)
    yield _percent("training_vtrain_p90", np.quantile(found, 0.9), 13)
    for gpu in ("h100", "b200"):
        yield _percent(f"training_bridge_{gpu}_median", np.median(errors("megatron-bridge", f"{gpu}_sxm")), 8)
    found = errors("llm-foundry")
    yield _percent("training_foundry_median", np.median(found), 6)
    yield _percent("training_foundry_p90", np.quantile(found, 0.9), 15)
    yield _percent("training_korthikanti_mean", errors("korthikanti2022").mean(), 6)
    yield Figure(name="training_refused", value=refused, unit="rows", bar="0", passed=refused == 0)


def _percent(name: str, ratio: float, most: float) -> Figure:
    value = 100 * float(ratio)
    return Figure(name=name, value=value, unit="%", bar=f"<= {most} %", passed=value <= most)


def main() -> None:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=_DATA)
    parser.add_argument("--rows", default="")
    parser.add_argument("--source", default="", help="Score this source alone.")
    options = parser.parse_args()
    start_s = time.process_time()
    rows = pq.read_table(options.file).to_pylist()
    cases, refused = _cases([row for row in rows if not options.source or row["source"] == options.source])
    for source in sorted({*cases, *refused}):
        answers, failed = _answers(source, cases.get(source, ()))
        _print_source(source, answers, refused.get(source, Counter()) + failed)
        if options.rows == source:
            _print_rows(answers)
    sys.stdout.write(f"{time.process_time() - start_s:.1f} CPU s\n")


def _cases(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[TrainingCase]], dict[str, Counter[str]]]:
    """Return the questions by source, and the reasons of the rows that are none."""
    cases: dict[str, list[TrainingCase]] = defaultdict(list)
    refused: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row["quality"] != "ok" or row["kind"] != "train":
            continue
        try:
            cases[row["source"]].append(training_case(row))
        except UnansweredError as reason:
            refused[row["source"]][str(reason)] += 1
    return cases, refused


Answered = list[tuple[TrainingCase, TrainingAnswer]]


def _answers(source: str, cases: Sequence[TrainingCase]) -> tuple[Answered, "Counter[str]"]:
    """Return the predicted steps of a source; those of a fitted source by the half that was not fitted."""
    answers, failed = list[tuple[TrainingCase, TrainingAnswer]](), Counter[str]()
    stacks = {"": None, **_fitted(source, cases)}
    for case in cases:
        stack = stacks.get(case.group) or stack_of(case.stack)
        try:
            answers.append((case, _answer(case, stack)))
        except NearpeakError as error:
            failed[str(error)[:90]] += 1
    return answers, failed


def _answer(case: TrainingCase, stack: Stack) -> TrainingAnswer:
    return training_time(case.shape, case.plan, _cluster(case), stack)


def _cluster(case: TrainingCase) -> Cluster:
    """Return the cluster of a row; of racks of 72 devices jobs of several racks use 64."""
    cluster = cluster_of(f"{int(case.row['n_gpus'])}x{target_name(case.row)}", case.fabric)
    inner, *outer = cluster.fabric.tiers
    if inner.device_count != _RACK or cluster.device_count <= _RACK:
        return cluster
    tiers = (replace(inner, device_count=_USED), *outer)
    return replace(cluster, fabric=replace(cluster.fabric, tiers=tiers))


def _fitted(source: str, cases: Sequence[TrainingCase]) -> dict[str, Stack]:
    """Return the stack of each model, fitted on the models of the other half."""
    if source not in _FITTED or not cases:
        return {}
    models = sorted({case.group for case in cases})
    stacks = dict[str, Stack]()
    for place in (0, 1):
        others = [case for case in cases if models.index(case.group) % 2 != place]
        some = others[:: max(len(others) // _FIT_ROWS, 1)]
        if not some:
            continue
        fit = fit_stack(
            stack_of(some[0].stack), [case.measured_s for case in some],
            lambda stack, some=some: [_answer(case, stack).step_s for case in some], f"half of {source}",
        )  # fmt: skip
        half = [model for model in models if models.index(model) % 2 == place]
        sys.stdout.write(
            f"{source}: {fit.stack.launch_s * 1e6:.1f} us per kernel, {fit.stack.micro_batch_s * 1e3:.2f} ms per "
            f"micro-batch from {len(some)} rows of the other models; for {', '.join(half)}\n"
        )
        stacks |= dict.fromkeys(half, fit.stack)
    return stacks


def _print_source(source: str, answers: Answered, refused: "Counter[str]") -> None:
    """Print the errors of a source by GPU, and its refusals by reason."""
    sys.stdout.write(f"\n{source} (noise: {NOISE.get(source, 'not stated')})\n")
    kinds = sorted({_kind(case) for case, _ in answers})
    for kind in kinds:
        sys.stdout.write(f"  {kind:24}{_line([item for item in answers if _kind(item[0]) == kind])}\n")
    if len(kinds) > 1:
        sys.stdout.write(f"  {'all':24}{_line(answers)}\n")
    sys.stdout.write(_noise(answers) + _scaling(answers))
    for reason, count in refused.most_common():
        sys.stdout.write(f"  refused {count}: {reason}\n")


def _kind(case: TrainingCase) -> str:
    return f"{case.row['gpu']}{' experts' if case.shape.experts else ''}"


def _noise(answers: Answered) -> str:
    """Return by how much rows of one question differ, as far as a source has such rows."""
    groups: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for case, _ in answers:
        groups[case.shape.name, case.plan, case.row["gpu"]].append(case.measured_s)
    spreads = [max(times_s) / min(times_s) - 1 for times_s in groups.values() if len(times_s) > 1]
    if not spreads:
        return ""
    rows = f"{len(spreads)} question{'s' if len(spreads) > 1 else ''} measured more than once"
    return f"  {rows} differ by {np.median(spreads):.1%} (median), {max(spreads):.1%} at most\n"


def _scaling(answers: Answered) -> str:
    """Return how far predicted scaling efficiencies are from measured ones: plans that differ in replicas alone."""
    groups: dict[tuple[object, ...], dict[int, tuple[float, float]]] = defaultdict(dict)
    for case, answer in answers:
        plan, row = case.plan, case.row
        same = tuple(getattr(plan, field.name) for field in fields(plan) if field.name not in ("dp", "global_batch"))
        rate = plan.global_batch / plan.rank_count
        groups[case.shape.name, same, row["gpu"], row["file"], row["software"]][plan.rank_count] = (
            rate / case.measured_s, rate / answer.step_s,
        )  # fmt: skip
    misses = []
    for rates in groups.values():
        first = rates[min(rates)]
        misses += [
            rate[1] / first[1] - rate[0] / first[0] for count, rate in rates.items() if count > min(rates)
        ]  # fmt: skip
    if not misses:
        return ""
    points = np.array(misses) * 100
    size, bias = np.median(np.abs(points)), points.mean()
    return f"  scaling over replicas, {len(points)} pairs: {size:.1f} points of efficiency off, bias {bias:+.1f}\n"


def _line(answers: Answered) -> str:
    errors = np.array([answer.step_s / case.measured_s - 1 for case, answer in answers])
    inside = np.mean([answer.low_s <= case.measured_s <= answer.high_s for case, answer in answers])
    width = np.median([answer.high_s / answer.low_s for _, answer in answers])
    size = np.abs(errors)
    return (
        f"n {len(errors):5}  mean {size.mean():6.1%}  median {np.median(size):6.1%}  p90 {np.quantile(size, 0.9):6.1%}"
        f"  bias {errors.mean():+6.1%}  max {size.max():6.1%}  inside {inside:5.0%}  high/low {width:.2f}"
    )


def _print_rows(answers: Answered) -> None:
    """Print each row with the parts of its prediction, as shares of the measured step."""
    for case, answer in answers:
        row, plan = case.row, case.plan
        parts = " ".join(
            f"{part.name.replace('exposed ', 'x').replace(' ', '_')} {part.time_s / case.measured_s:.0%}"
            for part in answer.parts if part.time_s > 0.005 * case.measured_s
        )  # fmt: skip
        sys.stdout.write(
            f"{answer.step_s / case.measured_s - 1:+6.1%} {row['gpu']} n{int(row['n_gpus'])} {case.shape.name} "
            f"s{plan.sequence} b{plan.micro_batch} m{plan.micro_batch_count} t{plan.tp}p{plan.pp}v{plan.chunk_count}"
            f"c{plan.cp}d{plan.dp}e{plan.ep} {plan.precision} {plan.recompute} {plan.sharding} | {parts}\n"
        )


if __name__ == "__main__":
    main()
