"""Distributed training in one process: written arguments of collectives, and data parallelism in Python."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nearpeak.core.work.process_group import process_group, text_of_group

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


GROUP_ARGUMENTS = ("group_name", "process_group")
"""Arguments that name a collective's group."""


class GroupTexts:
    """Descriptions of process groups, as matchers and workloads read them; each is worked out once."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def of_object(self, value: Any) -> str:
        """Return a process group as text, or an empty string for other objects."""
        if "ProcessGroup" not in str(value):
            return ""
        from torch.distributed import ProcessGroup

        return self._text(value if isinstance(value, ProcessGroup) else ProcessGroup.unbox(value))

    def of_name(self, name: str) -> str:
        """Return the group that PyTorch has registered under a name as text, or the name of an unknown one."""
        from torch.distributed.distributed_c10d import _resolve_process_group

        if name not in self._texts:
            try:
                self._texts[name] = self._text(_resolve_process_group(name))
            except (RuntimeError, ValueError, LookupError):
                return name
        return self._texts[name]

    def _text(self, group: Any) -> str:
        name = group.group_name
        if name not in self._texts:
            self._texts[name] = text_of_group(process_group(_ranks(group), group.rank(), _dimension(group)))
        return self._texts[name]


def _ranks(group: Any) -> tuple[int, ...]:
    """Return the numbers of a group's members in the job; counted from 0 where PyTorch has not registered it."""
    from torch.distributed import get_process_group_ranks

    try:
        return tuple(get_process_group_ranks(group))
    except (RuntimeError, ValueError, LookupError):
        return tuple(range(group.size()))


def _dimension(group: Any) -> str:
    """Return the name of the mesh dimension that a group lies along; empty where nothing names it.

    A mesh of one dimension over all ranks has the default group, whose description names no dimension: the mesh does.
    """
    described = str(getattr(group, "group_desc", ""))
    if described not in ("default_pg", "undefined"):
        return described.removeprefix("mesh_")
    meshes: Any = sys.modules.get("torch.distributed.device_mesh")
    if meshes is None:
        return ""
    names = {
        mesh.mesh_dim_names[0]
        for mesh in gc.get_objects()
        if type(mesh) is meshes.DeviceMesh and mesh.ndim == 1 and mesh.mesh_dim_names and mesh.size() == group.size()
    }
    return str(names.pop()) if len(names) == 1 else ""


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
