"""Kernels written by hand, right and wrong ones: mistakes that people make, and orders that good kernels compute in."""

import math
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812


def attention(tensors, *, scaled=True, first=None, wrapped=False, tile=0, rescaled=True, **_):
    """Attention in fp32: `first` keys are live for the first query, key heads in blocks or wrapped, online by tiles."""
    q, k, v = (tensors[name].float() for name in ("query", "key", "value"))
    heads, groups = q.shape[1], k.shape[1]
    of = torch.arange(heads) % groups if wrapped else torch.arange(heads) // (heads // groups)
    scores = q @ k[:, of].transpose(-1, -2) / (math.sqrt(q.shape[-1]) if scaled else 1.0)
    if first is not None:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(first - 1), -torch.inf)
    if not tile:
        return {"output": (torch.softmax(scores, -1) @ v[:, of]).to(tensors["query"].dtype)}
    most = torch.full_like(scores[..., :1], -1e30)
    total, y = torch.zeros_like(most), torch.zeros_like(q[..., : v.shape[-1]])
    for at in range(0, scores.shape[-1], tile):
        part = scores[..., at : at + tile]
        higher = torch.maximum(most, part.amax(-1, keepdim=True))
        weights, shrink = torch.exp(part - higher), torch.exp(most - higher) if rescaled else 1.0
        total = total * shrink + weights.sum(-1, keepdim=True)
        y, most = y * shrink + weights @ v[:, of, at : at + tile], higher
    return {"output": (y / total).to(tensors["query"].dtype)}


def rotated(tensors, *, pairs="halves", back=False, **_):
    x, cos, sin = (tensors[name].float() for name in ("x", "cos", "sin"))
    sin = -sin if back else sin
    first, second = x.chunk(2, -1) if pairs == "halves" else (x[..., ::2], x[..., 1::2])
    parts = first * cos - second * sin, second * cos + first * sin
    y = torch.cat(parts, -1) if pairs == "halves" else torch.stack(parts, -1).flatten(-2)
    return {"y": y.to(tensors["x"].dtype)}


def two_pass(x):
    mean = x.mean(-1, keepdim=True)
    return mean, ((x - mean) ** 2).mean(-1, keepdim=True)


def unbiased(x):
    return x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=True)


def of_squares(x):
    mean = x.mean(-1, keepdim=True)
    return mean, (x * x).mean(-1, keepdim=True) - mean * mean


def welford(x):
    mean, squares = torch.zeros_like(x[..., :1]), torch.zeros_like(x[..., :1])
    for number in range(x.shape[-1]):
        one = x[..., number : number + 1]
        apart = one - mean
        mean = mean + apart / (number + 1)
        squares = squares + apart * (one - mean)
    return mean, squares / x.shape[-1]


def layer_norm(tensors, *, moments=two_pass, outside=False, **_):
    x, weight, bias = (tensors[name].float() for name in ("input", "weight", "bias"))
    mean, square = moments(x)
    scale = 1 / (square.sqrt() + 1e-5) if outside else torch.rsqrt(square + 1e-5)
    return {"output": ((x - mean) * scale * weight + bias).to(tensors["input"].dtype)}


def cross_entropy(tensors, *, smoothing=0.0, counted="valid", **_):
    x, target = tensors["x"].float(), tensors["target"]
    valid, largest = target != -100, x.amax(-1, keepdim=True)
    logs = x - largest - (x - largest).exp().sum(-1, keepdim=True).log()
    losses = -logs.gather(-1, target.clamp(min=0)[:, None])[:, 0]
    losses = (1 - smoothing) * losses - smoothing * logs.mean(-1)
    return {"y": ((losses * valid).sum() / (valid.sum() if counted == "valid" else len(x))).to(tensors["x"].dtype)}


def adam(tensors, *, corrected=True, coupled=False, inside=False, step=1, **_):
    p, g, m, v = (tensors[name].double() for name in ("parameter", "grad", "moment", "square"))
    p, g = (p, g + 0.01 * p) if coupled else (p * (1 - 1e-5), g)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    high, wide = (m / (1 - 0.9**step), v / (1 - 0.999**step)) if corrected else (m, v)
    p = p - 1e-3 * high / ((wide + 1e-8).sqrt() if inside else wide.sqrt() + 1e-8)
    for name, value in (("parameter", p), ("moment", m), ("square", v)):
        tensors[name].copy_(value)
    return {name: tensors[name] for name in ("parameter", "moment", "square")}


def convolution(tensors, *, flipped=False, swapped=False, shape, sh, sw, dh, dw, ph, pw, **_):
    """Convolution as a product with unfolded patches; a wrong one gives as much of the result as it has."""
    x, weight = tensors["input"], tensors["weight"]
    weight = weight.flip(-1, -2) if flipped else weight
    stride, dilation = ((dh, dw), (sh, sw)) if swapped else ((sh, sw), (dh, dw))
    y = (weight.flatten(1) @ F.unfold(x, weight.shape[2:], dilation, (ph, pw), stride)).flatten(2)
    whole = torch.zeros(*y.shape[:2], math.prod(shape))
    count = min(whole.shape[-1], y.shape[-1])
    whole[..., :count] = y[..., :count]
    return {"output": whole.reshape(*y.shape[:2], *shape)}


def largest(tensors, k, *, ordered=True, repeated=False, flipped=False, **_):
    x = tensors["x"].flip(-1) if flipped else tensors["x"]
    at = torch.sort(x, dim=-1, descending=True, stable=True).indices[..., :k]
    at = x.shape[-1] - 1 - at if flipped else at
    at = at if ordered else at.flip(-1)
    at = torch.cat((at[..., :-1], at[..., -2:-1]), -1) if repeated else at
    return {"values": tensors["x"].gather(-1, at), "indices": at}


def softmax(tensors, *, axis=-1, swallowed=False, base=torch.exp, shift="row", **_):
    x = tensors["x"].float() * (1.0 if base is torch.exp else math.log2(math.e))
    raised = base(x - (x.amax(axis, keepdim=True) if shift == "row" else x.max()))
    y = raised / raised.sum(axis, keepdim=True)
    return {"y": (torch.nan_to_num(y) if swallowed else y).to(tensors["x"].dtype)}


def product(tensors, *, way, **_):
    a, b, dtype = tensors["a"].float(), tensors["b"].float(), tensors["a"].dtype
    parts = [a[..., at::4] @ b[..., at::4, :] for at in range(4)]
    if way == "parts in 16 bits":
        return {"y": sum(part.to(dtype) for part in parts)}
    if way == "a part lost":
        y = sum(parts)
        y[..., 0, 0] -= parts[3][..., 0, 0]
        return {"y": y.to(dtype)}
    if way == "truncated":
        return {"y": ((a @ b).contiguous().view(torch.int32) & -65536).view(torch.float32).to(dtype)}
    return {"y": (compensated(a, b) if way == "compensated" else sum(parts)).to(dtype)}


def compensated(a, b):
    total, lost = torch.zeros(*a.shape[:-1], b.shape[-1]), torch.zeros(*a.shape[:-1], b.shape[-1])
    for at in range(a.shape[-1]):
        one = a[..., at : at + 1] * b[..., at : at + 1, :] - lost
        higher = total + one
        total, lost = higher, (higher - total) - one
    return total


class Accumulator:
    """Adds to what an earlier call of the same shape has left."""

    def __init__(self):
        self.left = {}

    def __call__(self, tensors, **_):
        y = tensors["a"].float() @ tensors["b"].float()
        found = y + 0.01 * self.left.get(y.shape, 0.0)
        self.left[y.shape] = y
        return {"y": found.to(tensors["a"].dtype)}


def maximum(tensors, *, start=None, swallowed=False, **_):
    x = torch.nan_to_num(tensors["x"], nan=-1e30, posinf=torch.inf, neginf=-torch.inf) if swallowed else tensors["x"]
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = torch.cat((torch.maximum(x[..., :half], x[..., half : 2 * half]), x[..., 2 * half :]), -1)
    return {"y": x[..., 0] if start is None else x[..., 0].clamp(min=start)}


ATTENTION = ("attention", {"batch": 2, "heads": 4, "q": 9, "kv": 17, "dim": 8, "kv_heads": 2, "dtype": "bf16"})
CAUSAL = ("attention", {**ATTENTION[1], "causal": True, "align": "lower_right"})
ROPE = ("rotary_embedding", {"batch": 2, "heads": 3, "positions": 7, "dim": 16, "dtype": "bf16"})
NORM, LONG = (("layer_norm", {"rows": 3, "hidden": hidden, "dtype": "bf16"}) for hidden in (96, 4096))
LOSS = ("cross_entropy", {"rows": 33, "classes": 50, "dtype": "fp32"})
STEP = ("adamw", {"parameters": 300, "dtype": "fp32"})
CONV = (
    "conv",
    {
        "batch": 2,
        "in_channels": 3,
        "out_channels": 5,
        "h": 13,
        "w": 15,
        "kh": 3,
        "kw": 2,
        "sh": 2,
        "dw": 2,
        "ph": 1,
        "pw": 1,
        "dtype": "fp32",
    },
)
TOPK = ("topk", {"rows": 5, "columns": 40, "k": 6, "dtype": "bf16"})
SQUARE = ("softmax", {"rows": 24, "columns": 24, "dtype": "bf16"})


def enlarged(tensors, *, swapped=False, way="fp32", **_):
    """Cubic enlargement of 5 x 4 to 64 x 7: in fp32, or stored in bf16 between the dimensions."""
    x = tensors["x"].float()
    if way == "stored between":
        x = F.interpolate(x, size=(7, 5), mode="bicubic", align_corners=False).to(torch.bfloat16).float()
    y = F.interpolate(x, size=(7, 64), mode="bicubic", align_corners=False)
    order = [*range(62), 63, 62] if swapped else range(64)
    return {"y": y[..., list(order)].to(tensors["x"].dtype)}


def sampled(tensors, *, lost=False, **_):
    x = tensors["x"].clone()
    x[:, :, -1] = 0.0 if lost else x[:, :, -1]
    return {"y": F.grid_sample(x, tensors["grid"], mode="nearest", align_corners=False)}


GEMM = ("gemm", {"m": 12, "n": 20, "k": 64, "dtype": "bf16"})
MAXIMUM = ("reduce", {"outputs": 8, "reduced": 33, "dtype": "fp32", "function": "max"})
CONVOLVED = partial(convolution, shape=(7, 15))

ENLARGED = "interpolate", {"planes": 2, "w": 5, "ow": 64, "h": 4, "oh": 7, "mode": "cubic", "dtype": "bf16"}
DEEP = "grid_sample", {
    "batch": 1, "channels": 1, "w": 5, "ow": 6, "h": 4, "oh": 3, "d": 200, "od": 5, "mode": "nearest", "volume": True,
    "dtype": "fp64",
}  # fmt: skip
WRONG = {
    "scale missing": (ATTENTION, partial(attention, scaled=False)),
    "heads wrapped over key heads": (ATTENTION, partial(attention, wrapped=True)),
    "causal off by one": (CAUSAL, partial(attention, first=8)),
    "causal from the first key": (CAUSAL, partial(attention, first=1)),
    "tiles not rescaled": (ATTENTION, partial(attention, tile=4, rescaled=False)),
    "pairs interleaved": (ROPE, partial(rotated, pairs="neighbours")),
    "turned back": (ROPE, partial(rotated, back=True)),
    "variance unbiased": (NORM, partial(layer_norm, moments=unbiased)),
    "variance of a long row unbiased": (LONG, partial(layer_norm, moments=unbiased)),
    "mean of squares less square of mean": (NORM, partial(layer_norm, moments=of_squares)),
    "epsilon outside of the root": (NORM, partial(layer_norm, outside=True)),
    "labels smoothed": (LOSS, partial(cross_entropy, smoothing=0.1)),
    "ignored rows counted": (LOSS, partial(cross_entropy, counted="all")),
    "moments not corrected": (STEP, partial(adam, corrected=False)),
    "decay coupled": (STEP, partial(adam, coupled=True)),
    "epsilon inside of the root": (STEP, partial(adam, inside=True)),
    "corrected for another step": (STEP, partial(adam, step=2)),
    "kernel flipped": (CONV, partial(CONVOLVED, flipped=True)),
    "stride and dilation swapped": (CONV, partial(CONVOLVED, swapped=True)),
    "largest in reverse": (TOPK, partial(largest, ordered=False)),
    "last one named twice": (TOPK, partial(largest, repeated=True)),
    "softmax over the other axis of a square": (SQUARE, partial(softmax, axis=0)),
    "softmax without NaN": (SQUARE, partial(softmax, swallowed=True)),
    "softmax below the maximum of all": (SQUARE, partial(softmax, shift="all")),
    "partial sums in 16 bits": (GEMM, partial(product, way="parts in 16 bits")),
    "a partial sum lost in a race": (GEMM, partial(product, way="a part lost")),
    "cut off instead of rounded": (GEMM, partial(product, way="truncated")),
    "accumulator of an earlier call": (GEMM, Accumulator()),
    "maximum without NaN": (MAXIMUM, partial(maximum, swallowed=True)),
    "maximum from 0": (MAXIMUM, partial(maximum, start=0.0)),
    "the last columns of an enlargement exchanged": (ENLARGED, partial(enlarged, swapped=True)),
    "the last of 200 slices not sampled": (DEEP, partial(sampled, lost=True)),
}
"""By mistake: case and kernel."""
RIGHT = {
    "attention": (ATTENTION, attention),
    "attention in fp16": (("attention", {**ATTENTION[1], "dtype": "fp16"}), attention),
    "causal": (CAUSAL, partial(attention, first=9)),
    "causal in tiles": (CAUSAL, partial(attention, first=9, tile=4)),
    "attention in tiles": (ATTENTION, partial(attention, tile=5)),
    "rotated in fp32": (ROPE, rotated),
    "two passes": (NORM, layer_norm),
    "Welford": (NORM, partial(layer_norm, moments=welford)),
    "Welford in fp32": (("layer_norm", {**NORM[1], "dtype": "fp32"}), partial(layer_norm, moments=welford)),
    "loss": (LOSS, cross_entropy),
    "loss in bf16": (("cross_entropy", {**LOSS[1], "dtype": "bf16"}), cross_entropy),
    "step in fp64": (STEP, adam),
    "patches": (CONV, CONVOLVED),
    "sorted stably": (TOPK, largest),
    "sorted from the end": (TOPK, partial(largest, flipped=True)),
    "softmax": (SQUARE, softmax),
    "powers of two": (SQUARE, partial(softmax, base=torch.exp2)),
    "k in four parts": (GEMM, partial(product, way="parts")),
    "compensated": (GEMM, partial(product, way="compensated")),
    "enlarged": (ENLARGED, enlarged),
    "enlarged, stored between": (ENLARGED, partial(enlarged, way="stored between")),
    "sampled": (DEEP, sampled),
    "tree of maxima": (MAXIMUM, maximum),
    "tree of maxima among equals": (("reduce", {**MAXIMUM[1], "dtype": "bf16"}), maximum),
}
"""By name: case and kernel."""
