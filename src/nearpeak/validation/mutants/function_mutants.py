"""Mutants that replace PyTorch functions an operator calls: unstable exponentials, misplaced epsilons, wrong counts."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nearpeak.core.work.case import Case
from nearpeak.validation.mutants.mutant import Mutant, Tensors, right_call
from nearpeak.validation.oracle.float64_oracle import draw_inputs
from nearpeak.validation.running.implementation_run import Call, imported_torch

Replacement = Callable[..., Any]
EPSILONS = (0.0, 1e-4)
"""Range of the small numbers that are added to avoid division by zero."""


def of_functions(case: Case) -> Iterator[Mutant]:
    """Yield one mutant for each kind of mistake in a function that PyTorch calls for this case."""
    for row, faults in FAULTS.items():
        if _calls(case, faults):
            yield Mutant(row=row, where="", make=_maker(case, faults), algebraic=row not in _OF_RANGE)


_OF_RANGE = ("no maximum subtracted",)
"""Mistakes that show only where numbers leave the range of a format."""


def _calls(case: Case, faults: Mapping[str, Replacement]) -> bool:
    draw = draw_inputs(case, 0, "normal")
    if draw is None:
        return False
    mode = _mode(faults)
    try:
        with mode:
            right_call(case)({name: tensor.clone() for name, tensor in draw.tensors.items()}, **draw.arguments)
    except (RuntimeError, TypeError, ValueError):
        return bool(mode.replaced)
    return bool(mode.replaced)


def _maker(case: Case, faults: Mapping[str, Replacement]) -> Callable[[], Call]:
    right = right_call(case)

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        with _mode(faults):
            return right(tensors, **arguments)

    return lambda: call


def _mode(faults: Mapping[str, Replacement]) -> Any:
    """Return the mode that replaces functions of these names, unless the replacement returns None."""
    from torch._C import DisableTorchFunction as torch_function_disabled  # noqa: N813
    from torch.overrides import TorchFunctionMode

    class Faulty(TorchFunctionMode):  # type: ignore[misc]  # torch is not typed here
        replaced = 0

        def __torch_function__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            replaced_result = None
            if (name := getattr(call, "__name__", "")) in faults:
                with torch_function_disabled():
                    replaced_result = faults[name](*args, **(kwargs or {}))
            self.replaced += replaced_result is not None
            return call(*args, **(kwargs or {})) if replaced_result is None else replaced_result

    return Faulty()


def _softmax(exponentials: Callable[[Any, int], Any], *, log: bool) -> Replacement:
    def run(x: Any, dim: int = -1, *_: Any, dtype: Any = None, **__: Any) -> Any:
        wide = x if dtype is None else x.to(dtype)
        e = exponentials(wide, dim)
        y = e / e.sum(dim, keepdim=True)
        return y.log() if log else y

    return run


def _unstable(x: Any, _: int) -> Any:
    return x.exp()


def _partial(x: Any, dim: int) -> Any:
    """Return the exponentials of two halves, each relative to its own maximum, without rescaling to a common one."""
    torch = imported_torch()
    halves = [half for half in torch.tensor_split(x, 2, dim) if half.shape[dim]]
    return torch.cat([(half - half.amax(dim, keepdim=True).nan_to_num(neginf=0.0)).exp() for half in halves], dim)


def _log_sum(x: Any, dim: int = -1, keepdim: bool = False, **_: Any) -> Any:
    return x.exp().sum(dim, keepdim=keepdim).log()


def _log_sums(x: Any, dim: int = -1, **_: Any) -> Any:
    return x.exp().cumsum(dim).log()


def _loss(exponentials: Callable[[Any, int], Any]) -> Replacement:
    def run(x: Any, target: Any, *_: Any, reduction: str = "mean", **__: Any) -> Any:
        likely = _softmax(exponentials, log=True)(x, -1)
        return imported_torch().nn.functional.nll_loss(likely, target, reduction=reduction)

    return run


def _attention(exponentials: Callable[[Any, int], Any], *, scaled: bool = True) -> Replacement:
    def run(
        query: Any, key: Any, value: Any, attn_mask: Any = None, _: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        torch = imported_torch()
        if enable_gqa:
            key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
        factor = (query.shape[-1] ** -0.5 if scale is None else scale) if scaled else 1.0
        scores = query @ key.mT * factor
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if attn_mask is not None:
            live = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, float("-inf")) if live else scores + attn_mask
        e = exponentials(scores, -1)
        return (e / e.sum(-1, keepdim=True)) @ value

    return run


def _counted(lost: Callable[[Any, Any], Any]) -> Replacement:
    """Return the loss of all rows by `lost(log likelihoods, target)`, ignored rows included in the mean."""

    def of(likely: Any, target: Any, reduction: str = "mean") -> Any:
        if reduction != "mean" and lost is _ignored_as_zero:
            return None
        rows = lost(likely, target)
        return rows if reduction == "none" else getattr(rows, reduction)()

    return of


def _ignored_as_zero(likely: Any, target: Any) -> Any:
    rows = -likely.gather(1, target.clamp(min=0)[:, None])[:, 0]
    return rows * (target >= 0)


def _mask_dropped(likely: Any, target: Any) -> Any:
    return -likely.gather(1, target.clamp(min=0)[:, None])[:, 0]


def _over_likely(run: Replacement) -> dict[str, Replacement]:
    """Return the replacements of the losses of logits and of log likelihoods."""

    def from_logits(x: Any, target: Any, *_: Any, reduction: str = "mean", **__: Any) -> Any:
        return run(x.log_softmax(-1), target, reduction)

    def from_likely(x: Any, target: Any, *_: Any, reduction: str = "mean", **__: Any) -> Any:
        return run(x, target, reduction)

    return {"cross_entropy": from_logits, "nll_loss": from_likely}


def _normalised(rows: Any, missing: int, epsilon: float, *, inside: bool, dims: Any = -1) -> Any:
    centred = rows - rows.mean(dims, keepdim=True)
    count = rows.numel() // max(centred.sum(dims).numel(), 1)
    variance = (centred * centred).sum(dims, keepdim=True) / (count - missing)
    return centred / (variance + epsilon).sqrt() if inside else centred / (variance.sqrt() + epsilon)


def _wide(x: Any) -> Any:
    return x.float() if x.element_size() == 2 else x


def _norms(missing: int, *, inside: bool) -> dict[str, Replacement]:
    """Return norms with a wrong count in the variance, or epsilon outside the root.

    Norms of 16-bit numbers are computed in fp32 and rounded once, as kernels do; more roundings would hide the fault.
    """

    def affine(x: Any, y: Any, weight: Any, bias: Any, *, channels: bool) -> Any:
        shape = (1, -1, *(1,) * (y.dim() - 2)) if channels else (-1,)
        y = y if weight is None else y * weight.view(shape)
        return (y if bias is None else y + bias.view(shape)).to(x.dtype)

    def layer_norm(x: Any, _: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
        return affine(x, _normalised(_wide(x), missing, eps, inside=inside), weight, bias, channels=False)

    def group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
        rows = _wide(x).reshape(x.shape[0], groups, -1)
        return affine(x, _normalised(rows, missing, eps, inside=inside).view(x.shape), weight, bias, channels=True)

    def rms_norm(x: Any, _: Any, weight: Any = None, eps: float | None = None) -> Any:
        least, wide = imported_torch().finfo(x.dtype).eps if eps is None else eps, _wide(x)
        mean = (wide * wide).sum(-1, keepdim=True) / (x.shape[-1] - missing)
        y = wide / (mean + least).sqrt() if inside else wide / (mean.sqrt() + least)
        return affine(x, y, weight, None, channels=False)

    def batch_norm(
        x: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
        momentum: float = 0.1, eps: float = 1e-5,
    ) -> Any:  # fmt: skip
        if not training and inside:
            return None  # running variances have no count
        whole = [dimension for dimension in range(x.dim()) if dimension != 1]
        if training:
            y = _normalised(_wide(x), missing, eps, inside=inside, dims=whole)
            if running_mean is not None:
                running_mean.mul_(1 - momentum).add_(x.detach().mean(whole) * momentum)
                running_var.mul_(1 - momentum).add_(x.detach().var(whole) * momentum)
        else:
            shape = (1, -1, *(1,) * (x.dim() - 2))
            y = (_wide(x) - running_mean.view(shape)) / (_wide(running_var).sqrt() + eps).view(shape)
        return affine(x, y, weight, bias, channels=True)

    return {"layer_norm": layer_norm, "group_norm": group_norm, "rms_norm": rms_norm, "batch_norm": batch_norm}


def _biased(name: str) -> Replacement:
    def run(x: Any, dim: Any = None, *_: Any, **options: Any) -> Any:
        if options.get("correction", 1) == 0 or options.get("unbiased") is False or dim is None:
            return None
        return getattr(imported_torch(), name)(x, dim, correction=0)

    return run


def _inside_the_root(x: Any, epsilon: Any, *_: Any, **options: Any) -> Any:
    """Return the root of x squared plus a small number that should be added outside the root."""
    if not isinstance(epsilon, float) or not EPSILONS[0] < epsilon < EPSILONS[1] or options:
        return None
    return (x * x + epsilon).sqrt()


def _inside_in_place(x: Any, epsilon: Any, *rest: Any, **options: Any) -> Any:
    root = _inside_the_root(x, epsilon, *rest, **options)
    return None if root is None else x.copy_(root)


def epsilons_added(case: Case) -> frozenset[float]:
    """Return the small numbers that PyTorch's implementation adds to avoid division by zero.

    >>> from nearpeak.ops import case
    >>> epsilons_added(case("optimizer", parameters=3, rule="adadelta", dtype="fp16"))
    frozenset({1e-06})
    """
    epsilons = set()

    def seen(_x: Any, other: Any = None, *_: Any, **__: Any) -> None:
        if isinstance(other, float) and EPSILONS[0] < other < EPSILONS[1]:
            epsilons.add(other)

    _calls(case, {"add": seen, "add_": seen})
    return frozenset(epsilons)


FAULTS: Mapping[str, Mapping[str, Replacement]] = {
    "no maximum subtracted": {
        "softmax": _softmax(_unstable, log=False), "log_softmax": _softmax(_unstable, log=True), "logsumexp": _log_sum,
        "logcumsumexp": _log_sums, "cross_entropy": _loss(_unstable),
        "scaled_dot_product_attention": _attention(_unstable),
    },
    "partial softmax not rescaled": {
        "softmax": _softmax(_partial, log=False), "log_softmax": _softmax(_partial, log=True),
        "cross_entropy": _loss(_partial), "scaled_dot_product_attention": _attention(_partial),
    },
    "scores not scaled": {
        "scaled_dot_product_attention": _attention(
            lambda x, dim: (x - x.amax(dim, keepdim=True).nan_to_num(neginf=0.0)).exp(), scaled=False
        )
    },
    "mean over ignored rows too": _over_likely(_counted(_ignored_as_zero)),
    "ignore mask dropped": _over_likely(_counted(_mask_dropped)),
    "variance by n - 1": _norms(1, inside=True),
    "epsilon outside the root": _norms(0, inside=False),
    "biased variance": {name: _biased(name) for name in ("var", "std", "var_mean", "std_mean")},
    "epsilon inside the root": {"add": _inside_the_root, "add_": _inside_in_place},
}  # fmt: skip
"""By kind of mistake: PyTorch functions by name with their replacements; None leaves a call unchanged."""
