"""Two kernels as a repository might hold them: tensors by input name in, tensors by output name out."""

import torch


def softmax(tensors, **_):
    """Return the softmax of each row: the largest element is taken out first, so that nothing overflows."""
    x = tensors["x"]
    shifted = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return {"y": shifted / shifted.sum(dim=-1, keepdim=True)}


def careless_softmax(tensors, **_):
    """Return the same without taking the largest element out: large inputs overflow."""
    grown = torch.exp(tensors["x"])
    return {"y": grown / grown.sum(dim=-1, keepdim=True)}
