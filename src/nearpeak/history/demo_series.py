"""Synthetic measurement history from a seed: devices, software stacks, clocks, planted changes."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearpeak.base.canonical_json import digest
from nearpeak.core.history.stored_run import TIME, Device, Pairs, Revision, RunRecord, SampleSet, Source, Testbed
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError

LEAST_COMMITS, MOST_COMMITS = 40, 2000
LAUNCHES, SAMPLES = 2, 20
_DAY_NS = 86_400 * 10**9
_START_NS = 1_767_225_600 * 10**9
"""First of January 2026."""
_DEVICES = tuple(
    (Device(name=name, vendor=vendor, architecture=architecture, uuid=f"demo-{host}", host=host), clock_hz)
    for name, vendor, architecture, host, clock_hz in (
        ("NVIDIA H100 80GB HBM3", "NVIDIA", "sm_90", "node1", 1.98e9),
        ("NVIDIA H200", "NVIDIA", "sm_90", "node2", 1.98e9),
        ("AMD Instinct MI300X", "AMD", "gfx942", "node3", 2.1e9),
    )
)
"""Devices with the clock that they run at."""
_SUBJECTS = (
    "Tidy up imports", "Document the scheduler", "Bump version", "Cache kernel launches by shape", "Fix a typo",
    "Vectorise loads of norms", "Tests for ragged batches", "Rename the allocator's arena", "Log fewer warnings",
    "Use one stream for copies", "Refactor graph capture", "Support a new mask", "Update continuous integration",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A change that the demonstration holds on purpose."""

    commit: int
    """Position of the first commit that has it."""
    ops: tuple[str, ...]
    """Operators that it touches."""
    devices: tuple[str, ...]
    """Devices on which it shows; empty for all."""
    time_ratio: float
    """New time over old."""
    cause: str
    """`commit`, or the component of the stack, or `clock`."""
    subject: str
    """Message of the commit, or what happened."""
    stop: int | None = None
    """Position at which it is over; none where it lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A case that the demonstration measures."""

    case: Case
    """What runs."""
    label: str
    """The case in one line."""
    owner: str
    """Team."""
    runners: tuple[tuple[str, float], ...]
    """Runners with the part of the speed of light that each reaches."""
    clocked: bool
    """Whether its time follows the clock of the multiprocessors."""


Bounds = Callable[[Case, str], float]


def planted(commits: int) -> tuple[Planted, ...]:
    """Return the changes that a history of so many commits holds."""
    at = [round(commits * part) for part in (0.3, 0.45, 0.56, 0.63, 0.7, 0.85)]
    return (
        Planted(commit=at[0], ops=("gemm",), devices=(), time_ratio=1.05, cause="commit",
                subject="Choose tiles of products by a table"),
        Planted(commit=at[1], ops=("attention",), devices=(), time_ratio=0.92, cause="commit",
                subject="Overlap the two products of attention"),
        Planted(commit=at[2], stop=at[3], ops=(), devices=("NVIDIA H200",), time_ratio=1.03, cause="clock",
                subject="the room was warm, clocks 3 % down"),
        Planted(commit=at[4], ops=("layer_norm", "softmax", "elementwise"), devices=("NVIDIA H100 80GB HBM3",),
                time_ratio=1.04, cause="driver", subject="driver 570.86 → 580.65"),
        Planted(commit=at[5], ops=("softmax",), devices=("AMD Instinct MI300X",), time_ratio=1.12, cause="commit",
                subject="One pass over rows in softmax"),
    )  # fmt: skip


def demo_runs(
    subjects: tuple[Subject, ...], bounds: Bounds, *, commits: int = 120, seed: int = 0,
    plants: tuple[Planted, ...] | None = None,
) -> Iterator[RunRecord]:  # fmt: skip
    """Yield a run for each commit and device, oldest first; the same seed gives the same history.

    Args:
        bounds: seconds that a case takes at least on the device of a name.
        plants: changes that the history holds; those of `planted` by default.

    Raises:
        SpecError: too few or too many commits.
    """
    if not LEAST_COMMITS <= commits <= MOST_COMMITS:
        raise SpecError(f"demo-history: {commits} commits; choose {LEAST_COMMITS} to {MOST_COMMITS}")
    plants = planted(commits) if plants is None else plants
    revisions = demo_revisions(commits, seed)
    levels = {
        (number, place, runner): _level_noise(commits, np.random.default_rng([seed, 1, number, place, index]))
        for number, _ in enumerate(_DEVICES) for place, subject in enumerate(subjects)
        for index, (runner, _) in enumerate(subject.runners)
    }  # fmt: skip
    for position, revision in enumerate(revisions):
        for number, (device, clock_hz) in enumerate(_DEVICES):
            rng = np.random.default_rng([seed, 2, position, number])
            here = [
                plant for plant in plants
                if plant.commit <= position < (plant.stop or commits)
                and (not plant.devices or device.name in plant.devices)
            ]  # fmt: skip
            hertz = clock_hz / math.prod(plant.time_ratio for plant in here if plant.cause == "clock")
            samples = [
                launch
                for place, subject in enumerate(subjects) for runner, attained in subject.runners
                for launch in _launches(
                    subject, runner, hertz * (1 + 0.001 * float(rng.standard_normal())), rng,
                    bounds(subject.case, device.name) / attained
                    * _effect(here, subject) * math.exp(levels[number, place, runner][position]),
                )
            ]  # fmt: skip
            yield RunRecord(
                device=device, samples=tuple(samples), revision=revision,
                stack=_stack(device, position, commits, plants),
                started_ns=int(revision.committed_ns or 0) + number, trigger="nightly",
                source=Source(digest=digest(["demo-history", seed, commits, position, number]), importer="demo-history",
                              name="demo-history"),
            )  # fmt: skip


def demo_revisions(commits: int, seed: int) -> tuple[Revision, ...]:
    """Return the commits of the demonstration."""
    rng = np.random.default_rng([seed, 0])
    subjects = {plant.commit: plant.subject for plant in planted(commits) if plant.cause == "commit"}
    shas = [digest(["demo-history", seed, position])[:40] for position in range(commits)]
    return tuple(
        Revision(
            sha=sha, repository="demo", position=position, parent_sha=shas[position - 1] if position else "",
            author=("Ada", "Grace", "Alan")[int(rng.integers(3))], committed_ns=_START_NS + position * _DAY_NS,
            authored_ns=_START_NS + position * _DAY_NS,
            subject=subjects.get(position, _SUBJECTS[int(rng.integers(len(_SUBJECTS)))]),
        )
        for position, sha in enumerate(shas)
    )  # fmt: skip


def _effect(here: list[Planted], subject: Subject) -> float:
    """Return the factor of all changes that show on a case; a slower clock shows where the time follows it."""
    return math.prod(
        plant.time_ratio
        for plant in here
        if subject.case.op in plant.ops or (plant.cause == "clock" and subject.clocked)
    )


def _level_noise(commits: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return what differs from commit to commit: noise with memory, and now and then a spike upwards."""
    fresh = 0.002 * rng.standard_normal(commits)
    noise = np.empty(commits)
    last = 0.0
    for index in range(commits):
        last = 0.4 * last + float(fresh[index])
        noise[index] = last
    return noise + np.where(rng.random(commits) < 0.01, rng.uniform(0.02, 0.08, commits), 0.0)


def _launches(
    subject: Subject, runner: str, hertz: float, rng: np.random.Generator, centre_s: float
) -> Iterator[SampleSet]:
    bed = Testbed(name=runner, policy={"timer": "cuda_events", "mode": "device", "cache": "cold"})
    flat = {name: value for name, value in subject.case.record().items() if isinstance(value, (str, int, float))}
    for launch in range(LAUNCHES):
        level_s = centre_s * math.exp(0.001 * float(rng.standard_normal()))
        tails = rng.lognormal(0.0, 0.5, SAMPLES)
        values = level_s * (1 + 0.003 * (tails - math.exp(0.125)))
        yield SampleSet(
            case=subject.case.digest, label=subject.label, metric=TIME, testbed=bed, values=tuple(values.tolist()),
            parameters=flat, workload=subject.case.op, launch=launch, outcome="converged", clock_hz=hertz,
        )  # fmt: skip


def _stack(device: Device, position: int, commits: int, plants: tuple[Planted, ...]) -> Pairs:
    """Return the software of a device at a commit: a harmless upgrade on all, and that of the driver on one."""
    drivers = [plant for plant in plants if plant.cause == "driver" and device.name in plant.devices]
    newer = any(position >= plant.commit for plant in drivers)
    triton = "3.5.0" if position >= round(commits * 0.45) + 4 else "3.4.0"
    if device.vendor == "AMD":
        return (("driver", "6.12.12"), ("rocm", "6.4.3"), ("torch", "2.9.0"), ("triton", triton))
    return (("cuda", "12.8"), ("driver", "580.65" if newer else "570.86"), ("torch", "2.9.0"), ("triton", triton))
