"""Builder of workloads: buffers, calls matched to operators, and the bytes that calls read and write."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nearpeak.core.work.case import Case
from nearpeak.core.work.distinct_calls import distinct_calls
from nearpeak.core.work.process_group import ProcessGroup
from nearpeak.core.work.tensor import Layout, Tensor
from nearpeak.core.work.workload import LARGEST_TENSOR_BYTES, Buffer, Call, CallLayout, Known, Pattern, Use, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import OPS, AtenSite, Match, Matcher, OnnxSite, Value


class Matched(NamedTuple):
    """Cases of a call with their counts, and the bytes that it touches of its inputs."""

    cases: tuple[tuple[Case | None, int], ...]
    """Case and number of kernels; one entry with none when no operator matches."""
    touched_bytes: Mapping[str, int]
    """Distinct bytes touched of an input where that is less than all."""


UNCOVERED = Matched(cases=((None, 1),), touched_bytes={})
"""Match of a call that no operator of the catalogue covers."""


class WorkloadBuilder:
    """Collects the buffers and calls of one captured step; all frontends use it."""

    def __init__(self, matchers: Mapping[str, tuple[str, Matcher]]) -> None:
        """Start empty; `matchers` gives operator and matcher by the source's name of a call."""
        self._matchers = matchers
        self._cases: dict[tuple[str, str, frozenset[tuple[str, Value]]], Case] = {}
        self.buffers: list[Buffer] = []
        self.calls: list[Call] = []
        self.skipped: dict[str, int] = {}
        self.returned: list[tuple[int, Layout]] = []
        self.known: tuple[Known, ...] = ()
        self.patterns: tuple[Pattern, ...] = ()
        self.guessed: list[int] = []

    def add_buffer(self, bytes_: int, kind: str, name: str = "") -> int:
        """Return the number of a new storage; one over 2^50 bytes is refused as a typing error."""
        if bytes_ > LARGEST_TENSOR_BYTES:
            shown = f"a tensor of {bytes_:,} bytes" + (f" ({name})" if name else "")
            raise SpecError(f"{shown}: over 2^50; is an extent a typing error?")
        self.buffers.append(Buffer(bytes=bytes_, kind=kind, name=name))
        return len(self.buffers) - 1

    def relabel(self, buffer: int, kind: str, name: str = "") -> None:
        """Change kind and name of a storage."""
        self.buffers[buffer] = replace(self.buffers[buffer], kind=kind, name=name or self.buffers[buffer].name)

    def note_value(self, buffer: int, value: float) -> None:
        """Set the value of all elements of a constant."""
        self.buffers[buffer] = replace(self.buffers[buffer], value=value)

    def keep(self, buffer: int, bytes_: int) -> None:
        """Add `bytes_` to the returned part of an output, up to its size."""
        known = self.buffers[buffer]
        returned = min(known.bytes, (known.kept_bytes or 0) + bytes_)
        self.buffers[buffer] = replace(known, kept_bytes=returned if returned < known.bytes else None)

    def skip(self, name: str) -> None:
        """Count a view or a piece of metadata that launches no kernel."""
        self.skipped[name] = self.skipped.get(name, 0) + 1

    def add_call(
        self,
        site: AtenSite | OnnxSite,
        *,
        phase: str,
        reads: Mapping[str, Tensor],
        writes: Sequence[Tensor],
        module: str = "",
        source: str = "",
    ) -> None:
        """Append the call that `site` describes; without a matching operator it is appended as uncovered.

        Args:
            reads: input tensors by argument name or ONNX position, whose buffers the call reads.
            writes: tensors whose buffers it writes.
        """
        matched = self.match(site)
        uses = tuple(use(t, matched.touched_bytes.get(name)) for name, t in reads.items() if t.buffer >= 0)
        written = tuple(use(tensor, None) for tensor in writes if tensor.buffer >= 0)
        self.append(matched, site.name, phase=phase, reads=uses, writes=written, module=module, source=source)

    def match(self, site: AtenSite | OnnxSite) -> Matched:
        """Return the cases that the call stands for; a variant without a rule is uncovered."""
        if site.name not in self._matchers:
            return UNCOVERED
        operator, matcher = self._matchers[site.name]
        try:
            matched = matcher(site)
            matches = matched if isinstance(matched, tuple) else (matched,)
            cases = tuple((self._case(m.op or operator, m), m.call_count) for m in matches)
        except NotModelledError:
            return UNCOVERED
        touched = {name: size for match in matches for name, size in match.touched_bytes.items()}
        return Matched(cases=cases, touched_bytes=touched)

    def append(
        self,
        matched: Matched,
        operator: str,
        *,
        phase: str,
        reads: tuple[Use, ...],
        writes: tuple[Use, ...],
        module: str,
        source: str,
        form: CallLayout | None = None,
        storages: tuple[int, ...] = (),
        group: ProcessGroup | None = None,
    ) -> None:
        """Append the calls of `matched`; their storages are named once, at the first."""
        for index, (case, call_count) in enumerate(matched.cases):
            first = index == 0
            self.calls.append(
                Call(
                    case=case, operator=operator, phase=phase, module=module, source=source,
                    reads=reads if first else (), writes=writes if first else (), call_count=call_count,
                    form=form if first else None, storages=storages if first else (),
                    group=group,
                )
            )  # fmt: skip

    def _case(self, operator: str, match: Match) -> Case:
        """Return the case, the same object for the same arguments."""
        key = (operator, match.phase, frozenset(match.arguments.items()))
        if key not in self._cases:
            self._cases[key] = OPS[operator].case(match.phase, **match.arguments)
        return self._cases[key]

    def workload(
        self, name: str, step: str, origin: Mapping[str, str], assumptions: Sequence[str], guards: Sequence[str] = ()
    ) -> Workload:
        """Return the finished workload, `guards` among its assumptions; one without calls is refused."""
        if not self.calls:
            raise SpecError(f"{name}: nothing to analyse; the captured step launches no kernel")
        calls = tuple(self.calls)
        distinct_calls(calls)  # fills its cache as part of the capture: bounds and times need it next
        return Workload(
            name=name, step=step, calls=calls, buffers=tuple(self.buffers), origin=dict(origin),
            assumptions=(*assumptions, *guards), guards=tuple(guards), skipped=dict(sorted(self.skipped.items())),
            returned=tuple(self.returned), known=self.known, patterns=self.patterns,
            guessed=tuple(self.guessed),
        )  # fmt: skip


def use(tensor: Tensor, touched_bytes: int | None) -> Use:
    """Return what a call touches of the tensor's storage: all distinct elements, or `touched_bytes` of them."""
    start, stop = tensor.span_bytes
    size = tensor.bytes if touched_bytes is None else min(touched_bytes, tensor.bytes)
    return Use(buffer=tensor.buffer, bytes=size, start_bytes=start, stop_bytes=stop)
