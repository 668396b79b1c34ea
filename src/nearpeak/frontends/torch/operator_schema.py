"""Properties of ATen overloads derived from their schemas: arguments, mutations, views, generators."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from nearpeak.frontends.torch.process_groups import CHANGED, FILLED

CALL, VIEW, FREE, METADATA = "call", "view", "free", "metadata"

_FREE = frozenset({
    "_unsafe_view", "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
    "lift", "lift_fresh", "lift_fresh_copy", "detach", "alias", "_local_scalar_dense", "resize_", "set_",
    "record_stream", "is_pinned", "is_same_size", "equal", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk",
    "as_strided_", "squeeze_", "unsqueeze_", "t_", "transpose_", "_linalg_check_errors",
    "swapaxes_", "swapdims_", "detach_", "wait_tensor", "barrier", "monitored_barrier_", "check_for_nan",
    "resize_as_", "_resize_output_", "allclose",
})  # fmt: skip
"""Launch no kernel although their schema does not call them views; a scalar's value is a synchronisation."""

GENERATORS = frozenset({
    "arange", "zeros", "ones", "full", "scalar_tensor", "eye", "linspace", "logspace", "tril_indices",
    "triu_indices", "rand", "randn", "randint", "randperm", "normal", "new_zeros", "new_ones", "new_full",
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
})  # fmt: skip
"""Their results can be generated again instead of being read."""

_OVERWRITERS = frozenset({
    "zero_", "fill_", "copy_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_", "log_normal_",
    "geometric_", "cauchy_",
})  # fmt: skip
"""In-place operators that do not read what they overwrite."""

_HIDDEN_WRITES = {"native_batch_norm": ("running_mean", "running_var")}
"""Mutations in training that the schema does not state."""

_RENAMED = {
    # The GPU builds of PyTorch run these under their own names; composites stand in for them on fake CPU tensors.
    "nearpeak.rms_norm.default": "aten._fused_rms_norm.default",
    "nearpeak.rms_norm_backward.default": "aten._fused_rms_norm_backward.default",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to record one overload."""

    name: str
    """Overload as calls name it, e.g. `aten.mm.default`."""
    packet: str
    """Operator without overload, e.g. `mm`."""
    kind: str
    """`call`, `view`, `free` (no kernel) or `metadata` (not even counted)."""
    arguments: tuple[tuple[str, Any], ...]
    """Names and defaults in the order of the schema."""
    mutated: frozenset[str]
    """Arguments that are written in place."""
    unread: frozenset[str]
    """Mutated arguments whose former values are not read."""
    hidden: tuple[str, ...]
    """Arguments that are written in training without the schema saying so."""
    generates: bool
    """True when the result can be generated again instead of being read."""


@cache
def plan_of(func: Any) -> Plan:
    """Return how to record the overload `func`."""
    schema, packet = func._schema, func._schema.name.split("::")[1]
    mutated = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    unread = [a for a in mutated if packet in _OVERWRITERS or a.kwarg_only]
    if func.namespace in ("c10d", "fsdp") and (packet in FILLED or packet in CHANGED):
        unread = [a for a in schema.arguments if a.name == FILLED.get(packet)]
        mutated = [a for a in schema.arguments if a.name == CHANGED.get(packet)] + unread
    is_metadata = func.namespace in ("prim", "profiler") or packet.startswith(("_has_", "sym_", "_assert"))
    kind = METADATA if is_metadata else FREE if packet in _FREE else CALL
    return Plan(
        name=_RENAMED.get(str(func), str(func)),
        packet=packet,
        kind=VIEW if func.is_view and kind == CALL else kind,
        arguments=tuple((a.name, a.default_value if a.has_default_value() else None) for a in schema.arguments),
        mutated=frozenset(a.name for a in mutated),
        unread=frozenset(a.name for a in unread),
        hidden=_HIDDEN_WRITES.get(packet, ()),
        generates=packet in GENERATORS or (packet in _OVERWRITERS and packet != "copy_"),
    )
