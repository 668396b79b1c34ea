"""A Triton kernel: the sum of two vectors."""

import pytest
import torch

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def _add(x, y, out, count, block: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < count
    tl.store(out + place, tl.load(x + place, mask=inside) + tl.load(y + place, mask=inside), mask=inside)


def add(tensors, **_):
    a, b = tensors["a"].reshape(-1), tensors["b"].reshape(-1)
    out = torch.empty_like(a)
    _add[(triton.cdiv(out.numel(), 256),)](a, b, out, out.numel(), block=256)
    return {"y": out.reshape(tensors["a"].shape)}
