"""Calls that an engine runs as one kernel: the first one's work, with operands and results of all."""

import dataclasses
from collections.abc import Mapping, Set

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import Call, Use


class KernelGroup:
    """One kernel of an engine, which grows by the calls that fold into it."""

    def __init__(self, position: int, call: Call) -> None:
        """Begin with a call.

        Args:
            position: place of the call in the captured step.
        """
        self.position, self.call, self.first_reads = position, call, call.reads
        self.case: Case | None = call.case
        self.is_unchanged = True
        self.elements = 0
        if call.case is not None and call.writes:
            formats = dict(call.case.dtypes)
            name = formats.get("out_dtype", formats.get("dtype", ""))
            self.elements = call.writes[0].bytes * 8 // dtype_of(name).bits_count if name else 0

    def fold(self, reads: tuple[Use, ...], writes: tuple[Use, ...]) -> None:
        """Add the operands and results of a call that becomes part of the kernel."""
        made = {use.buffer for use in self.call.writes}
        known = made | {use.buffer for use in self.call.reads}
        self.call = dataclasses.replace(
            self.call,
            reads=(*self.call.reads, *(use for use in reads if use.buffer not in known)),
            writes=(*self.call.writes, *(use for use in writes if use.buffer not in made)),
            form=None, storages=(),
        )  # fmt: skip
        self.is_unchanged = False

    def finished(self, read_buffers: Set[int], scales: Mapping[int, float]) -> Call:
        """Return the call without results that nobody reads, its storages scaled to their formats.

        Args:
            read_buffers: storages that are read, or returned.
            scales: new over old bytes by storage, where they differ.
        """
        writes = tuple(use for use in self.call.writes if use.buffer in read_buffers) or self.call.writes[-1:]
        is_same = self.case is self.call.case and not any(use.buffer in scales for use in (*self.call.reads, *writes))
        keeps_form = is_same and self.is_unchanged
        return dataclasses.replace(
            self.call, case=self.case, reads=tuple(_scaled(use, scales) for use in self.call.reads),
            writes=tuple(_scaled(use, scales) for use in writes), form=self.call.form if keeps_form else None,
            storages=self.call.storages if keeps_form else (),
        )  # fmt: skip


def _scaled(use: Use, scales: Mapping[int, float]) -> Use:
    ratio = scales.get(use.buffer, 1.0)
    if ratio == 1.0:
        return use
    sizes = {name: int(getattr(use, name) * ratio) for name in ("bytes", "start_bytes", "stop_bytes")}
    return dataclasses.replace(use, **sizes, runs=())
