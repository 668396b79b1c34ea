"""How many configurations a search needs on recorded tuning spaces, against the exact figures of random search.

The folder of recorded spaces is `NEARPEAK_SPACES`, else `shared/tuning` beside the checkout; the public space beside
the other samples belongs to it. Without files nothing is measured. Where kernel_tuner can be imported (it is no
dependency: put its folder at the end of PYTHONPATH), its genetic algorithm searches the same spaces.
"""

import math
import os
import random
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks._figures import Figure
from benchmarks._kernel_tuner import genetic_counts, is_installed
from nearpeak.core.tuning.replay import ReplayStudy
from nearpeak.core.tuning.study import PRUNED, TIMED, WRONG, Trial
from nearpeak.tuning.legal_set import legal_set
from nearpeak.tuning.recorded_replay import random_count, random_median, recorded_trial, replay
from nearpeak.tuning.recorded_space import RecordedSpace, read_recorded_space
from nearpeak.tuning.search_choice import SEARCHES
from nearpeak.tuning.study_journal import StudyJournal
from nearpeak.tuning.trial_loop import SearchLimits, search_trials

FIGURES = (
    "tuning_replay_random_ratio", "tuning_replay_device_ratio", "tuning_replay_lost_runs", "tuning_replay_a6000_count",
    "tuning_replay_optimum_pruned", "tuning_replay_wrong_winners",
    *(("tuning_replay_genetic_ratio",) if is_installed() else ()),
)  # fmt: skip
SEEDS = 20
_BESIDE = Path(__file__).resolve().parents[2] / "shared"
FOLDERS = (
    Path(os.environ.get("NEARPEAK_SPACES") or _BESIDE / "tuning"),
    Path(os.environ.get("NEARPEAK_SAMPLES") or _BESIDE / "samples") / "kerneltuner",
)
_OPERATORS = "tensorrt"
"""Begin of a file's name in those folders that is no space."""


def recorded_files() -> list[Path]:
    """Return the files of recorded spaces."""
    files = [path for folder in FOLDERS if folder.is_dir() for path in sorted(folder.glob("*.json.gz"))]
    return [path for path in files if not path.name.startswith(_OPERATORS)]


def measure() -> Iterator[Figure]:
    """Replay the model search on every space, and plant bounds and wrong configurations."""
    spaces = [read_recorded_space(path) for path in recorded_files()]
    if not spaces:
        print("  no recorded spaces; NEARPEAK_SPACES names their folder", flush=True)
        return
    studies = [replay(recorded, "model", range(SEEDS)) for recorded in spaces]
    for study in studies:
        print(f"  {_row(study)}", flush=True)
    yield from _against_genetic(spaces, studies)
    worst = max(study.median_count / random_median(study.legal_count, study.within_count) for study in studies)
    yield Figure(
        name="tuning_replay_random_ratio",
        value=worst,
        unit="× random's median",
        bar="<= 0.6",
        passed=worst <= 0.6,
        seed=0,
    )
    device = max(study.device_ratio for study in studies)
    yield Figure(
        name="tuning_replay_device_ratio",
        value=device,
        unit="of full timing",
        bar="<= 0.3",
        passed=device <= 0.3,
        seed=0,
    )
    lost = sum(_lost(study) for study in studies)
    yield Figure(
        name="tuning_replay_lost_runs", value=lost, unit=f"of {SEEDS * len(studies)}",
        bar="0 beyond 2 × random's median", passed=lost == 0, seed=0,
    )  # fmt: skip
    for study in studies:
        if "A6000" in study.space:
            count = study.median_count
            yield Figure(
                name="tuning_replay_a6000_count",
                value=count,
                unit="evaluations",
                bar="<= 40",
                passed=count <= 40,
                seed=0,
            )
    pruned = sum(_optimum_pruned(recorded, seed) for recorded in spaces for seed in range(5))
    yield Figure(name="tuning_replay_optimum_pruned", value=pruned, unit="", bar="0", passed=pruned == 0, seed=0)
    wrong = sum(_wrong_wins(spaces[seed % len(spaces)], seed) for seed in range(100))
    yield Figure(name="tuning_replay_wrong_winners", value=wrong, unit="of 100", bar="0", passed=wrong == 0, seed=0)


def _against_genetic(spaces: list[RecordedSpace], studies: list[ReplayStudy]) -> Iterator[Figure]:
    """Yield the worst ratio of medians to the genetic algorithm of kernel_tuner, where that is at hand."""
    if not is_installed():
        print("  kernel_tuner's genetic algorithm: not measured, the package is not installed", flush=True)
        return
    ratios = []
    for recorded, study in zip(spaces, studies, strict=True):
        counts = list(genetic_counts(recorded, range(SEEDS)))
        median = statistics.median(math.inf if count is None else count for count in counts)
        ratios.append(study.median_count / median)
        found = sum(count is not None for count in counts)
        print(
            f"  {study.space}: kernel_tuner's genetic algorithm {median:g}, {found} of {SEEDS} found; {study.search} "
            f"{study.median_count:g}", flush=True,
        )  # fmt: skip
    yield Figure(
        name="tuning_replay_genetic_ratio", value=max(ratios), unit="× kernel_tuner's median", bar="<= 1",
        passed=max(ratios) <= 1, seed=0,
    )  # fmt: skip


def _row(study: ReplayStudy) -> str:
    counts = sorted(run.found_count or run.run_count + 1 for run in study.runs)
    low, _, high = statistics.quantiles(counts, n=4)
    mean = random_count(study.legal_count, study.within_count)
    return (
        f"{study.space}: {study.search} {study.median_count:g} ({low:g} to {high:g}), most {counts[-1]}; random "
        f"{random_median(study.legal_count, study.within_count)} (mean {mean:.1f}); device {study.device_ratio:.3f}"
    )


def _lost(study: ReplayStudy) -> int:
    """Return the runs that needed more than twice the median of random search."""
    most = 2 * random_median(study.legal_count, study.within_count)
    return sum(run.found_count is None or run.found_count > most for run in study.runs)


def _optimum_pruned(recorded: RecordedSpace, seed: int) -> bool:
    """Return whether the optimum is excluded by true bounds: a random share of each configuration's least call."""
    draw, legal, journal = random.Random(seed), legal_set(recorded.space), StudyJournal(None, None, {})
    bounds = {one: draw.random() * min(times.samples_s, default=0.0) for one, times in recorded.times.items()}
    search_trials(
        legal, SEARCHES["random"](legal, seed, 1),
        lambda one, best_s: recorded_trial(recorded, one, best_s),
        SearchLimits(trial_count=len(legal)), journal, bound_s=bounds.__getitem__,
    )  # fmt: skip
    best = min(recorded.times, key=lambda one: recorded.times[one].time_s)
    return any(trial.outcome == PRUNED and trial.settings == recorded.space.named(best) for trial in journal.trials)


def _wrong_wins(recorded: RecordedSpace, seed: int) -> bool:
    """Return whether a configuration that is wrong, and faster than all, is the best of a search."""
    legal, journal = legal_set(recorded.space), StudyJournal(None, None, {})
    wrong = set(random.Random(seed).sample(list(recorded.times), len(legal) // 10))

    def evaluate(one: tuple[object, ...], best_s: float) -> Trial:
        if one in wrong:
            return Trial(position=0, settings=recorded.space.named(one), outcome=WRONG, note="planted")
        return recorded_trial(recorded, one, best_s)

    search = SEARCHES["model"](legal, seed, 1)
    search_trials(legal, search, evaluate, SearchLimits(trial_count=60), journal)
    timed = [trial for trial in journal.trials if trial.outcome == TIMED]
    best = min(timed, key=lambda trial: trial.score_s)
    return tuple(best.settings.values()) in wrong
