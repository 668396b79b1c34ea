"""What PyTorch's and cuDNN's kernels were seen to do on an H200 (2026-11-27), written for a CPU."""

import torch

from nearpeak.ops.norm.rms_norm import EPSILON as RMS_EPSILON
from nearpeak.ops.recurrent.recurrent import _names
from nearpeak.ops.shared.narrow_arithmetic import blocks_of, largest_of, narrowed_by_torch
from nearpeak.ops.shared.normalisation import EPSILON

GATE_ERROR = 1.2e-6
"""Of each exponential and tangent; cuDNN's states are up to 2.7e-6 off, those of a plain tangent 6e-6."""


def group_norm(tensors, *, groups, channels, keep=lambda one, dtype: one.to(dtype).float(), **_):
    """PyTorch: mean and factor are kept in the format of the input."""
    x = tensors["input"]
    parts = x.float().reshape(len(x), groups, -1)
    mean = parts.mean(-1, keepdim=True)
    factor = (parts.var(-1, unbiased=False, keepdim=True) + EPSILON).rsqrt()
    mean, factor = (
        keep(one, x.dtype).expand(-1, -1, channels // groups).reshape(len(x), channels, 1) for one in (mean, factor)
    )
    weight = tensors.get("weight", torch.ones(channels)).float()[:, None]
    bias = tensors.get("bias", torch.zeros(channels)).float()[:, None]
    scale = factor * weight
    return {"output": (x.float() * scale + (bias - mean * scale)).to(x.dtype)}


def rms_norm(tensors, **_):
    """PyTorch: a row that holds an infinity is NaN."""
    x = tensors["input"].float()
    square = (x * x).mean(-1, keepdim=True) + RMS_EPSILON
    y = x * square.rsqrt() + torch.where(square.isinf(), torch.nan, 0.0)
    return {"output": (y * tensors["weight"].float() if "weight" in tensors else y).to(tensors["input"].dtype)}


def mode(tensors, **_):
    """PyTorch: of several most frequent values it need not be the smallest."""
    values, indices = [], []
    for row in tensors["x"]:
        found, counts = row.unique(return_counts=True)
        values.append(found[counts == counts.max()][-1])
        indices.append((row == values[-1]).nonzero()[0, 0])
    return {"values": torch.stack(values), "indices": torch.stack(indices)}


def quantise(tensors, *, way, out_dtype, block_rows, block_columns, **_):
    """PyTorch divides by a number as it multiplies by its reciprocal; others scale by the quotient the other way."""
    x, blocks, largest = tensors["x"].float(), (max(block_rows, 1), max(block_columns, 1)), largest_of(out_dtype)
    low, top = blocks_of(x, *blocks, torch)
    amax = torch.maximum(-low, top)
    usable = amax.isfinite() & (amax > 0)
    scale = amax * torch.tensor(1 / largest) if way == "reciprocal" else amax / largest
    factor = torch.where(usable, largest / amax if way == "other way round" else 1 / scale, 1.0)
    scale = torch.where(usable, 1 / factor if way == "other way round" else scale, 1.0)
    spread = factor[torch.arange(x.shape[0]) // blocks[0]][:, torch.arange(x.shape[1]) // blocks[1]]
    q = narrowed_by_torch(x * spread, torch.ones_like(scale), None, blocks, out_dtype, None)
    return {"q": q, "scale": scale.reshape(-1)}


def recurrent(tensors, *, cell, layers, directions, batch, hidden, error=GATE_ERROR, **_):
    """cuDNN: exponentials and tangents in a few steps."""

    def tangent(x):
        return torch.tanh(x) + error * torch.sin(37 * x).nan_to_num(0).detach()

    def sigmoid(x):
        return torch.sigmoid(x) + error * torch.sin(41 * x).nan_to_num(0).detach()

    def step(given, kept, cells):
        if cell == "rnn_tanh":
            return tangent(given + kept), cells
        if cell == "lstm":
            first, forget, new, last = (given + kept).chunk(4, -1)
            cells = sigmoid(forget) * cells + sigmoid(first) * tangent(new)
            return sigmoid(last) * tangent(cells), cells
        parts = list(zip(given.chunk(3, -1), kept.chunk(3, -1), strict=True))
        reset, update = (sigmoid(left + right) for left, right in parts[:2])
        new = tangent(parts[2][0] + reset * parts[2][1])
        return (1 - update) * new + update * step.state, cells

    x, names = tensors["x"], _names(layers, directions)
    zeros, states, kept_cells = x.new_zeros(len(names), batch, hidden), [], []
    for layer in range(layers):
        outputs = []
        for back in range(directions):
            number = layer * directions + back
            name, h, c = names[number], tensors.get("h0", zeros)[number], tensors.get("c0", zeros)[number]
            found = [x[0]] * len(x)
            for at in reversed(range(len(x))) if back else range(len(x)):
                step.state = h
                given = x[at] @ tensors[f"w_ih{name}"].T + tensors.get(f"b_ih{name}", 0.0)
                h, c = step(given, h @ tensors[f"w_hh{name}"].T + tensors.get(f"b_hh{name}", 0.0), c)
                found[at] = h
            outputs.append(torch.stack(found))
            states.append(h)
            kept_cells.append(c)
        x = torch.cat(outputs, -1)
    return {"output": x, "h_n": torch.stack(states)} | ({"c_n": torch.stack(kept_cells)} if cell == "lstm" else {})
