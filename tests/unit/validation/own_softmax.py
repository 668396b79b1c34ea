"""A softmax with a gradient of its own, for tests of what becomes of gradients."""

import torch


def softmax(backward):
    """Return a call whose gradient is `backward(y, grad)`."""

    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.softmax(-1)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return backward(*ctx.saved_tensors, grad)

    return lambda tensors, **_: {"y": Softmax.apply(tensors["x"])}


def gradient(y, grad):
    """Return the gradient of softmax by its definition."""
    return y * (grad - (grad * y).sum(-1, keepdim=True))
