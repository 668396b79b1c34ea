"""Control-flow operators (`cond`, `while_loop`, `scan`, `map`, `associative_scan`) executed as plain Python."""

from collections.abc import Callable, Sequence
from typing import Any

from nearpeak.frontends.known_values.known_tensors import Values


def stand_ins(values: Values) -> list[tuple[Any, str, Any]]:
    """Return what replaces PyTorch's own: owner, name and stand-in.

    Run as plain Python, their bodies are recorded call by call, with gradients, places and trip counts.
    """
    from torch._higher_order_ops.associative_scan import AssociativeScanOp
    from torch._higher_order_ops.cond import CondOp
    from torch._higher_order_ops.map import MapImpl
    from torch._higher_order_ops.scan import ScanOp
    from torch._higher_order_ops.while_loop import WhileLoopOp

    return [
        (CondOp, "__call__", _cond(values)),
        (WhileLoopOp, "__call__", _while_loop(values)),
        (ScanOp, "__call__", _scan),
        (MapImpl, "__call__", _map),
        (AssociativeScanOp, "__call__", _associative_scan),
    ]


def _cond(values: Values) -> Callable[..., Any]:
    def run(_op: Any, pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any) -> Any:
        chosen = values.guess("condition of a cond", True) if _unknown(pred) else bool(pred)
        return (true_fn if chosen else false_fn)(*operands)

    return run


def _while_loop(values: Values) -> Callable[..., Any]:
    def run(
        _op: Any, cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any, additional_inputs: Any,
        **_options: Any,
    ) -> Any:  # fmt: skip
        while True:
            goes_on = cond_fn(*carried_inputs, *additional_inputs)
            if _unknown(goes_on):
                values.guess("trips of a while_loop", 1)
                return tuple(body_fn(*carried_inputs, *additional_inputs))
            if not bool(goes_on):
                return tuple(carried_inputs)
            carried_inputs = tuple(body_fn(*carried_inputs, *additional_inputs))

    return run


def _unknown(condition: Any) -> bool:
    """Say whether a condition is a tensor whose value depends on data."""
    return getattr(condition, "constant", condition) is None


def _scan(_op: Any, combine_fn: Callable[..., Any], init: Any, xs: Any, additional_inputs: Any) -> Any:
    carried, steps = init, []
    for index in range(xs[0].shape[0]):
        results = combine_fn(*carried, *(x[index] for x in xs), *additional_inputs)
        carried, out = results[: len(init)], results[len(init) :]
        steps.append(out)
    return (*carried, *_stacked(steps))


def _map(_op: Any, f: Callable[..., Any], xs: Any, pos_args: Any) -> Any:
    return _stacked([f(*(x[index] for x in xs), *pos_args) for index in range(xs[0].shape[0])])


def _associative_scan(_op: Any, combine_fn: Callable[..., Any], xs: Any, additional_inputs: Any) -> Any:
    """Return the scan as what every algorithm needs at least: one combination fewer than there are elements."""
    import torch

    if xs[0].shape[0] < 2:
        return tuple(xs)
    combined = combine_fn(*(x[:-1] for x in xs), *(x[1:] for x in xs), *additional_inputs)
    return tuple(torch.cat([x[:1], rest]) for x, rest in zip(xs, combined, strict=True))


def _stacked(steps: Sequence[Any]) -> Any:
    """Return one tree of results whose tensors have the steps as their first extent."""
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda *leaves: None if leaves[0] is None else torch.stack(leaves), *steps)
