"""Distributed training in one process: written arguments of collectives, and data parallelism in Python."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

FILLED = {
    "_allgather_base_": "output_tensor", "allgather_": "output_tensors", "allgather_coalesced_": "output_lists",
    "allgather_into_tensor_coalesced_": "outputs", "_reduce_scatter_base_": "output_tensor",
    "reduce_scatter_": "output_tensors", "reduce_scatter_tensor_coalesced_": "outputs",
    "alltoall_": "output_tensors", "alltoall_base_": "output", "gather_": "output_tensors",
    "scatter_": "output_tensors", "recv_": "tensors", "recv_any_source_": "tensors",
    "all_gather_copy_in": "all_gather_output",
}  # fmt: skip
"""Argument that each operator of torch.distributed overwrites; the schemas do not say it."""

CHANGED = {"allreduce_": "tensors", "allreduce_coalesced_": "tensors", "reduce_": "tensors", "broadcast_": "tensors"}
"""Argument that each reads and writes."""


def group_text(value: Any) -> str:
    """Return a process group as matchers read it, or an empty string for other objects."""
    if "ProcessGroup" not in str(value):
        return ""
    from torch.distributed import ProcessGroup

    group = value if isinstance(value, ProcessGroup) else ProcessGroup.unbox(value)
    return f"ranks={group.size()},rank={group.rank()}"


def stand_ins() -> list[tuple[Any, str, Any]]:
    """Return what replaces the parts of data parallelism that need tensors with memory: owner, name and stand-in."""
    import torch

    if not torch.distributed.is_available():
        return []
    parallel = torch.nn.parallel.DistributedDataParallel
    return [(parallel, "__init__", _made), (parallel, "forward", _forward)]


@contextmanager
def sharding_unrecorded() -> Iterator[None]:
    """Let tensors that are shared out work out the shapes of results, which is no call of the model, unseen."""
    rules: Any = sys.modules.get("torch.distributed.tensor._sharding_prop")
    if rules is None:
        yield
        return
    from torch.utils._python_dispatch import _disable_current_modes

    owner, name = rules.ShardingPropagator, "_propagate_tensor_meta_non_cached"
    original = getattr(owner, name)

    def propagated(self: Any, *args: Any) -> Any:
        with _disable_current_modes():
            return original(self, *args)

    setattr(owner, name, propagated)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _made(
    self: Any, module: Any, *_places: Any, process_group: Any = None, bucket_cap_mb: float | None = None, **_: Any
) -> None:  # fmt: skip
    """Reduce gradients as the documented data parallelism does: in buckets, in reverse order of the parameters."""
    import torch

    torch.nn.Module.__init__(self)
    self.module = module
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for bucket in _buckets(trained[::-1], int((bucket_cap_mb or 25) * 2**20)):
        hook = _reducer(bucket, process_group)
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(hook)


def _forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.module(*args, **kwargs)


def _buckets(parameters: list[Any], cap_bytes: int) -> list[list[Any]]:
    """Return the parameters in buckets of one format of at most `cap_bytes`, or of one parameter."""
    buckets: list[list[Any]] = []
    for parameter in parameters:
        last = buckets[-1] if buckets else []
        held = sum(p.numel() * p.element_size() for p in last)
        fits = held + parameter.numel() * parameter.element_size() <= cap_bytes
        if last and fits and last[0].dtype == parameter.dtype:
            last.append(parameter)
        else:
            buckets.append([parameter])
    return buckets


def _reducer(bucket: list[Any], group: Any) -> Callable[[Any], None]:
    """Return a hook that sums a bucket's gradients over all ranks once the last of them is there."""
    arrived: set[int] = set()

    def hook(parameter: Any) -> None:
        import torch

        arrived.add(id(parameter))
        if len(arrived) < len(bucket):
            return
        arrived.clear()
        with torch.no_grad():
            flat = torch.cat([p.grad.reshape(-1) for p in bucket])
            torch.distributed.all_reduce(flat, group=group)
            flat /= torch.distributed.get_world_size(group)
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                p.grad = part.view_as(p)

    return hook
