"""Mistakes of families: unstable exponentials, wrong counts and variances, misplaced epsilons, ties to the last."""

from collections.abc import Callable, Iterator
from typing import Any

from nearpeak.core.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.measure.validation._oracle import arguments_of, declared_formats
from nearpeak.measure.validation._run import Call
from nearpeak.measure.validation.mutants._make import Mutant, Tensors, right_call
from nearpeak.ops import OPS

Rule = Callable[..., Tensors]


def of_families(case: Case) -> Iterator[Mutant]:
    """Give the mutants that the operator's family is known for."""
    for row, rule in _RULES.get(case.op, {}).items():
        yield Mutant(row=row, where="", make=_always(rule))
    for name, value in case.attributes:
        if value in _OTHER and _accepts(case, {name: _OTHER[value]}):
            yield Mutant(row=f"{_OTHER[value]} for {value}", where=name, make=_with(case, {name: _OTHER[value]}))
        if value is True and not name.startswith("grad_") and _accepts(case, {name: False}):
            yield Mutant(row="choice ignored", where=name, make=_with(case, {name: False}))
    if case.op in _FLIPPED and any(not dtype.is_floating_point for dtype in declared_formats(case).values()):
        yield Mutant(row="ties to the last", where="", make=_always(_FLIPPED[case.op](case)))


_OTHER: dict[object, str] = {"mean": "sum", "sum": "mean", "var": "sum_square", "max_index": "min_index"}
"""Choices that are easily taken for one another: the wrong count under a mean, the other end."""


def _always(call: Call) -> Callable[[], Call]:
    return lambda: call


def _with(case: Case, other: dict[str, Any]) -> Callable[[], Call]:
    right = right_call(case)
    return _always(lambda tensors, **arguments: right(tensors, **{**arguments, **other}))


def _accepts(case: Case, other: dict[str, Any]) -> bool:
    """Say whether the operator has such a case, with the same outputs and inputs it could be mistaken for."""
    arguments = {**arguments_of(case), **other}
    try:
        changed = OPS[case.op].case("forward", **arguments)
        known = OPS[case.op].inputs(**arguments).keys() <= OPS[case.op].inputs(**arguments_of(case)).keys()
        return known and declared_formats(changed).keys() == declared_formats(case).keys()
    except (NearpeakError, LookupError, RuntimeError, TypeError):
        return False


def _unstable_softmax(tensors: Tensors, log: bool, **_: Any) -> Tensors:
    e = tensors["x"].exp()
    y = e / e.sum(-1, keepdim=True)
    return {"y": y.log() if log else y}


def _partial_softmax(tensors: Tensors, log: bool, **_: Any) -> Tensors:
    """Return the softmax of halves whose maxima differ, without bringing them to one maximum."""
    import torch

    halves = torch.tensor_split(tensors["x"], 2, -1)
    e = torch.cat([(half - half.amax(-1, keepdim=True)).exp() for half in halves if half.shape[-1]], -1)
    y = e / e.sum(-1, keepdim=True)
    return {"y": y.log() if log else y}


def _unstable_loss(tensors: Tensors, reduction: str, **_: Any) -> Tensors:
    e = tensors["x"].exp()
    rows = -(e / e.sum(-1, keepdim=True)).gather(1, tensors["target"][:, None])[:, 0].log()
    return {"y": _reduced(rows, reduction)}


def _without_softmax_term(tensors: Tensors, reduction: str, **arguments: Any) -> Tensors:
    """Return the right loss, whose gradient lacks the probabilities: it is non-zero at the target alone."""
    right = OPS["cross_entropy"].torch_call(tensors, reduction=reduction, **arguments)["y"].detach()
    rows = -tensors["x"].gather(1, tensors["target"][:, None])[:, 0]
    share = _reduced(rows, reduction)
    return {"y": right + (share - share.detach())}


def _reduced(rows: Any, reduction: str) -> Any:
    return rows if reduction == "none" else getattr(rows, reduction)()


def _unstable_attention(tensors: Tensors, **arguments: Any) -> Tensors:
    return _attention(tensors, lambda scores: scores.exp(), **arguments)


def _partial_attention(tensors: Tensors, **arguments: Any) -> Tensors:
    import torch

    def exponentials(scores: Any) -> Any:
        halves = [half for half in torch.tensor_split(scores, 2, -1) if half.shape[-1]]
        return torch.cat([(half - half.amax(-1, keepdim=True)).exp() for half in halves], -1)

    return _attention(tensors, exponentials, **arguments)


def _unscaled_attention(tensors: Tensors, **arguments: Any) -> Tensors:
    return _attention(tensors, lambda s: (s - s.amax(-1, keepdim=True)).exp(), **arguments, scale=1.0)


def _attention(tensors: Tensors, exponentials: Callable[[Any], Any], scale: float = 0.0, **_: Any) -> Tensors:
    query, key, value = (tensors[name] for name in ("query", "key", "value"))
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    e = exponentials(query @ key.mT * (scale or query.shape[-1] ** -0.5))
    return {"output": (e / e.sum(-1, keepdim=True)) @ value}


def _normalised(tensors: Tensors, groups: int, missing: int, inside: bool) -> Any:
    """Return the input normalised over each of the groups of a row, with a fault in the count or in the epsilon."""
    x = tensors["input"]
    rows = x.reshape(x.shape[0], groups, -1) if groups else x.reshape(-1, 1, x.shape[-1])
    centred = (rows - rows.mean(-1, keepdim=True)).to(rows.dtype)
    variance = (centred * centred).sum(-1, keepdim=True) / (rows.shape[-1] - missing)
    y = centred / (variance + EPSILON).sqrt() if inside else centred / (variance.sqrt() + EPSILON)
    return y.view(x.shape)


EPSILON = 1e-5


def _scaled(tensors: Tensors, y: Any, channels: bool) -> Tensors:
    """Apply weight and bias to a normalised tensor."""
    shape = (1, -1, *(1,) * (y.dim() - 2)) if channels else (-1,)
    y = y * tensors["weight"].view(shape) if "weight" in tensors else y
    return {"output": y + tensors["bias"].view(shape) if "bias" in tensors else y}


def _layer_norm(missing: int, inside: bool) -> Rule:
    return lambda tensors, **_: _scaled(tensors, _normalised(tensors, 0, missing, inside), channels=False)


def _group_norm(missing: int, inside: bool) -> Rule:
    return lambda tensors, groups, **_: _scaled(tensors, _normalised(tensors, groups, missing, inside), channels=True)


def _rms_norm(outside: bool) -> Rule:
    """Return the norm with epsilon outside the root, or divided by one element too few."""

    def call(tensors: Tensors, **_: Any) -> Tensors:
        x = tensors["input"]
        mean = (x * x).sum(-1, keepdim=True) / (x.shape[-1] - (not outside))
        return _scaled(tensors, x / (mean.sqrt() + 1e-6) if outside else x / (mean + 1e-6).sqrt(), channels=False)

    return call


def _adamw_inside(tensors: Tensors, decay: str, amsgrad: bool, **arguments: Any) -> Tensors:
    """Return the step with epsilon inside the root."""
    before = tensors["parameter"].clone()
    found = dict(OPS["adamw"].torch_call(tensors, decay=decay, amsgrad=amsgrad, **arguments))
    shrunk = before * (1 - 1e-5) if decay == "decoupled" else before
    square = found["largest" if amsgrad else "square"]
    step = found["moment"].to(before.dtype) / 0.1 / ((square.to(before.dtype) / 0.001 + 1e-8).sqrt())
    found["parameter"] = shrunk - 1e-3 * step
    return found | ({"copy": found["parameter"].to(found["copy"].dtype)} if "copy" in found else {})


def _last_of_pool(case: Case) -> Call:
    """Return max pooling from the other end, whose first of equal values is the last; none where sides differ."""
    right, side = right_call(case), -1

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        x = tensors["input"]
        found = dict(right(tensors, **arguments))
        if "indices" in found:
            values = x.reshape(*x.shape[:2], -1)
            flat = found["output"].reshape(*x.shape[:2], -1)
            same = values[..., None, :] == flat[..., :, None]
            last = values.shape[-1] - 1 - same.flip(side).int().argmax(side)
            found["indices"] = last.view(found["indices"].shape).to(found["indices"].dtype)
        return found

    return call


def _last_of_reduce(case: Case) -> Call:
    right = right_call(case)

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        x = tensors["x"]
        found = dict(right({**tensors, "x": x.flip(-1)}, **arguments))
        whole = {name: y for name, y in found.items() if not y.is_floating_point() and str(y.dtype) == "torch.int64"}
        return found | {name: x.shape[-1] - 1 - y for name, y in whole.items()}

    return call


_FLIPPED: dict[str, Callable[[Case], Call]] = {
    "max_pool": _last_of_pool,
    "adaptive_max_pool": _last_of_pool,
    "reduce": _last_of_reduce,
}
_RULES: dict[str, dict[str, Rule]] = {
    "softmax": {"no maximum subtracted": _unstable_softmax, "partial softmax not rescaled": _partial_softmax},
    "cross_entropy": {"no maximum subtracted": _unstable_loss, "softmax term missing": _without_softmax_term},
    "attention": {
        "no maximum subtracted": _unstable_attention,
        "partial softmax not rescaled": _partial_attention,
        "scores not scaled": _unscaled_attention,
    },
    "layer_norm": {"variance by n - 1": _layer_norm(1, True), "epsilon outside the root": _layer_norm(0, False)},
    "group_norm": {"variance by n - 1": _group_norm(1, True), "epsilon outside the root": _group_norm(0, False)},
    "rms_norm": {"mean square by n - 1": _rms_norm(False), "epsilon outside the root": _rms_norm(True)},
    "adamw": {"epsilon inside the root": _adamw_inside},
}
