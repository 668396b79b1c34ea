"""A workload: all operator calls of a model step in order, with the storages that they read and write."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nearpeak.core.work.case import Case
from nearpeak.core.work.process_group import ProcessGroup
from nearpeak.core.work.tensor import Layout

PHASES = ("forward", "backward", "optimizer")
BUFFER_KINDS = ("weight", "input", "kv_cache", "state", "activation", "gradient", "output", "constant")
LARGEST_TENSOR_BYTES = 2**50
"""Size of a tensor beyond which an extent is taken for a typing error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One storage: what it holds and how large it is."""

    bytes: int
    """Size of the storage."""
    kind: str
    """One of BUFFER_KINDS; `state` is optimizer state, `constant` can be generated and need not be read."""
    name: str = ""
    """Parameter or input name, where it has one."""
    kept_bytes: int | None = None
    """Returned bytes of an output that is less than the whole storage."""
    value: float | None = None
    """Value of every element before the step, if known: a constant of the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Part of a storage that a call touches."""

    buffer: int
    """Number of the buffer within the workload."""
    bytes: int
    """Distinct bytes touched."""
    start_bytes: int = 0
    """First byte of the touched span."""
    stop_bytes: int = 0
    """One past the last byte of the touched span."""
    runs: tuple[tuple[int, int], ...] = ()
    """Counts and distances in bytes of the equal blocks of the view of which it touches bytes, the largest first, and
    the block's own bytes at last; none where that is the span, or not worked out: the layouts of the call say it.
    """


Argument = Layout | None | bool | int | float | str | tuple["Argument", ...]
"""One argument of a call: a tensor's layout, a number, a text, or a list of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLayout:
    """Arguments and tensor layouts of a call, without its storages; one object for all equal calls."""

    arguments: tuple[tuple[str, Argument], ...]
    """Names and values in the order of the operator's schema."""
    results: tuple[Layout, ...]
    """Layouts of what it returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operator call of the step."""

    case: Case | None
    """Its case; none when no operator of the catalogue matches."""
    operator: str
    """Name under which the source called it, e.g. an ATen overload."""
    phase: str
    """One of PHASES."""
    module: str = ""
    """Path of the innermost module, `layers.0.attention`."""
    source: str = ""
    """File and line that made the call."""
    reads: tuple[Use, ...] = ()
    """Storages read."""
    writes: tuple[Use, ...] = ()
    """Storages written."""
    call_count: int = 1
    """Number of runs."""
    form: CallLayout | None = None
    """Its arguments, where the source states them; the `simplified` engine needs them."""
    storages: tuple[int, ...] = ()
    """Buffers of the form's tensors in order, those of its results last."""
    group: ProcessGroup | None = None
    """Ranks of a collective; none for other calls, and where the source does not say."""


SAYINGS = ("hidden", "zero", "no_product", "true", "false")
"""Known properties of elements: exponential is 0; value is 0; products are not needed."""


class Pattern(NamedTuple):
    """A subset of a tensor's elements, independent of the inputs."""

    shape: tuple[int, ...]
    """Extents; 1 along a dimension that makes no difference."""
    packed: bytes
    """One bit for each element in row-major order, padded to whole bytes, deflated (RFC 1950)."""


class Known(NamedTuple):
    """Statically known property of a call's operand."""

    call: int
    """Position of the call."""
    tensor: int
    """Position among the tensors of its form."""
    says: str
    """One of SAYINGS."""
    pattern: int
    """Number of the pattern of elements of which that is so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A captured step of a model, or a hand-written list of cases."""

    name: str
    """Name for people."""
    step: str
    """`forward`, `decode`, `train`, or `sweep` for a list of unrelated cases."""
    calls: tuple[Call, ...]
    """All calls in execution order; views and metadata are not calls."""
    buffers: tuple[Buffer, ...] = ()
    """All storages; calls name them by position."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Origin: file, source of the dimensions, inputs, versions."""
    assumptions: tuple[str, ...] = ()
    """Assumptions of the capture, in sentences."""
    guards: tuple[str, ...] = ()
    """Those of `assumptions` that say on which values the calls depend: with any, bounds rest on A10."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Views and metadata that launch no kernel, by name, with counts."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Calls that a compiler would fuse into one kernel, by position; empty without a compiler."""

    returned: tuple[tuple[int, Layout], ...] = ()
    """Storage and layout of each tensor that the step returns, where the source says so."""
    known: tuple[Known, ...] = ()
    """Statically known elements of operands, in the order of the calls."""
    patterns: tuple[Pattern, ...] = ()
    """Sets of elements that `known` names by position."""
    guessed: tuple[int, ...] = ()
    """Positions of calls that handle tensors of guessed sizes: a bound counts nothing that rests on a guess."""

    def case_counts(self) -> dict[Case, int]:
        """Return each distinct case with its number of calls, in order of first appearance."""
        counts: dict[Case, int] = {}
        for call in self.calls:
            if call.case is not None:
                counts[call.case] = counts.get(call.case, 0) + call.call_count
        return counts

    def uncovered_counts(self) -> dict[str, int]:
        """Return the names that no operator matches, with their number of calls."""
        counts: dict[str, int] = {}
        for call in self.calls:
            if call.case is None:
                counts[call.operator] = counts.get(call.operator, 0) + call.call_count
        return counts
