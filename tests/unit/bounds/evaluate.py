"""Computes the nodes of a captured step in float64, so that a rewritten step can be compared with the model itself."""

import math

import numpy as np
import torch

from nearpeak.bounds.simplify.graph_builder import read_step
from nearpeak.bounds.simplify.linear_algebra import LIFTS
from nearpeak.bounds.simplify.picked_rows import PICKED_LIFTS
from nearpeak.bounds.simplify.resampled_images import RESAMPLED_LIFTS
from nearpeak.bounds.simplify.rewrite_search import search
from nearpeak.bounds.simplify.rewrites import rules
from nearpeak.bounds.simplify.value_graph import Graph, Slot
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.tensor import Layout
from nearpeak.frontends.torch.module_capture import capture_torch

FORMATS = {
    "fp64": torch.float64,
    "fp32": torch.float64,
    "bf16": torch.float64,
    "int64": torch.int64,
    "bool": torch.bool,
}


def captured(model, *inputs):
    """Return the workload of `model` on inputs of those values."""
    return capture_torch(lambda: model, (inputs, {}), CaptureOptions(training=model.training), name="test")


def results(workload, model, inputs, *, rewritten):
    """Return what the step returns, computed from its nodes: as read, or after every rewrite."""
    graph = Graph(rules() if rewritten else {})
    roots = read_step(workload, graph, LIFTS | PICKED_LIFTS | RESAMPLED_LIFTS)
    if rewritten:
        roots, _, _ = search(graph, roots)
    roots = [
        root for root in roots if graph[root].dtype in ("fp32", "fp64")
    ]  # what an operator left in storages of its own
    held = {f"input_{place}": tensor for place, tensor in enumerate(inputs)}
    held |= dict(model.named_parameters()) | dict(model.named_buffers())
    given = {number: held.get(buffer.name) for number, buffer in enumerate(workload.buffers)}
    values = {}
    for number in graph.live(roots):
        node = graph[number]
        values[number] = evaluated(node, [values[one] for one in node.inputs], given)
        assert tuple(values[number].shape) == node.shape
    return [values[number] for number in roots]


def evaluated(node, inputs, given):
    """Return the value of one node."""
    if node.kind == "given":
        return given[node.options].detach().reshape(-1)
    if node.kind == "constant":
        return torch.full(node.shape, node.options, dtype=FORMATS[node.dtype])
    if node.kind in ("call", "pointwise"):
        return called(node.options, inputs)
    return {"view": view_term, "product": multiplied, "strided": strided, "spread": spread, "patch": patched}.get(
        node.kind, simple
    )(node, inputs)


def simple(node, inputs):
    if node.kind == "add":
        return sum(inputs[1:], inputs[0])
    if node.kind == "join":
        return torch.cat(inputs, node.options)
    assert node.kind == "turned"
    return inputs[0].flip(node.options)


def view_term(node, inputs):
    index = list(node.options.starts)
    x, rank = inputs[0], len(node.shape)
    for place, group in enumerate(node.options.groups):
        positions = [np.zeros(1, dtype=np.int64) for _ in index]
        for axis, step, extent in group:
            steps = np.arange(extent)
            positions = [
                np.add.outer(p, steps * (step if own == axis else 0)).reshape(-1) for own, p in enumerate(positions)
            ]
        shape = [-1 if own == place else 1 for own in range(rank)]
        index = [begin + torch.from_numpy(p).reshape(shape) for begin, p in zip(index, positions, strict=True)]
    index = [torch.as_tensor(one).expand(node.shape) for one in index]
    return x[tuple(index)] if index else x.expand(node.shape)


def multiplied(node, inputs):
    arguments = [part for x, labels in zip(inputs, node.options.labels, strict=True) for part in (x, list(labels))]
    return torch.einsum(*arguments, list(node.options.out)) * node.options.factor


def strided(node, inputs):
    lies, wanted = node.options
    return as_stored(inputs[0], lies).as_strided(wanted.shape, wanted.strides, wanted.offset)


def as_stored(x, layout):
    """Return the storage that holds `x` as the layout says."""
    size = layout.offset + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)) + 1
    storage = torch.zeros(size, dtype=x.dtype)
    storage.as_strided(layout.shape, layout.strides, layout.offset).copy_(x)
    return storage


def spread(node, inputs):
    whole = torch.zeros(node.shape, dtype=inputs[0].dtype)
    place = tuple(
        slice(begin, begin + step * (n - 1) + 1, step)
        for (begin, step), n in zip(node.options, inputs[0].shape, strict=True)
    )
    whole[place] = inputs[0]
    return whole


def patched(node, inputs):
    lies, part = node.options
    storage = as_stored(inputs[0], lies)
    storage = torch.cat([storage, torch.zeros(node.shape[0] - len(storage), dtype=storage.dtype)])
    storage.as_strided(part.shape, part.strides, part.offset).copy_(inputs[1])
    return storage


def called(stated, inputs):
    """Return a result of the operator itself."""
    namespace, name, overload = stated.name.split(".")
    if name == "one_hot":
        extents = stated.value("extents")
        places = torch.broadcast_tensors(*inputs)
        if stated.value("dim") is not None:
            places = list(torch.meshgrid(*(torch.arange(n) for n in inputs[0].shape), indexing="ij"))
            places[stated.value("dim")] = inputs[0]
        strides = [math.prod(extents[place + 1 :]) for place in range(len(extents))]
        whole = sum(stride * place for place, stride in zip(places, strides, strict=True))
        return torch.nn.functional.one_hot(whole, math.prod(extents)).to(torch.float64)
    if name == "resampling":
        return weights_of(**dict(stated.arguments))
    if name == "attention":
        return torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=stated.value("is_causal"))
    function = getattr(getattr(getattr(torch.ops, namespace), name), overload)

    def opened(value):
        if isinstance(value, Slot):
            return inputs[value.position].clone(memory_format=torch.contiguous_format)
        if isinstance(value, tuple) and not isinstance(value, Layout):
            return [opened(item) for item in value]
        return FORMATS.get(value, value) if isinstance(value, str) else value

    found = function(**{name: opened(value) for name, value in stated.arguments if value is not None})
    found = found if isinstance(found, (tuple, list)) else (found,)
    return [one for one in found if one is not None][max(stated.result, 0)]


def weights_of(sources, positions, operator, scale, corners):
    """Return the matrix of weights of a change of size, as PyTorch resizes the identity."""
    if operator == "nearest_exact":
        return torch.eye(sources, dtype=torch.float64).repeat_interleave(positions // sources, 0)
    beside = (2,) * (int(operator.removesuffix("_aa")[-2]) - 1)  # PyTorch smooths images of one column otherwise
    image = torch.eye(sources, dtype=torch.float64).reshape(1, sources, sources, *(1 for _ in beside))
    image = image.expand(-1, -1, -1, *beside).contiguous()
    flags = () if "nearest" in operator else (corners,)
    made = getattr(torch.ops.aten, operator)(
        image, [positions, *beside], *flags, scale or None, *(None for _ in beside)
    )
    return made[(0, slice(None), slice(None), *(0 for _ in beside))].T


def close(left, right):
    """Say whether two lists of tensors agree as far as float64 rounds."""
    return len(left) == len(right) and all(
        torch.allclose(a.to(torch.float64), b.to(torch.float64), rtol=1e-9, atol=1e-9 * math.sqrt(max(a.numel(), 1)))
        for a, b in zip(left, right, strict=True)
    )
