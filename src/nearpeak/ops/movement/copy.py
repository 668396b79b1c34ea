"""Movement of elements without arithmetic: clone, concatenate, pad, roll, repeat, transpose and the like."""

from dataclasses import replace
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.pointwise.cast import converted
from nearpeak.ops.shared.call_operands import list_overloads, onnx_operands, tensors_of, together
from nearpeak.ops.shared.definition.axis_checks import required_at_most
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance


def copy(elements: int, dtype: DType, read: int | None = None) -> Work:
    """Return the least work of writing `elements` elements that come from `read` distinct ones.

    Reference and PyTorch call: y is x followed by zeros, or the beginning of x.

    Args:
        read: fewer than `elements` when some are repeated or are padding, more never; an empty input moves nothing.

    Source: definition.

    >>> copy(8, DType(name="bf16", bits_count=16), read=6).read_bytes
    12
    """
    source = elements if read is None else read
    required_at_most("copy", {"elements": elements}, read=source)
    return Work(read_bytes=dtype.bytes(source), write_bytes=dtype.bytes(elements))


def _reference(arrays: dict[str, Any], elements: int, read: int, **_: Any) -> dict[str, Any]:
    x = arrays["x"][:elements]
    return {"y": np.concatenate([x, np.zeros(max(0, elements - read), x.dtype)])}


def _torch_call(tensors: dict[str, Any], elements: int, read: int, **_: Any) -> dict[str, Any]:
    import torch

    x = tensors["x"]
    return {"y": x.clone() if read == elements else torch.nn.functional.pad(x, (0, elements - read))}


def _from_inputs(site: AtenSite) -> Match:
    """Match operators whose output holds elements of the inputs; of a single one, no more than the output has."""
    inputs, out = tensors_of(site), site.outputs[0]
    match = _gathered(list(inputs.values()), out)
    if len(inputs) != 1:
        return match
    ((name, x),) = inputs.items()
    read = min(out.elements, x.distinct)
    return Match(arguments=match.arguments, touched_bytes={name: dtype_of(x.dtype).bytes(read)})


def _strided(site: AtenSite) -> Match:
    """Match as_strided_copy, whose view may meet an element several times."""
    x, out = site.args["self"], site.outputs[0]
    view = Tensor(shape=tuple(site.args["size"]), dtype=x.dtype, strides=tuple(site.args["stride"]))
    read = min(out.elements, view.distinct)
    arguments: dict[str, Value] = {"elements": out.elements, "read": read, "dtype": out.dtype}
    return Match(arguments=arguments, touched_bytes={"self": dtype_of(x.dtype).bytes(read)})


def _unfolded(site: AtenSite) -> Match:
    """Match unfold_copy, whose windows may overlap or leave elements out."""
    x, out = site.args["self"], site.outputs[0]
    size, step = site.args["size"], site.args["step"]
    extent = x.shape[site.args["dimension"]] if x.shape else 1
    positions = (extent - size) // step + 1
    read = x.distinct // max(1, extent) * (size + (positions - 1) * min(size, step)) if size else 0
    arguments: dict[str, Value] = {"elements": out.elements, "read": min(read, out.elements), "dtype": out.dtype}
    return Match(arguments=arguments, touched_bytes={"self": dtype_of(x.dtype).bytes(min(read, out.elements))})


def _paired(site: AtenSite) -> Match:
    """Match complex, which puts two real numbers side by side."""
    real, imag = site.args["real"], site.args["imag"]
    read = real.distinct + imag.distinct
    return Match(arguments={"elements": 2 * site.outputs[0].elements, "read": read, "dtype": real.dtype})


def _gathered(inputs: list[Tensor], out: Tensor) -> Match:
    read = min(out.elements, sum(tensor.distinct for tensor in inputs))
    return Match(arguments={"elements": out.elements, "read": read, "dtype": out.dtype})


def _split(site: AtenSite) -> Match:
    """Match copying splits: one input, several outputs."""
    x = site.args["self"]
    written = sum(out.elements for out in site.outputs) or x.elements
    return Match(arguments={"elements": written, "read": min(written, x.distinct), "dtype": x.dtype})


def _from_source(site: AtenSite) -> Match:
    """Match copy_, which overwrites its first argument with the second."""
    return converted(site.args["src"], site.args["self"])


def _padded(site: AtenSite) -> Match:
    """Match constant_pad_nd; negative padding leaves elements unread."""
    x, padding = site.args["self"], site.args["pad"]
    return _cropped(x, site.outputs[0], list(zip(padding[::2], padding[1::2], strict=True))[::-1], "self")


def _cropped(x: Tensor, out: Tensor, padding: list[tuple[int, int]], name: str) -> Match:
    extents = list(x.shape)
    for index, (before, after) in enumerate(padding, len(extents) - len(padding)):
        extents[index] = max(0, extents[index] + min(0, before) + min(0, after))
    read = min(x.distinct, int(np.prod(extents, dtype=np.int64)))
    arguments: dict[str, Value] = {"elements": out.elements, "read": read, "dtype": x.dtype}
    return Match(arguments=arguments, touched_bytes={name: dtype_of(x.dtype).bytes(read)})


def _into_slice(site: AtenSite) -> Match:
    """Match slice_scatter and related calls: elements that the source replaces are not read."""
    x, source = site.args["self"], site.args["src"]
    unreplaced = max(0, x.elements - source.elements)
    match = _gathered([source, x], site.outputs[0])
    return Match(arguments=match.arguments, touched_bytes={"self": min(x.bytes, dtype_of(x.dtype).bytes(unreplaced))})


def _sharded(site: AtenSite) -> Match:
    """Match the copies of sharded data parallelism: parts into one buffer, and back out of it."""
    args = site.args
    sources = args.get("tensors") or args.get("all_gather_inputs") or [args["all_gather_output"]]
    into = args.get("out") or []
    written = sum(t.elements for t in (into if isinstance(into, list) else [into])) or sum(t.elements for t in sources)
    read = min(written, sum(t.distinct for t in sources))
    size = dtype_of(sources[0].dtype).bytes(written)
    touched = {"write:all_gather_output": size} if "all_gather_inputs" in args else {}
    return Match(arguments={"elements": written, "read": read, "dtype": sources[0].dtype}, touched_bytes=touched)


def _triangle(site: AtenSite) -> Match:
    """Match tril and triu: the other triangle is written as zeros and not read."""
    x, diagonal = site.args["self"], site.args.get("diagonal", 0)
    rows, columns = x.shape[-2:]
    below = np.clip(np.arange(rows) + diagonal + (1 if ".tril" in site.name else 0), 0, columns)
    triangle = int(below.sum()) if ".tril" in site.name else int((columns - below).sum())
    planes = x.elements // (rows * columns) if rows * columns else 0
    read = min(x.distinct, planes * triangle)
    arguments = {"elements": x.elements, "read": read, "dtype": x.dtype}
    return Match(arguments=arguments, touched_bytes={"self": dtype_of(x.dtype).bytes(read)})


def _from_onnx(site: OnnxSite) -> Match:
    """Match nodes that only move elements; shapes and bounds are launch arguments, not memory reads."""
    if site.name == _JOINED:  # scale and zero point of the result, then each operand with its own
        site = replace(site, name="Concat", inputs=site.inputs[2::3])
    inputs = onnx_operands(site) if site.name == "Concat" else tuple(t for t in site.inputs[:1] if t is not None)
    written = sum(out.elements for out in site.outputs)
    read = min(written, sum(tensor.distinct for tensor in inputs))
    out = site.outputs[0]
    touched = {} if site.name == "Concat" else {"0": dtype_of(out.dtype).bytes(read)}
    return Match(arguments={"elements": written, "read": read, "dtype": out.dtype}, touched_bytes=touched)


_JOINED = "com.microsoft.QLinearConcat"
_GATHERED = (
    "clone", "cat", "stack", "roll", "flip", "repeat", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "rot90",
    "slice_backward", "select_backward", "diagonal_backward", "unfold_backward", "_reshape_copy", "view_copy",
    "expand_copy", "permute_copy", "transpose_copy", "t_copy", "unsqueeze_copy", "squeeze_copy",
    "diag_embed", "_conj_physical", "contiguous", "_convert_weight_to_int4pack", "_convert_weight_to_int4pack_for_cpu",
    "alias_copy", "narrow_copy", "diagonal_copy", "block_diag", "_chunk_cat", "detach_copy", "_reshape_alias_copy",
    "view_as_real_copy", "view_as_complex_copy",
)  # fmt: skip

_LOOKED_UP = (
    "hardswish",
    "sigmoid",
    "leaky_relu",
    "elu",
    "celu",
    "relu6",
    "clamp",
    "threshold",
    "add_scalar",
    "mul_scalar",
)
"""Functions of one 8-bit number, which a table of 256 results answers."""
_INTO = ("slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter")

OPERATOR = Operator(
    forward=copy,
    family="movement",
    tolerance=Tolerance(kind="exact"),
    inputs=lambda read, dtype, **_: {"x": Tensor(shape=(read,), dtype=dtype)},
    reference=_reference,
    torch_call=_torch_call,
    same={"read": "elements"},
    aten={
        **{f"aten.{name}.default": _from_inputs for name in _GATHERED},
        "aten.cat.out": _from_inputs,
        **{f"quantized.{name}.default": _from_inputs for name in ("cat", "cat_relu", *_LOOKED_UP)},
        "aten.repeat_interleave.self_int": _from_inputs,
        "aten.split_copy.Tensor": _split,
        "aten.split_with_sizes_copy.default": _split,
        "aten.unbind_copy.int": _split,
        "aten.as_strided_copy.default": _strided,
        "aten.slice_copy.Tensor": _from_inputs,
        "aten.repeat_interleave.Tensor": _from_inputs,
        **{f"aten.{name}": _from_inputs for name in ("squeeze_copy.dim", "squeeze_copy.dims", "transpose_copy.int")},
        "aten.unfold_copy.default": _unfolded,
        "aten.complex.default": _paired,
        "aten.select_copy.int": _from_inputs,
        "aten.copy_.default": _from_source,
        "aten.copy.default": _from_source,
        "aten.constant_pad_nd.default": _padded,
        **{f"fsdp.{name}.default": _sharded for name in ("all_gather_copy_in", "split_with_sizes_copy", "chunk_cat")},
        "fsdp.copy_.default": lambda site: converted(site.args["data"], site.args["tensor"]),
        **{f"aten.{name}.default": _into_slice for name in _INTO},
        **{f"aten.{name}.default": _triangle for name in ("tril", "tril_", "triu", "triu_")},
        **{name: together(_from_source) for name in list_overloads("copy")},
    },
    onnx=dict.fromkeys(
        ("Transpose", "Concat", "Split", "Slice", "Pad", "Tile", "Expand", "DepthToSpace", "SpaceToDepth",
         "ReverseSequence", "Trilu", _JOINED), _from_onnx,
    ),
)  # fmt: skip
