"""Operators with data-dependent output sizes: known values set the size, unknown ones are guessed and counted."""

from typing import Any

SIZED_BY_VALUES = frozenset({"index", "nonzero", "masked_select", "repeat_interleave"})
"""ATen operators that refuse fake tensors without values."""
SIZED_BY_DISTINCT = frozenset({"_unique2", "unique_consecutive", "unique_dim"})
"""ATen operators whose result size is the number of distinct values."""
CHOICES = frozenset({"topk", "argmax", "max"})
"""ATen operators with which a router selects experts."""
CONSTANT_ELEMENTS = 65536
"""Fake tensors up to this size carry their values when these are known without any input."""
_LARGEST_GUESS_ELEMENTS = 1 << 20
_FEW = 256


def sized(values: Any, packet: str, args: Any) -> Any:
    """Return arguments with known values in place of those that determine the size of the result.

    If `values` may guess sizes, an unknown mask selects everything or as many as is stated, unknown repeats are one
    each, and unknown values are all different; guesses are counted.
    """
    if packet == "index":
        return args[0], [positions for index in args[1] for positions in _positions(values, index)]
    if packet in SIZED_BY_DISTINCT:
        return (_decided(values, packet, args[0]), *args[1:])
    if packet == "masked_select":
        return args[0], _decided(values, packet, args[1])
    if (
        packet == "nonzero"
        and args[0].numel() * args[0].dim() > CONSTANT_ELEMENTS
        and getattr(args[0], "constant", None) is None
    ):
        return (_some(values, args[0]),)
    return (_decided(values, packet, args[0]), *args[1:])


def _positions(values: Any, index: Any) -> list[Any]:
    """Return an equivalent of `index`: itself, or one tensor of positions per dimension of a mask."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    if index is None or str(index.dtype) not in ("torch.bool", "torch.uint8"):
        return [index]
    decided = _decided(values, "index", index).constant
    if decided is None:
        return [index]
    with unset_fake_temporarily():
        count = int(decided.count_nonzero())
        few = count * decided.dim() <= CONSTANT_ELEMENTS
        positions = [column.clone() for column in decided.nonzero(as_tuple=True)] if few else []
    return [values.known(column) for column in positions] or [
        torch.empty(count, dtype=torch.int64) for _ in range(decided.dim())
    ]


def picked(tensor: Any, mask: Any) -> int | None:
    """Return the number of elements that a known mask selects of a tensor with unknown values, else none."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    known = getattr(mask, "constant", None)
    if known is None or getattr(tensor, "constant", None) is not None:
        return None
    with unset_fake_temporarily():
        return int(known.expand(torch.broadcast_shapes(tensor.shape, known.shape)).sum())


def _some(values: Any, tensor: Any) -> Any:
    """Return a small substitute for a large unknown tensor: few of its elements are assumed to be true."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    if not (values.guess_sizes or values.building):
        return tensor
    values.guess_size("nonzero", f"{_FEW} elements of a large tensor")
    with unset_fake_temporarily():
        real = torch.ones((_FEW, *(1 for _ in tensor.shape[1:])), dtype=tensor.dtype)
    return values.known(real)


def _decided(values: Any, packet: str, tensor: Any) -> Any:
    """Return `tensor` if its values are known or may not be guessed, else one that is true everywhere."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    if getattr(tensor, "constant", None) is not None:
        values.read(packet, "as given", tensor)
        return tensor
    if not (values.guess_sizes or values.building):
        return tensor
    if tensor.numel() > _LARGEST_GUESS_ELEMENTS:
        return tensor
    distinct = packet in SIZED_BY_DISTINCT
    few = None if distinct or packet == "repeat_interleave" else values.selected_count
    answer = "one each" if packet == "repeat_interleave" else "all different" if distinct else "everything"
    values.guess_size(packet, answer if few is None else f"{few} of the elements")
    with unset_fake_temporarily():
        if few is not None:
            return values.known((torch.arange(tensor.numel()) < few).reshape(tensor.shape).to(tensor.dtype))
        ones = torch.ones(1, dtype=tensor.dtype).expand(tensor.shape)
        real = torch.arange(tensor.numel()).reshape(tensor.shape).to(tensor.dtype) if distinct else ones
        along = values.complements(tensor)
        if along is not None:  # what is true in one half is false in the other, so half of all is picked
            real = torch.cat([half.fill_(index == 0) for index, half in enumerate(ones.clone().chunk(2, along))], along)
    return values.known(real)


def routed(values: Any, packet: str, args: Any, out: Any) -> Any:
    """Return the result of a top-k or argmax; a router with unknown scores selects its experts in turn.

    The expert of a token is data, the total number of pairs is not: a loop over the experts then processes every
    pair of token and expert once.
    """
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    scores, chosen = args[0], out[1] if isinstance(out, (tuple, list)) else out
    along = (
        args[{"topk": 2}.get(packet, 1)] if len(args) > {"topk": 2}.get(packet, 1) else -1 if packet == "topk" else None
    )
    if (
        along is None or along % scores.dim() != scores.dim() - 1 or scores.shape[-1] not in values.expert_counts
        or getattr(scores, "constant", None) is not None or not 0 < chosen.numel() <= CONSTANT_ELEMENTS
    ):  # fmt: skip
        return out
    values.guess(packet, "experts in turn")
    with unset_fake_temporarily():
        real = (torch.arange(chosen.numel()) % scores.shape[-1]).view(chosen.shape)
    turns = values.known(real)
    return type(out)((out[0], turns)) if isinstance(out, (tuple, list)) else turns
