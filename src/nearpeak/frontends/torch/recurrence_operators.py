"""Recurrence operators of the namespace `nearpeak` (scans, delta rule, WKV): schemas, shapes and gradients."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

_ARGUMENTS = {
    "selective_scan": "Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, Tensor? d, Tensor? z, Tensor? bias, "
    "bool softplus, bool ended",
    "ssd_scan": "Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, Tensor? d, Tensor? bias, Tensor? state, "
    "bool softplus, bool ended",
    "delta_rule": "Tensor q, Tensor k, Tensor v, Tensor g, Tensor w, Tensor? state, bool ended",
    "wkv": "Tensor w, Tensor u, Tensor k, Tensor v, Tensor? num, Tensor? den, Tensor? top, bool ended",
}
_UPDATE = (
    "selective_state_update(Tensor(a!) state, Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, Tensor? d, Tensor? z, "
    "Tensor? bias, bool softplus) -> Tensor"
)


@cache
def operators() -> Any:
    """Return the library that defines the recurrences, with their shapes."""
    import torch

    library = torch.library.Library("nearpeak", "FRAGMENT")
    # The tag keeps fake tensors that carry values from asking for a kernel, of which there is none.
    tags = (torch.Tag.nondeterministic_seeded,)

    def define(name: str, schema: str, shape: Callable[..., Any]) -> None:
        library.define(schema, tags=tags)
        torch.library.register_fake(f"nearpeak::{name}", shape, lib=library)

    for name, arguments in _ARGUMENTS.items():
        define(name, f"{name}({arguments}) -> Tensor[]", _SHAPES[name])
        backward = f"{name}_backward"
        define(backward, f"{backward}(Tensor[] grads, {arguments}, bool[] wanted) -> Tensor[]", _gradient_shapes)
    define("selective_state_update", _UPDATE, lambda _state, x, *_: x.new_empty(x.shape))
    return library


def applied(name: str, tensors: Sequence[Any], options: Sequence[Any]) -> Sequence[Any]:
    """Return the results of the recurrence `name`, differentiable in all its tensors."""
    results: Sequence[Any] = _differentiable()(name, options, *tensors)
    return results


@cache
def _differentiable() -> Any:
    """Return the differentiable function around whole recurrences; its first argument names which."""
    import torch

    ops = torch.ops.nearpeak

    class Recurrence(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
        @staticmethod
        def forward(ctx: Any, name: str, options: Sequence[Any], *tensors: Any) -> Any:
            ctx.save_for_backward(*tensors)
            ctx.name, ctx.options = name, options
            ctx.set_materialize_grads(False)
            return tuple(getattr(ops, name)(*tensors, *options))

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            wanted = list(ctx.needs_input_grad[2:])
            upstream = [grad for grad in grads if grad is not None]
            backward = getattr(ops, f"{ctx.name}_backward")
            gradients = iter(backward(upstream, *ctx.saved_tensors, *ctx.options, wanted))
            return (None, None, *(next(gradients) if needed else None for needed in wanted))

    return Recurrence.apply


def _gradient_shapes(_grads: Any, *arguments: Any) -> list[Any]:
    *others, wanted = arguments
    tensors = others[: len(wanted)]
    return [t.new_empty(t.shape) for t, is_wanted in zip(tensors, wanted, strict=True) if is_wanted]


def _wide(tensor: Any, *shape: int) -> Any:
    """Return a state, which kernels keep in single precision or better."""
    import torch

    return tensor.new_empty(shape, dtype=torch.promote_types(tensor.dtype, torch.float32))


def _selective_shape(x: Any, _dt: Any, a: Any, *rest: Any) -> list[Any]:
    return [x.new_empty(x.shape), *([_wide(x, *x.shape[:2], a.shape[-1])] if rest[-1] else [])]


def _ssd_shape(x: Any, _dt: Any, _a: Any, b: Any, *rest: Any) -> list[Any]:
    batch, _tokens, heads, dim = x.shape
    return [x.new_empty(x.shape), *([_wide(x, batch, heads, dim, b.shape[-1])] if rest[-1] else [])]


def _delta_shape(_q: Any, k: Any, v: Any, *rest: Any) -> list[Any]:
    batch, _tokens, heads, dim = v.shape
    return [v.new_empty(v.shape), *([_wide(v, batch, heads, k.shape[-1], dim)] if rest[-1] else [])]


def _wkv_shape(_w: Any, _u: Any, k: Any, *rest: Any) -> list[Any]:
    states = 3 if rest[-1] else 0
    return [k.new_empty(k.shape), *(_wide(k, k.shape[0], k.shape[-1]) for _ in range(states))]


_SHAPES: Mapping[str, Callable[..., Any]] = {
    "selective_scan": _selective_shape, "ssd_scan": _ssd_shape, "delta_rule": _delta_shape, "wkv": _wkv_shape,
}  # fmt: skip
