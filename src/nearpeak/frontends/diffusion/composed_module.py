"""Builder of a `torch.nn.Module` from named submodules and a forward function."""

from collections.abc import Callable
from math import log
from typing import Any


def module_of(run: Callable[..., Any] | None, **parts: Any) -> Any:
    """Return a module whose forward pass is `run(module, …)`, or which only holds its parts; a part may be none."""
    import torch

    class Composed(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                self.register_module(name, part)

        def forward(self, *inputs: Any, **named: Any) -> Any:
            assert run is not None
            return run(self, *inputs, **named)

    return Composed()


def embedder(width_in: int, width: int) -> Any:
    """Return two products with a SiLU between them, which embed a time step or a pooled text."""
    from torch import nn

    return nn.Sequential(nn.Linear(width_in, width), nn.SiLU(), nn.Linear(width, width))


def sinusoids(steps: Any, width: int) -> Any:
    """Return the sine and cosine features of time steps, as wide as stated, in the format of the steps.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """
    import torch

    frequencies = torch.exp(torch.arange(width // 2, dtype=torch.float32) * (-log(10_000) / (width // 2)))
    angles = steps.float()[:, None] * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=-1).to(steps.dtype)


def attend(query: Any, key: Any, value: Any) -> Any:
    """Return the attention of heads side by side: [batch, tokens, heads, width] in, [batch, tokens, all] out."""
    from torch.nn.functional import scaled_dot_product_attention

    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    return scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
