"""Records of the performance store: runs with their samples, and identities of the series that values belong to."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nearpeak.base.canonical_json import canonical_json, digest
from nearpeak.errors import SpecError

DIRECTIONS = ("lower", "higher")
SCALES = ("log", "linear")
KINDS = ("time", "throughput", "memory", "energy", "compile", "counter", "other")
TRIGGERS = ("manual", "nightly", "pr", "rerun", "bisect", "bridge", "import")
ROW = "row "
"""Prefix of losses that are whole rows of a file, such as a benchmark without a time; all others are fields."""
Scalar = str | int | float | bool
Pairs = tuple[tuple[str, str], ...]


def _need(what: str, /, **texts: str) -> None:
    for name, text in texts.items():
        if not text:
            raise SpecError(f"{what}: {name} is missing; it must be a text that is not empty")


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise SpecError(f"{what} {value!r} is not known; there are {', '.join(known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What is measured; the samples of one metric have one unit in the whole store."""

    name: str
    """`time`, `cpu_time`, `throughput`, …."""
    unit: str
    """SI base unit: `s`, `B`, `J`, `1/s`, ….; `1` for a plain number."""
    direction: str = "lower"
    """Which is better: `lower` or `higher`."""
    scale: str = "log"
    """`log` where changes are ratios, `linear` where they are differences."""
    kind: str = "time"
    """`time`, `throughput`, `memory`, `energy`, `compile`, `counter` or `other`."""

    def __post_init__(self) -> None:
        """Refuse a metric without name or unit, or of a direction, scale or kind that does not exist."""
        _need("metric", name=self.name, unit=self.unit)
        for name, value, known in (
            ("direction", self.direction, DIRECTIONS), ("scale", self.scale, SCALES), ("kind", self.kind, KINDS),
        ):  # fmt: skip
            _one_of(f"metric {self.name}: {name}", value, known)


TIME = Metric(name="time", unit="s")
CPU_TIME = Metric(name="cpu_time", unit="s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The unit that did the work, and the machine it sits in."""

    name: str
    """Model as its driver names it; what may be compared over time is one model."""
    vendor: str = ""
    """Who makes it; empty where unknown."""
    architecture: str = ""
    """`sm_90`, `gfx942`, `x86_64`, …; empty where unknown."""
    uuid: str = ""
    """Identity of the unit; empty where it has none, and then it is known by host and model."""
    partition: str = ""
    """MIG profile or the like; empty for the whole."""
    host: str = ""
    """Name of the machine; empty where unknown."""
    settings: Pairs = ()
    """Power limit, governor, ECC and the like, as found."""

    def __post_init__(self) -> None:
        """Refuse a device without a name."""
        _need("device", name=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A commit, and where it stands in its history."""

    sha: str
    """Full name of the commit, or what stands for it where there is no repository."""
    repository: str = ""
    """Where the commit is to be found; the same text for all of its commits."""
    position: int | None = None
    """First-parent commits before it; none where the history is not at hand."""
    parent_sha: str = ""
    """First parent."""
    author: str = ""
    """Author."""
    authored_ns: int | None = None
    """When, since 1970 UTC."""
    committed_ns: int | None = None
    """When it entered the history, since 1970 UTC."""
    subject: str = ""
    """First line of its message."""
    pull_request: str = ""
    """Number of its pull request; empty where it has none."""

    def __post_init__(self) -> None:
        """Refuse a revision without a name, or one that stands before the first."""
        _need("revision", sha=self.sha)
        if self.position is not None and not 0 <= self.position < 1 << 40:
            raise SpecError(f"revision {self.sha}: position {self.position} is not between 0 and 2^40")


@dataclass(frozen=True, slots=True, kw_only=True)
class Testbed:
    """A testbed: runner, device and policy; values of two testbeds are never in one series."""

    __test__ = False  # pytest takes classes that start with Test for tests
    name: str
    """Runner with its argument, or the foreign tool."""
    policy: Mapping[str, Scalar] = field(default_factory=dict)
    """Cache state, timer, mode, threads, clock policy: what must agree for two values to be comparable."""

    def __post_init__(self) -> None:
        """Refuse a testbed without a name."""
        _need("testbed", name=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSet:
    """The samples of one metric of one case, taken in one launch of its process."""

    case: str
    """Identity of the case: its digest, or the full name of a foreign benchmark with its parameters."""
    label: str
    """The case in one line for people."""
    metric: Metric
    """Metric of the samples."""
    testbed: Testbed
    """Runner."""
    values: Sequence[float]
    """Samples in the metric's unit, in the order in which they were taken; empty where the case has none."""
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    """The case as data: `op`, `phase` and its axes, or a foreign benchmark's parameters."""
    workload: str = ""
    """Operator, kernel, model or benchmark that the case is of."""
    launch: int = 0
    """Which launch of the process this is, from 0."""
    outcome: str = "budget"
    """How it ended: a value of `Outcome`."""
    note: str = ""
    """Reason for missing samples, or a remark on them."""
    clock_hz: float | None = None
    """Mean clock of the device meanwhile; none where unknown."""
    channels: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Further recorded values, in base units: `warmup_s`, `host_s`, `sm_clock_hz`, `power_w`, …."""
    records: Mapping[str, str] = field(default_factory=dict)
    """Attachments as JSON by kind: `validation`, `telemetry`, `ledger`, …."""

    def __post_init__(self) -> None:
        """Refuse a set without identity, or one without samples whose outcome says that it has some."""
        _need(f"samples of {self.label or 'a case'}", case=self.case, label=self.label)
        if self.launch < 0:
            raise SpecError(f"{self.label}: launch {self.launch} is below 0")
        if not len(self.values) and self.outcome in ("converged", "budget"):
            raise SpecError(
                f"{self.label}: no samples, yet its outcome is {self.outcome}; give samples or say what failed"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Source of a run, so that the same file is never counted twice."""

    digest: str
    """SHA-256 of the bytes that were read, or any text that stands for this run alone."""
    importer: str = "nearpeak"
    """Importer."""
    version: int = 1
    """Major version of the importer: another one reads the same file differently."""
    selector: str = ""
    """Part of the file, where it holds several runs."""
    name: str = ""
    """File name, for people."""
    lost: tuple[str, ...] = ()
    """Fields of the file that the store has no place for, and after `ROW` the rows that could not be read."""
    uid: str = ""
    """Identity that the run has in another store; empty where it comes from a file."""

    @property
    def key(self) -> str:
        """Identity of the run.

        >>> Source(digest="a").key == Source(digest="a", name="renamed.json").key
        True
        """
        return self.uid or digest([self.digest, self.selector, self.importer, self.version])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run: samples of any number of cases on one device, with one software stack, at one commit."""

    device: Device
    """Where."""
    samples: tuple[SampleSet, ...]
    """Suite."""
    source: Source
    """Source file."""
    revision: Revision | None = None
    """Commit; none for a run without one."""
    branch: str = "main"
    """Branch whose history the run belongs to."""
    stack: Pairs = ()
    """Software that took part: names and versions, the driver and the runtime among them."""
    track: Pairs = ()
    """Components that belong to the identity of the series; all others may change along it."""
    started_ns: int = 0
    """When it began, since 1970 UTC."""
    ended_ns: int | None = None
    """When it ended; none where unknown."""
    trigger: str = "manual"
    """`manual`, `nightly`, `pr`, `rerun`, `bisect`, `bridge` or `import`."""
    dirty: str = ""
    """Digest of what was not committed; empty for a clean tree."""
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    """Further facts: preflight checks, tool versions."""

    def __post_init__(self) -> None:
        """Refuse a run without samples, with a case twice or a metric in two units, or that ends before it begins."""
        if not self.samples:
            raise SpecError(f"run {self.source.name or self.source.digest[:12]}: holds no measurements")
        _one_of("run: trigger", self.trigger, TRIGGERS)
        _need("run", branch=self.branch)
        if self.ended_ns is not None and self.ended_ns < self.started_ns:
            raise SpecError(f"run: ends {self.started_ns - self.ended_ns} ns before it begins; were clocks set back?")
        _one_unit(self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Values of one metric of one case that may be compared over time."""

    id: int
    """Identity within its store."""
    fingerprint: str
    """Identity in every store: case, metric, device model, testbed, branch and tracked components."""
    case: str
    """Identity of the case."""
    label: str
    """The case in one line."""
    parameters: Mapping[str, Scalar]
    """The case as data."""
    workload: str
    """Workload of the case."""
    metric: Metric
    """Metric."""
    device: str
    """Model of the device."""
    testbed: Testbed
    """Runner."""
    branch: str
    """Whose history."""
    track: Pairs
    """Tracked components."""
    owner: str
    """Owner; empty without one."""
    run_count: int
    """Runs that have a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as stored, without its samples."""

    id: int
    """Identity within its store."""
    uid: str
    """Identity in every store."""
    revision: Revision | None
    """Which commit."""
    order_key: int
    """Position in the history, the order of comparisons, independent of clocks."""
    device: Device
    """Where."""
    stack: Pairs
    """Software that took part."""
    started_ns: int
    """When it began."""
    trigger: str
    """Reason of the run."""
    source: str
    """File that it was read from."""
    lost: tuple[str, ...]
    """Fields of that file that were left out."""
    facts: Mapping[str, Scalar]
    """Further facts."""
    selector: str = ""
    """Part of the file, where it holds several runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The newest run of a series beside the one before it."""

    series: int
    """Identity of the series within its store."""
    run: int
    """Newest run."""
    value: float
    """Median over launches of the newest run, in the metric's unit."""
    previous_value: float
    """That of the one before."""

    @property
    def ratio(self) -> float | None:
        """Newest over previous; none where the previous is 0."""
        return self.value / self.previous_value if self.previous_value else None


def fingerprints_of(record: RunRecord) -> tuple[str, ...]:
    """Return the identity of the series that each set of samples of a run belongs to.

    It is that of case, metric, device model, testbed, branch and tracked components. The rest of the software stack is
    left out: where a value moves, the components that changed are suspects.
    """
    where = [record.device.name, record.device.partition, record.branch, sorted(record.track)]
    testbeds = {id(sample.testbed): sample.testbed for sample in record.samples}
    contexts = {key: digest([sample.name, dict(sample.policy), *where]) for key, sample in testbeds.items()}
    return tuple(
        hashlib.sha256(
            "\x00".join((sample.case, sample.metric.name, contexts[id(sample.testbed)])).encode()
        ).hexdigest()
        for sample in record.samples
    )


def stack_fingerprint(stack: Pairs) -> str:
    """Return the identity of a software stack, whatever the order of its components.

    >>> stack_fingerprint((("a", "1"), ("b", "2"))) == stack_fingerprint((("b", "2"), ("a", "1")))
    True
    """
    return digest(sorted(stack))


def stack_difference(left: Pairs, right: Pairs) -> tuple[tuple[str, str, str], ...]:
    """Return the components that differ: name, version on the left, on the right; empty where a side has none.

    >>> stack_difference((("torch", "2.8"), ("cuda", "12.8")), (("torch", "2.9"), ("cuda", "12.8")))
    (('torch', '2.8', '2.9'),)
    """
    old, new = dict(left), dict(right)
    names = sorted(old.keys() | new.keys())
    return tuple((name, old.get(name, ""), new.get(name, "")) for name in names if old.get(name) != new.get(name))


def _one_unit(samples: tuple[SampleSet, ...]) -> None:
    metrics: dict[str, Metric] = {}
    testbeds = {id(sample.testbed): sample.testbed for sample in samples}
    beds = {key: canonical_json([sample.name, dict(sample.policy)]) for key, sample in testbeds.items()}
    seen = set()
    for sample in samples:
        known = metrics.setdefault(sample.metric.name, sample.metric)
        if known is not sample.metric and known != sample.metric:
            raise SpecError(
                f"{sample.label}: metric {sample.metric.name} in {sample.metric.unit} "
                f"({sample.metric.direction} is better), elsewhere in {known.unit} ({known.direction}); "
                "a series has one unit"
            )
        key = (sample.case, sample.metric.name, beds[id(sample.testbed)], sample.launch)
        if key in seen:
            raise SpecError(
                f"{sample.label}: {sample.metric.name} of launch {sample.launch} stands twice in one run; remove one"
            )
        seen.add(key)
