"""Sensor readings during a measurement (clock, power, temperature), with derived energy and means."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

KINDS = ("instantaneous", "mean", "counter", "flags")
"""What a reading can be: the value now, a mean over the time before, a total since some start, a set of bits."""
Span = tuple[str, int, int]
"""A phase: its name, begin and end in nanoseconds of the monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One quantity of one sensor: what a reading of it means, and how well it is known."""

    name: str
    """Device and quantity, e.g. `gpu0.power`."""
    unit: str
    """Base unit of the values: `W`, `J`, `Hz`, `celsius`, `ratio`, `B`, `s`, `V`, `A`, `bits`, `count`."""
    kind: str
    """One of KINDS."""
    meaning: str
    """Meaning of a reading, with its documentation."""
    domain: str = ""
    """Consumer of power or energy: channels of one domain meter the same thing."""
    resolution: float | None = None
    """Smallest step of the values, in their unit; none where it is not stated."""
    window_s: float | None = None
    """Time over which a `mean` is taken; none where it is not stated."""
    update_s: float | None = None
    """Time between two values of the sensor; none where it is not stated."""
    rollover: float | None = None
    """Value after which a counter begins again at 0; none where it does not, or nobody says."""
    gain_ratio: float | None = None
    """Greatest error in proportion to the value; none where it is not stated."""
    bits: tuple[tuple[str, int], ...] = ()
    """Meaning of each bit of `flags`."""
    device: str = ""
    """Identity of the device, as its driver says it."""
    status: str = ""
    """Reason for missing values; else empty."""

    def decoded(self, value: float) -> tuple[str, ...]:
        """Return the names of the bits that are set; unknown ones by their number.

        >>> one = Channel(name="t", unit="bits", kind="flags", meaning="", bits=(("idle", 1), ("power cap", 4)))
        >>> one.decoded(12.0)
        ('power cap', 'bit 3')
        """
        known, mask = {bit: name for name, bit in self.bits}, int(value)
        return tuple(known.get(1 << place, f"bit {place}") for place in range(mask.bit_length()) if mask & (1 << place))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """All readings of one source: its channels are read together."""

    source: str
    """Source: the stem of its file in `measurement/telemetry/sources`, or the format of a log."""
    channels: tuple[Channel, ...]
    """Channel of each reading."""
    before_ns: tuple[int, ...]
    """Monotonic time before each reading."""
    after_ns: tuple[int, ...]
    """Monotonic time after each: the values are of some moment in between."""
    values: tuple[tuple[float, ...], ...]
    """For each channel its values in order; NaN where a reading failed."""

    def of(self, name: str) -> "Series":
        """Return the series of the channel called `name`."""
        return next(series for series in self.series() if series.channel.name == name)

    def series(self) -> Iterator["Series"]:
        """Yield each channel with its readings."""
        stamps = [(before + after) / 2e9 for before, after in zip(self.before_ns, self.after_ns, strict=True)]
        doubts = [(after - before) / 2e9 for before, after in zip(self.before_ns, self.after_ns, strict=True)]
        for channel, values in zip(self.channels, self.values, strict=True):
            yield Series(source=self.source, channel=channel, times_s=stamps, doubts_s=doubts, values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The readings of one channel."""

    source: str
    """Their source."""
    channel: Channel
    """Their meaning."""
    times_s: Sequence[float]
    """Monotonic time of each, at the middle of its reading."""
    doubts_s: Sequence[float]
    """Half the time that each reading took."""
    values: Sequence[float]
    """Their values; NaN where a reading failed."""

    def within(self, begin_s: float, end_s: float) -> tuple[float, ...]:
        """Return the values read from `begin_s` to `end_s`, failed readings left out."""
        pairs = zip(self.times_s, self.values, strict=True)
        return tuple(value for time_s, value in pairs if begin_s <= time_s <= end_s and not math.isnan(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Readings of all sources during a window of time."""

    begin_ns: int
    """Begin of the window on the monotonic clock."""
    end_ns: int
    """Its end; streams hold some readings before and after, so that the ends are known too."""
    wall_ns: int
    """Wall-clock time at its begin, in nanoseconds since 1970; nothing is computed from it."""
    streams: tuple[Stream, ...]
    """Readings by source."""
    spans: tuple[Span, ...] = ()
    """Phases within the window."""
    unavailable: tuple[tuple[str, str], ...] = ()
    """Sources that gave nothing, and why."""
    rate_hz: float = 0.0
    """Requested readings per second; 0 for a log, which does not state it."""
    tick_count: int = 0
    """Rounds of reading in the window."""
    late_count: int = 0
    """Of these, begun later than half a period after they were due."""
    missed_count: int = 0
    """Rounds left out, as the one before was not done when they were due."""
    latest_s: float = 0.0
    """Greatest delay of a round behind its time."""
    cpu_s: float = 0.0
    """CPU time that the sampler took in the window."""
    note: str = ""
    """Remarks, e.g. that the sampler ended early."""

    @property
    def window_s(self) -> float:
        """Length of the window."""
        return (self.end_ns - self.begin_ns) / 1e9

    def series(self) -> Iterator[Series]:
        """Yield every channel with its readings."""
        for stream in self.streams:
            yield from stream.series()

    def span_of(self, name: str) -> tuple[float, float]:
        """Return begin and end of the phase `name` in seconds, or those of the whole window where there is none."""
        span = next((candidate for candidate in self.spans if candidate[0] == name), ("", self.begin_ns, self.end_ns))
        return span[1] / 1e9, span[2] / 1e9

    def flags(self, name: str = "") -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return for each channel of flags the names of all bits that were ever set during the phase `name`."""
        begin_s, end_s = self.span_of(name)
        flags = []
        for series in self.series():
            if series.channel.kind == "flags" and (values := series.within(begin_s, end_s)):
                union = 0
                for value in values:
                    union |= int(value)
                flags.append((series.channel.name, series.channel.decoded(union)))
        return tuple(flags)
