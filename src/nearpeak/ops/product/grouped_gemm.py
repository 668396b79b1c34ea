"""Grouped matrix products of unequal sizes in one call (mixtures of experts), quantised or not."""

from operator import mul
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.scheme import Scheme
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops.shared.arithmetic import contraction, shared_operands
from nearpeak.ops.shared.definition.array_arithmetic import ceil_div, in_wide_integers, minimum, unless_empty
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.expert_load import counts_of
from nearpeak.ops.shared.expert_load import touched_groups as sampled_groups
from nearpeak.ops.shared.scaled_factors import formats_of, recipe_of, spread, unpacked
from nearpeak.ops.shared.torch_names import in_wider, torch_dtype

_OFFSET, _FP32 = dtype_of("int32"), dtype_of("fp32")
_ALIGNED_BYTES = 16
"""PyTorch's grouped product wants rows of whole multiples of this."""


@free_when_empty
def grouped_gemm(
    m: int, n: int, k: int, groups: int, dtype: DType, touched_groups: int = 1, out_dtype: DType | None = None,
    split: str = "m", load: str = "", accumulate: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of one product per group, where offsets[groups] say at which row each group ends.

    Shapes: split m: Y[m,n], each row of A[m,k] times its group's B[groups,k,n] (experts, forward and the gradient of
    A). Split k: Y[groups,m,n], the columns of A[m,k] times the rows of B[k,n] group by group (the gradient of B).
    Counts: 2 * m * n * k FLOP however the rows are spread, on the assumption that the last offset is the extent that
    is split. Which groups have rows is data, between 1 and min(groups, m); a bound takes the lower end unless the
    offsets are known (assumption A9).

    Args:
        dtype: a number format, or a scheme of quantised products (fp8_row, mxfp8, nvfp4, …, see scaled_gemm); each
            group's B has its own scales.
        touched_groups: groups with at least one row, whose matrices must be read; all take part when k is split. 1 is
            a case that says nothing: inputs and predictions then route each row at random; one group alone is stated by
            a load of counts.
        split: m or k.
        accumulate: the products are added to what main_grad[groups,m,n] holds in out_dtype (of split k), which is read
            and written; the sums start from it, so that it costs no FLOP.
        load: where given, how rows are spread over groups, instead of touched_groups: `uniform top_k=8 seed=0`,
            `zipf exponent=1.2 top_k=8`, `histogram weights=5,0,3` or `counts rows=5,0,3`.

    Source: Gale et al. 2022, arXiv:2211.15841, section 4; an FMA is 2 FLOP.

    >>> grouped_gemm(4, 8, 16, 64, DType(name="bf16", bits_count=16), touched_groups=2).read_bytes
    896
    """
    a, b, out = formats_of(dtype, None, out_dtype)
    required_one_of("grouped_gemm", ("m", "k"), split=split)
    by_rows = split == "m"
    matrices = _touched(load, touched_groups, groups, m) if by_rows else 1
    scales, scheme = 0, dtype.scheme
    if scheme is not None:
        a_scales, b_scales = _scale_counts(scheme, m, n, k, groups, matrices, by_rows)
        zeros = b_scales if scheme.zeros else 0
        whole = (1 + matrices if by_rows else 2) if scheme.tensor_scale_count else 0
        scales = dtype_of(scheme.scale).bytes(a_scales + b_scales + zeros) + _FP32.bytes(whole)
    if accumulate and (by_rows or scheme is not None):
        raise SpecError("grouped_gemm: accumulate=true needs split=k and a plain format: main_grad is a gradient of B")
    written = out.bytes((1 if by_rows else groups) * m * n)
    return Work(
        flop=contraction(a if a.bits_count >= b.bits_count else b, m * n * k),
        read_bytes=a.bytes(m * k) + b.bytes(matrices * k * n) + _OFFSET.bytes(groups) + scales + accumulate * written,
        write_bytes=written,
        contraction=shared_operands((a, b, out), m * n * k),
    )


def _backward(
    m: int, n: int, k: int, groups: int, dtype: DType, touched_groups: int = 1, out_dtype: DType | None = None,
    split: str = "m", load: str = "",
) -> Work:  # fmt: skip
    """Return the least work of the gradients of A and B: two grouped products, A's split alike, B's the other way.

    Counts: 4 * m * n * k FLOP. The gradient of B is written for every group, zeros for those without rows.
    """
    if dtype.scheme is not None:
        raise NotModelledError(
            f"grouped_gemm: no gradient of the scheme {dtype.name}: its products are quantised; state each forward"
        )
    out = out_dtype or dtype
    required_one_of("grouped_gemm", ("m", "k"), split=split)
    by_rows = split == "m"
    touched = _touched(load, touched_groups, groups, m if by_rows else k)
    b_read, y_read = (touched * k * n, m * n) if by_rows else (k * n, touched * m * n)
    read = dtype.bytes(m * k) + dtype.bytes(b_read) + out.bytes(y_read) + _OFFSET.bytes(groups)
    written = dtype.bytes(m * k) + dtype.bytes((groups if by_rows else 1) * k * n)
    return Work(
        flop=contraction(dtype, 2 * m * n * k),
        read_bytes=unless_empty(m * n * k, read),
        write_bytes=written,
    )


def _touched(load: str, stated: int, groups: int, rows: int) -> int:
    """Return the groups with at least one row: sampled or stated ones."""
    if load:
        return sampled_groups(load, rows, groups)
    return minimum(minimum(stated, groups), rows)


def _scale_counts(scheme: Scheme, m: int, n: int, k: int, groups: int, matrices: int, by_rows: bool) -> tuple[int, int]:
    """Return the scales of A and of those groups of B that are read."""
    if by_rows:
        return scheme.a.scale_count(m, k), matrices * scheme.b.scale_count(n, k)
    # Along a split sum, each group has scales of its own; blocks that do not straddle groups are at least these.
    along = [
        groups if operand.column_count == 0 else ceil_div(k, operand.column_count) for operand in (scheme.a, scheme.b)
    ]
    return scheme.a.scale_count(m, 1) * along[0], scheme.b.scale_count(n, 1) * along[1]


def _inputs(
    m: int, n: int, k: int, groups: int, dtype: str, split: str, out_dtype: str = "", accumulate: bool = False, **_: Any
) -> dict[str, Tensor]:
    a, b, _out = formats_of(dtype_of(dtype), None, None)
    tensors = {
        "a": Tensor(shape=(m, k), dtype=a.name),
        "b": Tensor(shape=(groups, k, n) if split == "m" else (k, n), dtype=b.name),
        "offsets": Tensor(shape=(groups,), dtype="int32"),
    }
    if accumulate:
        tensors["main_grad"] = Tensor(shape=(groups, m, n), dtype=out_dtype)
    scheme = dtype_of(dtype).scheme
    if scheme is None:
        return tensors
    if scheme.zeros or scheme.tensor_scale_count or not scheme.a.scaled or split == "k":
        raise NotModelledError(f"grouped_gemm: no reference for dtype={dtype} with split={split}")
    for side, count in zip("ab", _scale_counts(scheme, m, n, k, groups, groups, True), strict=True):
        tensors[f"{side}_scale"] = Tensor(shape=(count,), dtype=scheme.scale)
    return tensors


def _valid(
    drawn: dict[str, Any], m: int, k: int, split: str, load: str, touched_groups: int, **_: Any
) -> dict[str, Any]:
    """Return where each group ends: as the load says, with as many groups as are stated, or routed at random."""
    offsets, extent = drawn["offsets"], m if split == "m" else k
    if load:
        return {"offsets": np.cumsum(counts_of(load, extent, len(offsets)))}
    return {"offsets": np.cumsum(_routed(offsets, extent, touched_groups if split == "m" else 1))}


def _routed(drawn: Any, rows: int, touched: int) -> Any:
    """Return the rows of each group: each row in any of them, or of `touched` ones, all of which have some.

    A touched group alone is what cases have that say nothing. Of these, a group that is drawn 0 has no rows.

    Args:
        drawn: random integers, one for each group.
    """
    random, groups = np.random.default_rng(drawn.astype(np.uint32)), len(drawn)
    counts = np.zeros(groups, np.int64)
    if touched > 1:
        chosen = random.permutation(groups)[: min(touched, rows)]
        counts[chosen] = 1 + random.multinomial(rows - len(chosen), np.full(len(chosen), 1 / max(len(chosen), 1)))
    elif groups:
        some = (drawn > 0) | (not drawn.any())
        counts += random.multinomial(rows, some / some.sum())
    return counts


def _rescaled(arrays: dict[str, Any], dtype: str, groups: int) -> tuple[Any, Any]:
    """Return A and B with their scales applied, of NumPy arrays or tensors."""
    scheme, a, b = dtype_of(dtype).scheme, arrays["a"], arrays["b"]
    if scheme is None:
        return a, b
    scales = arrays["b_scale"].reshape(groups, -1)
    one_each = [spread(b[group].T, scales[group], mul, scheme.b).T for group in range(groups)]
    return spread(a, arrays["a_scale"], mul, scheme.a), one_each


def _products(a: Any, b: Any, ends: Any, split: str) -> list[Any]:
    """Return the product of each group, of NumPy arrays or tensors."""
    ends = [int(end) for end in ends]
    rows = [slice(start, end) for start, end in zip((0, *ends), ends, strict=False)]
    if split == "m":
        return [a[part] @ b[i] for i, part in enumerate(rows)]
    return [a[:, part] @ b[part] for part in rows]


def _reference(
    arrays: dict[str, Any], groups: int, dtype: str, split: str, accumulate: bool, **_: Any
) -> dict[str, Any]:
    wide = {name: in_wide_integers(array) for name, array in arrays.items()}
    products = _products(*_rescaled(wide, dtype, groups), arrays["offsets"], split)
    if accumulate:
        return {"main_grad": arrays["main_grad"] + np.stack(products)}
    return {"y": np.concatenate(products) if split == "m" else np.stack(products)}


def _backward_reference(arrays: dict[str, Any], split: str, **_: Any) -> dict[str, Any]:
    a, b, grad, ends = (arrays[name] for name in ("a", "b", "grad_y", "offsets"))
    if split == "m":
        grad_a = np.concatenate(_products(grad, b.swapaxes(-1, -2), ends, "m"))
        return {"grad_a": grad_a, "grad_b": np.stack(_products(a.T, grad, ends, "k"))}
    grad_a = np.concatenate(_products(b, grad.swapaxes(-1, -2), ends, "m")).T
    return {"grad_a": grad_a, "grad_b": np.concatenate(_products(a.T, grad, ends, "m"))}


def _torch_call(
    tensors: dict[str, Any], groups: int, dtype: str, split: str, accumulate: bool, out_dtype: str, **_: Any
) -> dict[str, Any]:
    import torch

    a, b, ends = tensors["a"], tensors["b"], tensors["offsets"]
    if dtype_of(dtype).scheme is not None:
        wide = {name: tensor.float() for name, tensor in tensors.items()}
        products = _products(*_rescaled(wide, dtype, groups), ends, split)
        return {"y": torch.cat(products).to(torch_dtype(torch, out_dtype))}
    if accumulate:  # in the format of main_grad: gradients rounded to 16 bits before they are added would be lost there
        total = tensors["main_grad"]
        products = _products(a.to(total.dtype), b.to(total.dtype), ends, split)
        return {"main_grad": total.add_(torch.stack(products))}
    wide = in_wider(torch, {"a": a, "b": b}, out_dtype)
    a, b = wide["a"], wide["b"]
    aligned = all(t.shape[-1] * t.element_size() % _ALIGNED_BYTES == 0 for t in (a, b))
    if aligned and a.dtype in (torch.float32, torch.bfloat16, torch.float16):
        return {"y": torch._grouped_mm(a, b, offs=ends).to(torch_dtype(torch, out_dtype))}
    products = _products(a, b, ends, split)
    return {"y": (torch.cat(products) if split == "m" else torch.stack(products)).to(torch_dtype(torch, out_dtype))}


def _from_aten(site: AtenSite) -> Match:
    """Match the grouped product; groups of columns are rows of the transposed product."""
    a, b, out = site.args["self"], site.args["mat2"], site.outputs[0]
    if site.args["bias"] is not None:
        raise NotModelledError("grouped_gemm: no rule for a bias per group")
    if len(a.shape) == len(b.shape) == 3:
        sizes = {"batch": a.shape[0], "m": a.shape[1], "k": a.shape[2], "n": b.shape[2]}
        return Match(arguments={**sizes, "dtype": a.dtype, "out_dtype": out.dtype}, op="gemm")
    return _match(a, b, site.args["offs"], {"dtype": a.dtype, "out_dtype": out.dtype})


def _match(a: Tensor, b: Tensor, offsets: Tensor, formats: dict[str, Value]) -> Match:
    """Return the case of two factors, of which at most one is a table with one matrix per group."""
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    shared: dict[str, Value] = {"k": k, "groups": offsets.elements, **formats}
    ranks = (len(a.shape), len(b.shape))
    if ranks == (2, 2):
        return Match(arguments={**shared, "m": m, "n": n, "split": "k"})
    table, rows, columns, name = (b, m, n, "mat2") if ranks == (2, 3) else (a, n, m, "self")
    touched = dtype_of(table.dtype).bytes(min(1, rows, offsets.elements) * k * columns)
    return Match(arguments={**shared, "m": rows, "n": columns}, touched_bytes={name: touched})


_SCHEMES = {
    ("fp8", 0): "fp8_tensor", ("fp8", 1): "fp8_row", ("fp8", 3): "mxfp8", ("fp8", 4): "fp8_block_1x128",
    ("fp4", 3): "mxfp4", ("fp4", 2): "nvfp4",
}  # fmt: skip
"""Scheme by the factors' formats and the number of PyTorch's ScalingType; all fp8 formats work alike."""


def _scaled(site: AtenSite) -> Match:
    """Match grouped products of quantised factors; the scheme shows in formats, scales and recipes."""
    a, b = unpacked(site.args["self"], -1), unpacked(site.args["mat2"], -2)
    if site.args["bias"] is not None:
        raise NotModelledError("grouped_gemm: no rule for a bias per group")
    scale, recipes = site.args["scale_a"], site.args.get("recipe_a")
    scale = scale[0] if isinstance(scale, list) else scale
    offsets = site.args["offs"]
    rows = a.elements // a.shape[-1] * (offsets.elements if offsets and len(b.shape) == 2 else 1)
    recipe = recipes[0] if recipes else recipe_of(scale, rows)
    scheme = _SCHEMES.get((a.dtype[:3], -1 if recipe is None else recipe))
    if scheme is None:
        raise NotModelledError(f"grouped_gemm: no scheme of {a.dtype} with scales of {scale.dtype}")
    formats: dict[str, Value] = {"dtype": scheme, "out_dtype": site.outputs[0].dtype}
    if len(a.shape) == len(b.shape) == 3:
        sizes: dict[str, Value] = {"m": a.shape[1], "n": b.shape[2], "k": a.shape[2]}
        return Match(arguments={**sizes, **formats}, op="scaled_gemm", call_count=a.shape[0])
    match, table = _match(a, b, offsets, formats), "b" if len(b.shape) == 3 else "a"
    if len(a.shape) == len(b.shape):
        return match
    scales = site.args[f"scale_{table}"]
    listed = enumerate(scales) if isinstance(scales, list) else [("", scales)]
    touched = {
        f"scale_{table}" + (f"[{i}]" if i != "" else ""): dtype_of(t.dtype).bytes(t.distinct // offsets.elements)
        for i, t in listed
    }
    return Match(arguments=match.arguments, touched_bytes={**match.touched_bytes, **touched})


OPERATOR = Operator(
    forward=grouped_gemm,
    family="product",
    backward=_backward,
    data_axes={"touched_groups": ("m", "groups")},
    tolerance=Tolerance(
        kind="contraction",
        reduction="k",
        below={"offsets": "m"},
        positive=("a_scale", "b_scale"),
        forward_only=("accumulate",),
        rounds=("gaps",),
    ),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    schemes=True,
    aten={
        "aten._grouped_mm.default": _from_aten,
        **dict.fromkeys(("aten._scaled_grouped_mm.default", "aten._scaled_grouped_mm_v2.default"), _scaled),
    },
)
