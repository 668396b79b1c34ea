"""The table of reductions: FLOP, NumPy reference and PyTorch call of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.base.registry import entry_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """One way to make one value of many."""

    flop: Callable[[int], int]
    """FLOP for n values, n at least 1."""
    special: Callable[[int], int]
    """Special evaluations for n values."""
    reference: Callable[[Any], tuple[Any, ...]]
    """Results over the last dimension, in NumPy."""
    torch: Callable[[Any, Any], tuple[Any, ...]]
    """Results over the last dimension, from (torch, tensor)."""
    outputs: tuple[str, ...] = ("",)
    """Format of each result; empty for out_dtype."""


def _row(
    flop: Callable[[int], int],
    reference: Callable[[Any], Any],
    torch: Callable[[Any, Any], Any],
    special: Callable[[int], int] = lambda _: 0,
    outputs: tuple[str, ...] = ("",),
) -> Reduction:
    def several(value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, tuple) else (value,)

    return Reduction(
        flop=flop, special=special, outputs=outputs,
        reference=lambda x: several(reference(x)), torch=lambda module, x: several(torch(module, x)),
    )  # fmt: skip


def _log_sum_exp(x: Any) -> Any:
    top = x.max(-1)
    return top + np.log(np.exp(x - top[..., None]).sum(-1))


_COMPARED: Callable[[int], int] = lambda n: n - 1  # noqa: E731
_BOTH = ("", "int64")
REDUCTIONS: Mapping[str, Reduction] = {
    "sum": _row(lambda n: n - 1, lambda x: x.sum(-1), lambda _, x: x.sum(-1)),
    "mean": _row(lambda n: n, lambda x: x.mean(-1), lambda _, x: x.mean(-1)),
    "prod": _row(lambda n: n - 1, lambda x: x.prod(-1), lambda _, x: x.prod(-1)),
    "max": _row(_COMPARED, lambda x: x.max(-1), lambda _, x: x.amax(-1)),
    "min": _row(_COMPARED, lambda x: x.min(-1), lambda _, x: x.amin(-1)),
    "argmax": _row(_COMPARED, lambda x: x.argmax(-1), lambda _, x: x.argmax(-1), outputs=("int64",)),
    "argmin": _row(_COMPARED, lambda x: x.argmin(-1), lambda _, x: x.argmin(-1), outputs=("int64",)),
    "max_index": _row(_COMPARED, lambda x: (x.max(-1), x.argmax(-1)), lambda _, x: tuple(x.max(-1)), outputs=_BOTH),
    "min_index": _row(_COMPARED, lambda x: (x.min(-1), x.argmin(-1)), lambda _, x: tuple(x.min(-1)), outputs=_BOTH),
    "min_max": _row(
        lambda n: n + n // 2 - 2 + n % 2, lambda x: (x.min(-1), x.max(-1)), lambda _, x: tuple(x.aminmax(dim=-1)),
        outputs=("", ""),
    ),
    "any": _row(lambda _: 0, lambda x: x.any(-1) * 1, lambda _, x: x.any(-1), outputs=("bool",)),
    "all": _row(lambda _: 0, lambda x: x.all(-1) * 1, lambda _, x: x.all(-1), outputs=("bool",)),
    "norm": _row(
        lambda n: 2 * n - 1, lambda x: np.sqrt((x * x).sum(-1)),
        lambda torch, x: torch.linalg.vector_norm(x, dim=-1), lambda _: 1,
    ),
    "norm_1": _row(
        lambda n: 2 * n - 1, lambda x: np.abs(x).sum(-1), lambda torch, x: torch.linalg.vector_norm(x, 1, dim=-1)
    ),
    "norm_p": _row(
        lambda n: 2 * n - 1, lambda x: (np.abs(x) ** 3).sum(-1) ** (1 / 3),
        lambda torch, x: torch.linalg.vector_norm(x, 3, dim=-1), lambda _: 1,
    ),
    "count_nonzero": _row(
        lambda n: n, lambda x: np.count_nonzero(x, axis=-1), lambda _, x: x.count_nonzero(-1), outputs=("int64",)
    ),
    "norm_0": _row(
        lambda n: 2 * n - 1, lambda x: np.count_nonzero(x, axis=-1),
        lambda torch, x: torch.linalg.vector_norm(x, 0, dim=-1),
    ),
    "sum_square": _row(lambda n: 2 * n - 1, lambda x: (x * x).sum(-1), lambda _, x: x.square().sum(-1)),
    "var": _row(lambda n: 3 * n + 2, lambda x: x.var(-1, ddof=1), lambda _, x: x.var(-1), lambda _: 0),
    "std": _row(lambda n: 3 * n + 2, lambda x: x.std(-1, ddof=1), lambda _, x: x.std(-1), lambda _: 1),
    "var_mean": _row(
        lambda n: 3 * n + 2, lambda x: (x.var(-1, ddof=1), x.mean(-1)),
        lambda torch, x: torch.var_mean(x, -1), outputs=("", ""),
    ),
    "std_mean": _row(
        lambda n: 3 * n + 2, lambda x: (x.std(-1, ddof=1), x.mean(-1)),
        lambda torch, x: torch.std_mean(x, -1), lambda _: 1, outputs=("", ""),
    ),
    "logsumexp": _row(lambda n: 3 * n - 1, _log_sum_exp, lambda _, x: x.logsumexp(-1), lambda n: n + 1),
}  # fmt: skip
"""All reductions by name."""


def reduction_of(name: str) -> Reduction:
    """Return the reduction called `name`."""
    return entry_of("reduction", REDUCTIONS, name)
