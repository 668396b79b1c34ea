"""Nodes of a rank's Chakra execution trace: kernels with durations, collectives, messages between stages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, repeat
from typing import NamedTuple

from nearpeak.core.systems.pipeline_schedule import PipelineOp, PipelineSchedule
from nearpeak.core.systems.rank_program import RankCall, RankProgram, Transfer
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.systems.training.pass_order import backward_calls, without_sends
from nearpeak.systems.training.pipeline_order import ordered

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Node types of the schema (mlcommons/chakra, schema/protobuf/et_def.proto, NodeType)."""
COLLECTIVE_TYPES = {"all_reduce": 0, "all_gather": 2, "broadcast": 5, "all_to_all": 6, "reduce_scatter": 7}
"""Collectives of the schema (same file, CollectiveCommType)."""
Attribute = int | bool | str


class TraceNode(NamedTuple):
    """One node."""

    id: int
    """Number within the rank's trace, from 1."""
    name: str
    """Pass and micro-batch, then part of the model: of kernels in a row that of the first and the last."""
    type: int
    """COMPUTE, SEND, RECEIVE or COLLECTIVE."""
    needs: tuple[int, ...]
    """Nodes that must end before it starts."""
    duration_s: float
    """Duration of a kernel; 0 for communication, which the simulator times."""
    attributes: Mapping[str, Attribute]
    """What simulators read."""


class TracePlan(NamedTuple):
    """What all ranks of a pipeline share."""

    schedule: PipelineSchedule
    """Order of the passes."""
    programs: Sequence[RankProgram]
    """Program of each stage, in the order of the model."""
    case_s: Callable[[Case], float]
    """Time of a kernel."""
    group_sizes: Mapping[str, int]
    """Ranks of a group by mesh dimension."""


def rank_nodes(
    plan: TracePlan, pipeline_rank: int, rank_of: Callable[[int], int], group_of: Callable[[str], str]
) -> Iterator[TraceNode]:
    """Yield the nodes of one rank for one step, in order.

    Kernels that follow one another are one node: simulators read nothing of them but their time, and steps of many
    micro-batches have millions. Nodes of the queue follow one another; collectives beside it start after the node
    before them, and only the end of the step waits for them. A pass that needs another rank's result starts with its
    receipt, and one that another rank needs ends with its message.

    Args:
        rank_of: gives the global rank at another place of this rank's pipeline.
        group_of: gives the name of this rank's group along a mesh dimension.

    Raises:
        SpecError: stages and programs differ in number.
    """
    if len(plan.programs) != plan.schedule.stage_count:
        raise SpecError(
            f"trace of {plan.schedule.name}: {plan.schedule.stage_count} stages but {len(plan.programs)} rank programs"
        )
    order = ordered(plan.schedule)
    owners = {
        (part.kind, part.stage, part.micro_batch): int(rank)
        for rank, op in zip(order.rank, order.ops, strict=True) for part in op.parts()
    }  # fmt: skip
    queue = _Queue(plan, group_of)
    passes = {
        (kind, stage): without_sends(calls)
        for stage, program in enumerate(plan.programs)
        for kind, calls in (
            ("F", program.forward), ("B", backward_calls(program)),
            ("I", (*program.recomputed, *program.backward)), ("W", program.weight),
        )
    }  # fmt: skip
    for op in plan.schedule.ranks[pipeline_rank]:
        for part in op.parts():
            yield from _messages(queue, part, owners, rank_of, is_receipt=True)
            yield from queue.run(passes[part.kind, part.stage], str(part))
            yield from _messages(queue, part, owners, rank_of, is_receipt=False)
    last_stages = sorted({part.stage for op in plan.schedule.ranks[pipeline_rank] for part in op.parts()})
    for stage in last_stages:
        yield from queue.run(plan.programs[stage].gradient, f"gradient {stage}")
    queue.join()
    for stage in last_stages:
        yield from queue.run(plan.programs[stage].optimizer, f"optimizer {stage}")


class _Queue:
    """Numbers nodes and keeps those that the next one waits for."""

    def __init__(self, plan: TracePlan, group_of: Callable[[str], str]) -> None:
        self._plan, self._group_of, self.programs = plan, group_of, plan.programs
        self._count, self._last, self._beside = 0, tuple[int, ...](), tuple[int, ...]()
        self._rows: dict[int, list[tuple[str, int, Mapping[str, Attribute], float, bool]]] = {}

    def run(self, calls: Sequence[RankCall], where: str) -> Iterator[TraceNode]:
        """Yield the nodes of calls in order; kernels without a collective between them are one node."""
        rows = self._rows.get(id(calls))
        if rows is None:
            rows = self._rows[id(calls)] = list(self._joined(calls))
        for name, kind, attributes, duration_s, is_beside in rows:
            yield self.add(f"{where} {name}", kind, attributes, duration_s=duration_s, is_beside=is_beside)

    def _joined(self, calls: Sequence[RankCall]) -> Iterator[tuple[str, int, Mapping[str, Attribute], float, bool]]:
        """Yield name, type, attributes and duration of each node of calls, and whether it is beside the queue."""
        for is_kernel, group in groupby(calls, lambda call: call.case is not None):
            row = tuple(group)
            if is_kernel:
                time_s = sum(self._plan.case_s(call.case) * call.count for call in row if call.case is not None)
                name = " to ".join(dict.fromkeys((row[0].name, row[-1].name)))
                yield name, COMPUTE, {"is_cpu_op": False}, time_s, False
                continue
            for call in row:
                if call.transfer is not None:
                    of = self._collective(call.transfer)
                    yield from repeat((call.name, COLLECTIVE, of, 0.0, call.is_beside), call.count)

    def add(
        self, name: str, kind: int, attributes: Mapping[str, Attribute], *, duration_s: float = 0.0,
        is_beside: bool = False,
    ) -> TraceNode:  # fmt: skip
        """Return the next node; what follows waits for it unless it is beside the queue."""
        self._count += 1
        node = TraceNode(self._count, name, kind, self._last, duration_s, attributes)
        if is_beside:
            self._beside = (*self._beside, node.id)
        else:
            self._last = (node.id,)
        return node

    def join(self) -> None:
        """Let the next node wait for all collectives beside the queue."""
        self._last, self._beside = (*self._last, *self._beside), ()

    def _collective(self, transfer: Transfer) -> Mapping[str, Attribute]:
        """Return what a simulator reads of a collective; its size is that of the input of one rank."""
        if transfer.kind not in COLLECTIVE_TYPES:
            raise SpecError(f"trace: {transfer.kind} over {transfer.dim} is no collective of the Chakra schema")
        size = self._plan.group_sizes.get(transfer.dim)
        if size is None:
            raise SpecError(f"trace: no group size for the mesh dimension {transfer.dim!r} of a collective")
        return {
            "is_cpu_op": False, "comm_type": COLLECTIVE_TYPES[transfer.kind],
            "comm_size": transfer.bytes // size if transfer.kind == "all_gather" else transfer.bytes,
            "pg_name": self._group_of(transfer.dim),
        }  # fmt: skip


def _messages(
    queue: _Queue, part: PipelineOp, owners: Mapping[tuple[str, int, int], int], rank_of: Callable[[int], int], *,
    is_receipt: bool,
) -> Iterator[TraceNode]:  # fmt: skip
    """Yield the message that a pass waits for, or the one that it sends, where the other stage is on another rank."""
    if part.kind == "W":
        return
    step = 1 if part.kind == "F" else -1
    stage = part.stage - step if is_receipt else part.stage + step
    kinds = "F" if part.kind == "F" else "BI"
    owner = owners[part.kind, part.stage, part.micro_batch]
    other = next((owners[key] for kind in kinds if (key := (kind, stage, part.micro_batch)) in owners), owner)
    if other == owner:
        return
    sender, receiver = (other, owner) if is_receipt else (owner, other)
    first = stage if is_receipt else part.stage
    boundary = queue.programs[min(stage, part.stage)].forward
    sends = [call.transfer.bytes for call in boundary if call.transfer and call.transfer.kind == "send"]
    if not sends:
        raise SpecError(
            f"trace: the program of stage {min(stage, part.stage)} sends nothing, but another rank runs the next stage"
        )
    tag = 2 * (part.micro_batch * len(queue.programs) + first) + (step < 0)
    attributes = {
        "is_cpu_op": False, "comm_src": rank_of(sender), "comm_dst": rank_of(receiver), "comm_tag": tag,
        "comm_size": sends[-1],  # gradients come back in the same size
    }  # fmt: skip
    yield queue.add(f"{part} {'receive' if is_receipt else 'send'}", RECEIVE if is_receipt else SEND, attributes)
