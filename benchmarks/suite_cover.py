"""Time of the cases that cover 99 % of the FLOP-weighted calls of ten real models, over that of all their cases."""

from collections.abc import Iterator
from dataclasses import replace

from benchmarks._figures import Figure
from nearpeak.api import suite_construction
from nearpeak.core.answers.suite import Suite
from nearpeak.suites.coverage_numbers import coverage_of
from nearpeak.suites.suite_merge import merged
from nearpeak.suites.suite_names import ready_suite

FIGURES = (
    "suite_cover_time", "suite_cover_flop", "suite_cover_time_by_class", "suite_cover_time_exact", "suite_cover_cases",
    "suite_cover_use_cases",
)  # fmt: skip
TARGET, GOAL = "h100_sxm", 0.99
READY = ("image_classification", "speech_recognition", "natural_language", "llm_inference", "llm_training")
WORKLOADS = (
    "resnet-50 forward", "convnext-tiny forward", "vit-base-16 forward", "whisper-small forward",
    "wav2vec2-base forward", "bert-large forward", "t5-base forward", "llama-3-8b forward", "qwen3-30b-a3b decode",
    "llama-3.2-1b train",
)  # fmt: skip


def measure() -> Iterator[Figure]:
    """Yield shares of time, bounds on one device plus a launch per case, with directed cases beside those of use."""
    whole = suite_construction.suite([ten_models()], directed=True)
    plan = suite_construction.cheapest(whole, TARGET, goal_ratio=GOAL)
    percent = 100 * plan.cover_s / plan.use_s
    yield Figure(name=FIGURES[0], value=percent, unit="%", bar="<= 15 %", passed=percent <= 15)
    covered = 100 * _fleet(plan.suite)
    yield Figure(name=FIGURES[1], value=covered, unit="%", bar=">= 99 %", passed=covered >= 99)
    for name, identity in ((FIGURES[2], "class"), (FIGURES[3], "exact")):
        other = suite_construction.cheapest(whole, TARGET, goal_ratio=GOAL, identity=identity)
        yield Figure(name=name, value=100 * other.cover_s / other.use_s, unit="%", bar="", passed=True)
    yield Figure(name=FIGURES[4], value=len(plan.picks), unit="cases", bar="", passed=True)
    called = {one.case.digest for one in whole.cases if one.call_count}
    chosen = sum(pick.key in called for pick in plan.picks)
    yield Figure(name=FIGURES[5], value=chosen, unit=f"of {len(called)} cases", bar="", passed=True)


def ten_models() -> Suite:
    """Return every case of the ten workloads, as the ready-made suites keep them."""
    every = merged([ready_suite(name) for name in READY], "ten models")
    sources = tuple(one for one in every.sources if one.name in WORKLOADS)
    if len(sources) != len(WORKLOADS):
        raise ValueError(f"the ready-made suites lack {set(WORKLOADS) - {one.name for one in sources}}")
    cases = [replace(one, why=tuple(why for why in one.why if why.source in WORKLOADS)) for one in every.cases]
    return replace(every, cases=tuple(one for one in cases if one.why), sources=sources)


def _fleet(suite: Suite) -> float:
    """Return the share of FLOP-weighted calls that the chosen cases stand for, counted again from the suite."""
    shares = coverage_of(suite).use
    keys = ("fleet", "flop", "saturated")
    found = next(one.covered_ratio for one in shares if (one.workload, one.currency, one.identity) == keys)
    return found or 0.0
