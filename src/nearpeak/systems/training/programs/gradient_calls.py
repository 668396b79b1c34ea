"""Reductions of gradients over replicas, and gathering of parameters that replicas share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.work.dtype import dtype_of
from nearpeak.systems.training.programs.data_parallelism import DataParallelism
from nearpeak.systems.training.programs.rank_parameters import ParameterTensor
from nearpeak.systems.transformer.pass_calls import collective, kernel, pointwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Parameter tensors that are gathered together: a layer, or the model's ends."""

    name: str
    """Part of the model."""
    tensors: tuple[ParameterTensor, ...]
    """Its tensors in the order of the forward pass."""

    def elements(self, kind: str) -> int:
        """Return its parameters of a kind, `dense` or `experts`."""
        return sum(tensor.elements for tensor in self.of_kind(kind))

    @property
    def trained(self) -> "Unit":
        """The unit without frozen tensors."""
        return Unit(name=self.name, tensors=tuple(tensor for tensor in self.tensors if tensor.is_trained))

    def of_kind(self, kind: str) -> tuple[ParameterTensor, ...]:
        """Return its tensors of a kind."""
        return tuple(tensor for tensor in self.tensors if tensor.is_expert == (kind == "experts"))


def replica_groups(plan: TrainingPlan) -> tuple[tuple[str, int, str], ...]:
    """Return dimension, ranks and kind of parameters of the groups that hold equal parameters.

    `dp` is dp × cp ranks; `edp`, the replicas of an expert, tp · cp · dp / (ep · etp).
    """
    dense, every = plan.dp * plan.cp, plan.tp * plan.cp * plan.dp
    return ("dp", dense, "dense"), ("edp", every // (plan.ep * plan.etp), "experts")


def bucket_calls(units: Sequence[Unit], plan: TrainingPlan, style: DataParallelism) -> tuple[RankCall, ...]:
    """Return the reductions of gradients once a step, in the order in which they become ready: last units first.

    Buckets take tensors in reverse order and are closed by the tensor with which they hold `bucket_elements`; the last
    one is what is left. Buckets of dense parameters come before those of experts.
    """
    calls: list[RankCall] = []
    for dim, ranks, kind in replica_groups(plan):
        tensors = [tensor for unit in units for tensor in unit.of_kind(kind)]
        if ranks > 1:
            for bucket in _buckets(tensors[::-1], style):
                calls += reduction(f"gradient.{kind}", bucket, dim, plan, style)
    return tuple(calls)


def _buckets(tensors: Iterable[ParameterTensor], style: DataParallelism) -> list[tuple[ParameterTensor, ...]]:
    """Return the tensors of each bucket.

    >>> tensors = [ParameterTensor(name="weight", elements=size) for size in (30, 30, 30, 30, 5)]
    >>> [len(bucket) for bucket in _buckets(tensors, DataParallelism(bucket_elements=50))]
    [2, 2, 1]
    """
    buckets: list[tuple[ParameterTensor, ...]] = []
    bucket: list[ParameterTensor] = []
    filled = 0
    for tensor in tensors:
        bucket.append(tensor)
        filled += tensor.elements
        limit = style.first_bucket_elements if style.first_bucket_elements and not buckets else style.bucket_elements
        if filled >= limit:
            buckets.append(tuple(bucket))
            bucket, filled = [], 0
    return [*buckets, tuple(bucket)] if bucket else buckets


def reduction(
    name: str, tensors: Sequence[ParameterTensor], dim: str, plan: TrainingPlan, style: DataParallelism
) -> tuple[RankCall, ...]:
    """Return the reduction of the gradients of some tensors: scattered over shards, then summed over replicas (hsdp).

    Where they are copied, into a buffer and, unless scattered, divided there by the number of replicas.
    """
    element_count = sum(tensor.elements for tensor in tensors)
    elements = _shared_elements(tensors, dim, plan, style)
    size, beside = dtype_of(style.gradient_dtype).bytes(elements), plan.dp_overlap
    copied: tuple[RankCall, ...] = ()
    if style.copies:
        count = len(tensors)
        copy = kernel(
            f"{name}.copy",
            "copy",
            elements=elements,
            read=element_count,
            dtype=style.gradient_dtype,
            kernel_count=count,
        )
        copied = (copy,) if style.scatters else (copy, pointwise(f"{name}.mean", elements, style.gradient_dtype, "div"))
    if not style.scatters:
        return (*copied, collective(name, "all_reduce", size, dim, is_beside=beside))
    if plan.sharding != "hsdp" or dim != "dp":
        return (*copied, collective(name, "reduce_scatter", size, dim, is_beside=beside))
    return (
        *copied,
        collective(name, "reduce_scatter", size, "dp_shard", is_beside=beside),
        collective(name, "all_reduce", -(-size // shard_count(plan)), "dp_replica", is_beside=beside),
    )


def gathers(units: Sequence[Unit], plan: TrainingPlan, style: DataParallelism) -> list[list[RankCall]]:
    """Return the gathering of each unit's parameters, one call for each of the groups that share some."""
    return [
        [
            call
            for dim, ranks, kind in replica_groups(plan)
            if ranks > 1 and unit.elements(kind)
            for call in _gather(f"{unit.name}.parameters", unit.of_kind(kind), dim, plan, style)
        ]
        for unit in units
    ]


def _shared_elements(tensors: Sequence[ParameterTensor], dim: str, plan: TrainingPlan, style: DataParallelism) -> int:
    """Return the elements that travel: fully_shard pads the rows of each tensor to equal shares."""
    if not (style.copies and style.scatters):
        return sum(tensor.elements for tensor in tensors)
    shards = _shards(dim, plan)
    return sum(tensor.padded_elements(shards) for tensor in tensors)


def _shards(dim: str, plan: TrainingPlan) -> int:
    return shard_count(plan) if dim == "dp" else {name: ranks for name, ranks, _ in replica_groups(plan)}[dim]


def _gather(
    name: str, tensors: Sequence[ParameterTensor], dim: str, plan: TrainingPlan, style: DataParallelism
) -> tuple[RankCall, ...]:
    elements = _shared_elements(tensors, dim, plan, style)
    place = "dp_shard" if plan.sharding == "hsdp" and dim == "dp" else dim
    size = dtype_of(style.parameter_dtype).bytes(elements)
    gather = collective(name, "all_gather", size, place, is_beside=plan.dp_overlap)
    if not style.copies:
        return (gather,)
    into, out = (
        kernel(f"{name}.copy", "copy", elements=count, dtype=style.parameter_dtype)
        for count in (elements // _shards(dim, plan), elements)
    )
    return into, gather, out


def shard_count(plan: TrainingPlan) -> int:
    """Return the replicas over which parameters or states are split."""
    every = plan.dp * plan.cp
    return plan.shard_count or every if plan.sharding == "hsdp" else every
