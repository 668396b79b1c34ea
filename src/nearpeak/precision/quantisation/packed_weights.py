"""Weight-only quantisation of ONNX products: weights packed into 4 or 8 bits in blocks, as `MatMulNBits` reads them."""

from typing import Any

import numpy as np

from nearpeak.errors import NotModelledError

BLOCK_COUNT = 32
"""Weights along the sum that share a scale."""
_DOMAIN = "com.microsoft"


def pack_blocks(weights: Any, bits: int) -> tuple[Any, Any]:
    """Return the packed codes [n, blocks, bytes] and scales [n, blocks] of weights [k, n], symmetric about 2^(bits-1).

    Source: ONNX Runtime 1.32, docs/ContribOperators.md, com.microsoft.MatMulNBits.

    >>> codes, scales = pack_blocks(np.array([[1.0], [-8.0]]), 4)
    >>> int(codes[0, 0, 0]), float(scales[0, 0])  # 1 + 8 in the low half, -8 + 8 in the high one
    (9, 1.0)
    """
    depth, columns = weights.shape
    blocks = -(-depth // BLOCK_COUNT)
    padded = np.zeros((blocks * BLOCK_COUNT, columns), np.float32)
    padded[:depth] = weights
    grouped = padded.T.reshape(columns, blocks, BLOCK_COUNT)
    half = 2 ** (bits - 1)
    largest = np.take_along_axis(grouped, np.abs(grouped).argmax(-1)[..., None], -1)[..., 0]
    scales = np.where(largest == 0, 1.0, largest / -half).astype(np.float32)  # the largest becomes -half, exactly
    codes = np.clip(np.rint(grouped / scales[..., None]) + half, 0, 2 * half - 1).astype(np.uint8)
    return (codes if bits == 8 else codes[..., ::2] | (codes[..., 1::2] << 4)), scales


def with_packed_weights(onnx: Any, model: Any, bits: int) -> Any:
    """Return a model whose products with stored matrices of weights take them packed.

    Raises:
        NotModelledError: it has no such product.
    """
    packed = onnx.ModelProto()
    packed.CopyFrom(model)
    graph, changed = packed.graph, set[str]()
    stored = {item.name: item for item in graph.initializer if len(item.dims) == 2}
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in stored:
            continue
        name = node.input[1]
        weights = onnx.numpy_helper.to_array(stored[name])
        if name not in changed:
            codes, scales = pack_blocks(weights, bits)
            graph.initializer.append(onnx.numpy_helper.from_array(codes, f"{name}_packed"))
            graph.initializer.append(onnx.numpy_helper.from_array(scales.reshape(-1), f"{name}_scales"))
        changed.add(name)
        depth, columns = weights.shape
        node.op_type, node.domain = "MatMulNBits", _DOMAIN
        node.input[:] = [node.input[0], f"{name}_packed", f"{name}_scales"]
        numbers = {"K": depth, "N": columns, "bits": bits, "block_size": BLOCK_COUNT}
        node.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in numbers.items())
    if not changed:
        raise NotModelledError("no MatMul with stored weights, which alone could be packed")
    read = {name for node in graph.node for name in node.input}
    for item in [item for item in graph.initializer if item.name not in read]:
        graph.initializer.remove(item)
    if _DOMAIN not in {item.domain for item in packed.opset_import}:
        packed.opset_import.add(domain=_DOMAIN, version=1)
    return packed
