"""Matrix products of unequal groups in one call, as mixtures of experts need them."""

from typing import Any

import numpy as np

from nearpeak.core.dtype import DType, dtype_of
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import Work
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops._arithmetic import contraction
from nearpeak.ops._arrays import minimum
from nearpeak.ops._empty import free_when_empty
from nearpeak.ops._operator import AtenSite, Match, Numerics, Operator

_OFFSET = dtype_of("int32")
_ALIGNED_BYTES = 16
"""PyTorch's grouped product wants rows of whole multiples of this."""


@free_when_empty
def grouped_gemm(
    m: int,
    n: int,
    k: int,
    groups: int,
    dtype: DType,
    touched_groups: int = 1,
    out_dtype: DType | None = None,
    split: str = "m",
) -> Work:
    """Return the least work of one product per group, where offsets[groups] say at which row each group ends.

    Shapes: split m: Y[m,n], each row of A[m,k] times its group's B[groups,k,n] (experts, forward and the gradient of
    A). Split k: Y[groups,m,n], the columns of A[m,k] times the rows of B[k,n] group by group (the gradient of B).
    Counts: 2 * m * n * k FLOP however the rows are spread, on the assumption that the last offset is the extent that
    is split. Which groups have rows is data, between 1 and min(groups, m); a bound takes the lower end unless the
    offsets are known (assumption A9).

    Args:
        touched_groups: groups with at least one row, whose matrices must be read; all take part when k is split.
        split: m or k.

    Source: Gale et al. 2022, arXiv:2211.15841, section 4; an FMA is 2 FLOP.

    >>> grouped_gemm(4, 8, 16, 64, DType(name="bf16", bits_count=16), touched_groups=2).read_bytes
    896
    """
    out = out_dtype or dtype
    by_rows = checked(split) == "m"
    matrices = minimum(minimum(touched_groups, groups), m) if by_rows else 1
    return Work(
        flop=contraction(dtype, m * n * k),
        read_bytes=dtype.bytes(m * k) + dtype.bytes(matrices * k * n) + _OFFSET.bytes(groups),
        write_bytes=out.bytes((1 if by_rows else groups) * m * n),
    )


def checked(split: str) -> str:
    """Return `split`, refused when it is not known."""
    if split not in ("m", "k"):
        raise SpecError(f"grouped_gemm: split={split!r} is not known; there are m, k")
    return split


def _inputs(m: int, n: int, k: int, groups: int, dtype: str, split: str, **_: Any) -> dict[str, Tensor]:
    return {
        "a": Tensor(shape=(m, k), dtype=dtype),
        "b": Tensor(shape=(groups, k, n) if split == "m" else (k, n), dtype=dtype),
        "offsets": Tensor(shape=(groups,), dtype="int32"),
    }


def _ends(offsets: Any, extent: int) -> Any:
    """Return where each group ends: the numbers drawn for the offsets, sorted, the last one the whole extent."""
    ends = np.sort(np.minimum(np.asarray(offsets), extent))
    ends[-1:] = extent
    return ends


def _reference(arrays: dict[str, Any], m: int, n: int, k: int, groups: int, split: str, **_: Any) -> dict[str, Any]:
    a, b = arrays["a"], arrays["b"]
    ends = _ends(arrays["offsets"], m if split == "m" else k)
    y = np.zeros((m, n) if split == "m" else (groups, m, n))
    for group, (start, end) in enumerate(zip((0, *ends), ends, strict=False)):
        if split == "m":
            y[start:end] = a[start:end] @ b[group]
        else:
            y[group] = a[:, start:end] @ b[start:end]
    return {"y": y}


def _torch_call(tensors: dict[str, Any], m: int, k: int, split: str, **_: Any) -> dict[str, Any]:
    import torch

    a, b = tensors["a"], tensors["b"]
    ends = torch.as_tensor(_ends(tensors["offsets"].cpu().numpy(), m if split == "m" else k), device=a.device)
    aligned = all(t.shape[-1] * t.element_size() % _ALIGNED_BYTES == 0 for t in (a, b))
    if aligned and a.dtype is not torch.float64:
        return {"y": torch._grouped_mm(a, b, offs=ends)}
    starts = (0, *ends.tolist())
    pairs = [(i, slice(start, end)) for i, (start, end) in enumerate(zip(starts, ends.tolist(), strict=False))]
    if split == "m":
        return {"y": torch.cat([a[rows] @ b[i] for i, rows in pairs])}
    return {"y": torch.stack([a[:, rows] @ b[rows] for _, rows in pairs])}


def _from_aten(site: AtenSite) -> Match:
    """Match the grouped product; groups of columns are rows of the transposed product."""
    a, b, offsets, out = site.args["self"], site.args["mat2"], site.args["offs"], site.outputs[0]
    if site.args["bias"] is not None:
        raise NotModelledError("grouped_gemm: no rule for a bias per group")
    ranks = (len(a.shape), len(b.shape))
    if ranks == (3, 3):
        sizes = {"batch": a.shape[0], "m": a.shape[1], "k": a.shape[2], "n": b.shape[2]}
        return Match(arguments={**sizes, "dtype": a.dtype, "out_dtype": out.dtype}, op="gemm")
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    shared = {"k": k, "groups": offsets.elements, "dtype": a.dtype, "out_dtype": out.dtype}
    if ranks == (2, 2):
        return Match(arguments={**shared, "m": m, "n": n, "split": "k"})
    table, rows, columns, name = (b, m, n, "mat2") if ranks == (2, 3) else (a, n, m, "self")
    touched = dtype_of(table.dtype).bytes(min(1, rows, offsets.elements) * k * columns)
    return Match(arguments={**shared, "m": rows, "n": columns}, touched_bytes={name: touched})


OPERATOR = Operator(
    forward=grouped_gemm,
    source="Gale et al. 2022, arXiv:2211.15841, section 4",
    numerics=Numerics(kind="contraction", reduction="k"),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
    aten={"aten._grouped_mm.default": _from_aten},
)
