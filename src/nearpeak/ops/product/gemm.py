"""Matrix product, batched or not, with optional bias and activation."""

from dataclasses import replace
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops.shared.arithmetic import bilinear, contraction, shared_operands
from nearpeak.ops.shared.definition.array_arithmetic import in_wide_integers, maximum, unless_empty, where
from nearpeak.ops.shared.definition.axis_checks import required_at_most, required_multiple, required_one_of
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.einsum import from_onnx as einsum
from nearpeak.ops.shared.torch_names import in_wider, torch_dtype

LAYOUTS = ("nn", "nt", "tn", "tt")


def gemm(
    m: int, n: int, k: int, dtype: DType, batch: int = 1, a_batch: int | None = None, b_batch: int | None = None,
    bias_elements: int = 0, out_dtype: DType | None = None, bias: bool = False, layout: str = "nn",
) -> Work:  # fmt: skip
    """Return the least work of Y[batch,m,n] = A[a_batch,m,k] B[b_batch,k,n] (+ bias[n]).

    Counts: 2 * batch * m * n * k FLOP, four times that for complex numbers; the bias adds one vector FLOP per output
    element. Products of integers wider than 8 bits count as vector work, which is a model: no matrix unit forms them.

    Args:
        a_batch: distinct matrices A; fewer than `batch` when A is broadcast.
        b_batch: distinct matrices B; fewer than `batch` when B is broadcast.
        bias_elements: distinct elements of the bias, where there is one; 0 stands for n.
        layout: `n` (row-major) or `t` (transposed) for how A and B lie; it changes the kernel, not the work.

    Source: definition of the matrix product; an FMA is 2 FLOP.

    >>> gemm(2, 3, 4, DType(name="bf16", bits_count=16)).read_bytes
    40
    """
    required_one_of("gemm", LAYOUTS, layout=layout)
    out = out_dtype or dtype
    elements = batch * m * n
    a = batch if a_batch is None else a_batch
    b = batch if b_batch is None else b_batch
    required_at_most("gemm", {"batch": batch}, a_batch=a, b_batch=b)
    required_at_most("gemm", {"batch*m*n": elements}, bias_elements=bias * bias_elements)
    added = bias * where(bias_elements == 0, n, bias_elements)
    return Work(
        flop=contraction(dtype, elements * k, elements if bias else None),
        read_bytes=dtype.bytes(unless_empty(elements, a * m * k))
        + dtype.bytes(unless_empty(elements, b * k * n))
        + out.bytes(unless_empty(elements, added)),
        write_bytes=out.bytes(elements),
        # Where both factors are broadcast, only products with a matrix of their own count as sharing nothing else.
        contraction=shared_operands((dtype, out), maximum(a, b) * m * n * k),
    )


def _fewest(
    m: int, n: int, k: int, batch: int, a_batch: int | None = None, b_batch: int | None = None, **_: Any
) -> int:
    """Return the multiplications that Strassen's and any other bilinear algorithm needs at least."""
    a, b = (batch if count is None else count for count in (a_batch, b_batch))
    return bilinear(a * m * k, b * k * n, batch * m * n)


def _inputs(**arguments: Any) -> dict[str, Tensor]:
    m, n, k, dtype, layout = (arguments[name] for name in ("m", "n", "k", "dtype", "layout"))
    for name in ("a_batch", "b_batch"):  # overlapping views may have any number, which no tensor here has
        required_multiple("gemm", {name: arguments[name]}, batch=arguments["batch"])
    required_one_of("gemm", LAYOUTS, layout=layout)
    tensors = {
        "a": _stored((arguments["a_batch"], m, k), dtype, layout[0]),
        "b": _stored((arguments["b_batch"], k, n), dtype, layout[1]),
    }
    return tensors | ({"bias": _stored_bias(**arguments)} if arguments["bias"] else {})


def _stored(shape: tuple[int, int, int], dtype: str, layout: str) -> Tensor:
    """Return matrices that lie row by row (`n`) or column by column (`t`)."""
    _, rows, columns = shape
    return Tensor(shape=shape, dtype=dtype, strides=(rows * columns, 1, rows) if layout == "t" else None)


def _stored_bias(m: int, n: int, batch: int, bias_elements: int, out_dtype: str, **_: Any) -> Tensor:
    """Return a bias with that many elements that broadcasts over the result."""
    wanted = bias_elements or n
    for shape in ((n,), (m, n), (batch, m, n), (batch, 1, n), (m, 1), (batch, m, 1), (1,)):
        if prod(shape) == wanted:
            return Tensor(shape=shape, dtype=out_dtype)
    raise SpecError(f"gemm: no bias over [{batch}, {m}, {n}] has {wanted} elements; give 0 for one per column")


def _reference(arrays: dict[str, Any], batch: int, bias: bool, **_: Any) -> dict[str, Any]:
    a, b = (in_wide_integers(arrays[name]) for name in "ab")
    # Each matrix of a broadcast factor serves neighbouring products.
    y = np.matmul(*(x if len(x) == batch else np.repeat(x, batch // len(x), axis=0) for x in (a, b)))
    return {"y": y + arrays["bias"] if bias else y}


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch

    out, batch = torch_dtype(torch, arguments["out_dtype"]), arguments["batch"]
    if _written_wider(torch, tensors, out):
        a, b = (_repeated(tensors[name], batch) for name in "ab")
        return {"y": torch.mm(a[0], b[0], out_dtype=out)[None] if batch == 1 else torch.bmm(a, b, out_dtype=out)}
    wide = in_wider(torch, tensors, arguments["out_dtype"])
    a, b, bias = _repeated(wide["a"], batch), _repeated(wide["b"], batch), wide.get("bias")
    if bias is None:
        y = torch.mm(a[0], b[0])[None] if batch == 1 else torch.bmm(a, b)
    else:
        flat = batch == 1 and bias.dim() < 3
        y = torch.addmm(bias, a[0], b[0])[None] if flat else torch.baddbmm(bias, a, b)
    return {"y": y.to(out)}


def _repeated(matrices: Any, batch: int) -> Any:
    return matrices if len(matrices) == batch else matrices.repeat_interleave(batch // len(matrices), 0)


def _written_wider(torch: Any, tensors: dict[str, Any], out: Any) -> bool:
    """Return whether PyTorch forms the product in fp32 without widening its operands: on GPUs, without a bias."""
    a = tensors["a"]
    halves = a.dtype in (torch.float16, torch.bfloat16) and out is torch.float32 and "bias" not in tensors
    return halves and a.device.type == "cuda" and hasattr(torch.ops.aten.mm, "dtype")


def _from_aten(site: AtenSite) -> Match:
    """Match mm, bmm, and with a bias addmm and baddbmm."""
    a = site.args.get("mat1", site.args.get("batch1", site.args["self"]))
    b = site.args["mat2"] if "mat2" in site.args else site.args["batch2"]
    return _scaled(site, _match(a, b, _out(site), bias=_bias(site)))


def _from_vectors(site: AtenSite) -> Match:
    """Match mv, addmv, dot and vdot; a vector times the transposed matrix, so that the bias has one element each."""
    matrix = site.args.get("mat", site.args["self"])
    vector = next(site.args[name] for name in ("vec", "tensor", "other") if name in site.args)
    b = _transposed(matrix) if len(matrix.shape) > 1 else _as_matrix(matrix, row=False)
    return _scaled(site, _match(_as_matrix(vector, row=True), b, _out(site), bias=_bias(site)))


def _packed(site: AtenSite) -> Match:
    """Match linear layers of torch.ao; those that quantise their input on the way multiply in the weights' format."""
    x, weight = site.args["input"], site.args["weight"]
    dtype = weight.dtype if dtype_of(x.dtype).kind == "float" else x.dtype
    rows = Tensor(shape=(prod(x.shape[:-1]), x.shape[-1]), dtype=dtype)
    return _match(rows, _transposed(weight), site.outputs[0], bias=site.args["bias"])


def _summed(site: AtenSite) -> Match:
    """Match addbmm: the products of the batch are added up, which is one product with a longer sum."""
    a, b, out = site.args["batch1"], site.args["batch2"], _out(site)
    sizes = {"m": a.shape[1], "n": b.shape[2], "k": a.shape[0] * a.shape[2], "dtype": a.dtype, "out_dtype": out.dtype}
    return _scaled(site, Match(arguments={**sizes, **_bias_arguments(_bias(site), out, b.shape[2])}))


def _outer(site: AtenSite) -> Match:
    """Match outer products: each element is one product, plus one sum for addr."""
    left, right = (site.args[name] for name in (("vec1", "vec2") if "vec1" in site.args else ("self", "vec2")))
    out, bias = _out(site), _bias(site)
    operands = (left, right) if bias is None else (bias, left, right)
    sizes = {name: min(tensor.distinct, out.elements) for name, tensor in zip("abc", operands, strict=False)}
    function = "mul" if bias is None else "addcmul"
    arguments = {"elements": out.elements, "dtype": out.dtype, "function": function, **sizes}
    return _scaled(site, Match(arguments=arguments, op="elementwise"))


_FACTORS = ("mat1", "mat2", "batch1", "batch2", "mat", "vec", "vec1", "vec2")
"""Names of what is multiplied in beta * self + alpha * product."""


def _out(site: AtenSite) -> Tensor:
    out: Tensor = site.outputs[0] if site.outputs else site.args.get("out", site.args["self"])
    return out


def _bias(site: AtenSite) -> Tensor | None:
    """Return the tensor that is added; with beta = 0 it is ignored, and products without a bias have no beta."""
    return site.args["self"] if site.args.get("beta", 0) != 0 else None


def _scaled(site: AtenSite, product: Match) -> Match:
    """Return the case of beta * self + alpha * product: a factor of 0 leaves its operands unread."""
    if "beta" not in site.args:
        return product
    out, bias = _out(site), _bias(site)
    ignored = {"self": 0} if bias is None else {}
    if site.args.get("alpha", 1) != 0:
        return Match(arguments=product.arguments, op=product.op, touched_bytes=ignored)
    ignored |= {name: 0 for name in _FACTORS if name in site.args}
    arguments: dict[str, Value] = {"elements": out.elements, "dtype": out.dtype}
    if bias is None:
        return Match(arguments=arguments, op="fill", touched_bytes=ignored)
    return Match(arguments=arguments | {"read": min(bias.distinct, out.elements)}, op="copy", touched_bytes=ignored)


def _quantised(site: OnnxSite) -> Match:
    """Match QLinearMatMul and QGemm, whose operands alternate with their scales and zero points."""
    is_gemm = site.name.endswith("QGemm")
    bare = (site.inputs[0], site.inputs[3], *((site.optional(6),) if is_gemm else ()))
    name = "Gemm" if is_gemm else "MatMul"
    return _from_onnx(OnnxSite(name=name, inputs=bare, outputs=site.outputs, attributes=site.attributes))


def _integers(site: OnnxSite) -> Match:
    """Match ONNX Runtime's products of integers: QGemm, whose operands alternate with scales, and fused MatMuls."""
    if site.name == "com.microsoft.QGemm":
        bare = (site.inputs[0], site.inputs[3], site.optional(6))
        return _from_onnx(OnnxSite(name="Gemm", inputs=bare, outputs=site.outputs, attributes=site.attributes))
    a, b = site.tensor(0), site.tensor(1)
    codes = replace(a, dtype=b.dtype)  # DynamicQuantizeMatMul quantises A on the way
    return _from_onnx(OnnxSite(name="MatMul", inputs=(codes, b), outputs=site.outputs, attributes=site.attributes))


def _from_onnx(site: OnnxSite) -> Match:
    """Match Gemm and MatMul; leading dimensions of a matrix B fold into m."""
    a, b = site.tensor(0), site.tensor(1)
    if site.name == "Gemm":
        a = _transposed(a) if site.attributes.get("transA", 0) else a
        b = _transposed(b) if site.attributes.get("transB", 0) else b
        return _match(a, b, site.outputs[0], bias=site.optional(2))
    return _match(_as_matrix(a, row=True), _as_matrix(b, row=False), site.outputs[0], bias=None)


def _fused(site: OnnxSite) -> Match:
    """Match FusedMatMul of ONNX Runtime, which turns its factors; the factor alpha is not counted."""
    if site.attributes.get("transBatchA", 0) or site.attributes.get("transBatchB", 0):
        raise NotModelledError(f"{site.name}: its batch dimensions are turned")
    turned = [
        tensor if tensor is None or len(tensor.shape) < 2 or not site.attributes.get(option, 0) else _turned(tensor)
        for tensor, option in zip(site.inputs, ("transA", "transB"), strict=False)
    ]
    return _from_onnx(replace(site, inputs=tuple(turned)))


def _turned(tensor: Tensor) -> Tensor:
    """Return `tensor` with its last two dimensions exchanged."""
    shape, strides = list(tensor.shape), list(tensor.strides or tuple(accumulate((1, *tensor.shape[:0:-1]), mul))[::-1])
    shape[-2:], strides[-2:] = shape[:-3:-1], strides[:-3:-1]
    return replace(tensor, shape=tuple(shape), strides=tuple(strides))


def _match(a: Tensor, b: Tensor, out: Tensor, *, bias: Tensor | None) -> Match:
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = out.elements // (m * n) if m * n else prod(out.shape[:-2])
    a_batch, b_batch = _distinct(a, m * k, batch), _distinct(b, k * n, batch)
    if b_batch == 1 and a_batch == batch:
        m, batch, a_batch = m * batch, 1, 1
    return Match(
        arguments={
            "m": m, "n": n, "k": k, "batch": batch, "a_batch": a_batch, "b_batch": b_batch,
            "dtype": a.dtype, "out_dtype": out.dtype, **_bias_arguments(bias, out, n),
            "layout": _layout(a) + _layout(b),
        }
    )  # fmt: skip


def _bias_arguments(bias: Tensor | None, out: Tensor, n: int) -> dict[str, Value]:
    """Return whether there is a bias and how many elements it has, 0 standing for one per column."""
    if bias is None:
        return {"bias": False}
    count = min(bias.distinct, out.elements)
    return {"bias": True, "bias_elements": 0 if count == n else count}


def _distinct(tensor: Tensor, matrix: int, batch: int) -> int:
    """Return how many distinct matrices the tensor holds, at most `batch`."""
    return min(batch, max(1, tensor.distinct // matrix)) if matrix else batch


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


def _claims() -> dict[str, Any]:
    """Return the claims of the overloads: plain, in place, with an output tensor, with an output format."""
    groups = {
        _from_aten: ("mm", "addmm", "bmm", "baddbmm", "_int_mm", "_addmm_activation"),
        _from_vectors: ("mv", "addmv", "dot", "vdot"),
        _outer: ("ger", "outer", "addr"),
        _summed: ("addbmm",),
    }
    ends = (".default", ".out", ".dtype", ".dtype_out", "_.default")
    claims = {f"aten.{name}{end}": matcher for matcher, names in groups.items() for name in names for end in ends}
    return {**claims, "nearpeak.quantised_linear.default": _packed}


OPERATOR = Operator(
    forward=gemm,
    family="product",
    tolerance=Tolerance(kind="contraction", reduction="k", rounds=("beyond",)),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
    same={"a_batch": "batch", "b_batch": "batch"},
    fewest={"forward": _fewest},
    aten=_claims(),
    onnx={
        **dict.fromkeys(("Gemm", "MatMul", "MatMulInteger"), _from_onnx),
        "com.microsoft.FusedMatMul": _fused,
        **dict.fromkeys(
            (f"com.microsoft.{name}" for name in ("QGemm", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")), _integers
        ),
        "QLinearMatMul": _quantised,
        "com.microsoft.QGemm": _quantised,
        "Einsum": einsum,
    },
)
