"""Matrix product, batched or not, with optional bias and activation."""

from typing import Any

import numpy as np

from nearpeak.core.dtype import DType
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import Work
from nearpeak.ops._operator import AtenSite, Match, Numerics, OnnxSite, Operator


def gemm(
    m: int,
    n: int,
    k: int,
    dtype: DType,
    batch: int = 1,
    a_batch: int | None = None,
    b_batch: int | None = None,
    out_dtype: DType | None = None,
    bias: bool = False,
    layout: str = "nn",
) -> Work:
    """Return the least work of Y[batch,m,n] = A[a_batch,m,k] B[b_batch,k,n] (+ bias[n]).

    Counts: 2 * batch * m * n * k FLOP; the bias adds one vector FLOP per output element.

    Args:
        a_batch: distinct matrices A; fewer than `batch` when A is broadcast.
        b_batch: distinct matrices B; fewer than `batch` when B is broadcast.
        layout: `n` (row-major) or `t` (transposed) for A and B; it changes the kernel, not the work.

    Source: definition of the matrix product; an FMA is 2 FLOP.

    >>> gemm(2, 3, 4, DType(name="bf16", bits_count=16)).read_bytes
    40
    """
    out = out_dtype or dtype
    elements = batch * m * n
    a = batch if a_batch is None else a_batch
    b = batch if b_batch is None else b_batch
    return Work(
        flop={f"matrix.{dtype.name}": 2 * elements * k} | ({"vector.fp32": elements} if bias else {}),
        read_bytes=dtype.bytes(a * m * k) + dtype.bytes(b * k * n) + (out.bytes(n) if bias else 0),
        write_bytes=out.bytes(elements),
    )


def _inputs(
    m: int, n: int, k: int, dtype: str, batch: int, a_batch: int, b_batch: int, out_dtype: str, bias: bool, layout: str
) -> dict[str, Tensor]:
    tensors = {
        "a": Tensor(shape=(a_batch, m, k), dtype=dtype),
        "b": Tensor(shape=(b_batch, k, n), dtype=dtype),
    }
    return tensors | ({"bias": Tensor(shape=(n,), dtype=out_dtype)} if bias else {})


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    y = np.matmul(_spread(arrays["a"], arguments["batch"]), _spread(arrays["b"], arguments["batch"]))
    return {"y": y + arrays["bias"] if arguments["bias"] else y}


def _spread(array: Any, batch: int) -> Any:
    """Repeat `array` along its first dimension up to `batch`, each matrix serving neighbouring products."""
    return array if len(array) == batch else np.repeat(array, batch // len(array), axis=0)


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch

    a, b, batch = tensors["a"], tensors["b"], arguments["batch"]
    a = a if len(a) == batch else a.repeat_interleave(batch // len(a), 0)
    b = b if len(b) == batch else b.repeat_interleave(batch // len(b), 0)
    if batch == 1 and arguments["bias"]:
        return {"y": torch.addmm(tensors["bias"], a[0], b[0])[None]}
    y = torch.mm(a[0], b[0])[None] if batch == 1 else torch.bmm(a, b)
    return {"y": y + tensors["bias"] if arguments["bias"] else y}


def _from_aten(site: AtenSite) -> Match:
    """Match mm, addmm, bmm and baddbmm."""
    a = site.args.get("mat1", site.args.get("batch1", site.args["self"]))
    b = site.args["mat2"] if "mat2" in site.args else site.args["batch2"]
    return _match(a, b, site.outputs[0], bias="mat1" in site.args or "batch1" in site.args)


def _from_onnx(site: OnnxSite) -> Match:
    """Match Gemm and MatMul; leading dimensions of a matrix B fold into m."""
    a, b = site.inputs[0], site.inputs[1]
    assert a is not None
    assert b is not None
    if site.name == "Gemm":
        a = _transposed(a) if site.attributes.get("transA", 0) else a
        b = _transposed(b) if site.attributes.get("transB", 0) else b
        return _match(a, b, site.outputs[0], bias=len(site.inputs) > 2 and site.inputs[2] is not None)
    return _match(_as_matrix(a, row=True), _as_matrix(b, row=False), site.outputs[0], bias=False)


def _match(a: Tensor, b: Tensor, out: Tensor, *, bias: bool) -> Match:
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    matrix = m * n if m * n else 1
    batch = out.elements // matrix
    a_batch, b_batch = _distinct(a, m * k, batch), _distinct(b, k * n, batch)
    if b_batch == 1 and a_batch == batch:
        m, batch, a_batch = m * batch, 1, 1
    return Match(
        arguments={
            "m": m, "n": n, "k": k, "batch": batch, "a_batch": a_batch, "b_batch": b_batch,
            "dtype": a.dtype, "out_dtype": out.dtype, "bias": bias, "layout": _layout(a) + _layout(b),
        }
    )  # fmt: skip


def _distinct(tensor: Tensor, matrix: int, batch: int) -> int:
    """Return how many distinct matrices the tensor holds, at most `batch`."""
    return max(1, min(batch, tensor.distinct // matrix)) if matrix else 1


def _layout(tensor: Tensor) -> str:
    strides = tensor.strides
    return "t" if strides and strides[-1] != 1 and strides[-2] == 1 else "n"


def _transposed(tensor: Tensor) -> Tensor:
    rows, columns = tensor.shape
    return Tensor(shape=(columns, rows), dtype=tensor.dtype, strides=(1, columns), buffer=tensor.buffer)


def _as_matrix(tensor: Tensor, *, row: bool) -> Tensor:
    if len(tensor.shape) > 1:
        return tensor
    shape = (1, *tensor.shape) if row else (*tensor.shape, 1)
    return Tensor(shape=shape, dtype=tensor.dtype, buffer=tensor.buffer)


OPERATOR = Operator(
    forward=gemm,
    source="definition of the matrix product",
    numerics=Numerics(kind="contraction", reduction="k"),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
    same={"a_batch": "batch", "b_batch": "batch"},
    aten={f"aten.{name}.default": _from_aten for name in ("mm", "addmm", "bmm", "baddbmm")},
    onnx={"Gemm": _from_onnx, "MatMul": _from_onnx},
)
