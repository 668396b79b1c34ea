"""Connectionist temporal classification (CTC): the likelihood of a label sequence over all its alignments."""

from collections import Counter
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX, unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum
from nearpeak.ops.shared.definition.axis_checks import required_at_most
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance


@free_when_empty
def ctc_loss(batch: int, time: int, classes: int, labels: int, dtype: DType) -> Work:
    """Return the least work of the negative log-likelihood of `labels` labels in `time` steps, and of its alphas.

    Shapes: log-probabilities [time, batch, classes]; labels [batch, labels]; alphas [batch, time, 2 labels + 1].
    Counts: per state and step after the first one addition and one product, no addition for the first state, and one
    logarithm per sequence. Which classes the labels name is data: of every step at least one label's and the blank's
    log-probability is read (assumption A9).

    Args:
        classes: the blank, class 0, included: labels need a second one.

    Source: Graves et al. 2006, doi:10.1145/1143844.1143891, section 4.1.

    >>> ctc_loss(1, 4, 10, 2, DType(name="fp32", bits_count=32)).flop
    {'vector.fp32': 27}
    """
    _required_classes(labels, classes)
    states = 2 * labels + 1
    met = minimum(minimum(labels, 1) + 1, classes)
    return Work(
        flop={unit(dtype): batch * maximum(time - 1, 0) * (2 * states - 1)},
        special_count=batch,
        read_bytes=dtype.bytes(batch * time * met) + INDEX.bytes(batch * labels),
        write_bytes=dtype.bytes(batch * time * states + batch),
    )


@free_when_empty
def _backward(batch: int, time: int, classes: int, labels: int, dtype: DType) -> Work:
    """Return the least work of the gradient of the log-probabilities, from the alphas.

    Counts: the betas as the alphas; per state and step one product of both; per class and step one exponential, one
    difference and one product with the upstream gradient.
    """
    _required_classes(labels, classes)
    states, elements = 2 * labels + 1, batch * time * classes
    return Work(
        flop={unit(dtype): batch * maximum(time - 1, 0) * (2 * states - 1) + batch * time * states + 2 * elements},
        special_count=elements,
        read_bytes=dtype.bytes(elements + batch * time * states + 2 * batch) + INDEX.bytes(batch * labels),
        write_bytes=dtype.bytes(elements),
    )


def _required_classes(labels: int, classes: int) -> None:
    """Refuse labels where the blank is the only class."""
    required_at_most("ctc_loss", {"labels * (classes - 1)": labels * (classes - 1)}, labels=labels)


def _extended(target: Any) -> Any:
    """Return the labels, none of them blank, with blanks (class 0) around each."""
    extended = np.zeros((*target.shape[:-1], 2 * target.shape[-1] + 1), dtype=np.int64)
    extended[..., 1::2] = target
    return extended


def _valid(drawn: dict[str, Any], time: int, classes: int, labels: int, **_: Any) -> dict[str, Any]:
    """Return labels, none of which is blank, with no more repetitions than there are steps for the blanks between."""
    _required_classes(labels, classes)
    kinds = max(classes - 1, 1)
    target = np.asarray(drawn["target"]) % kinds
    spare = np.full(len(target), time - labels)
    for place in range(1, labels):
        again = target[:, place] == target[:, place - 1]
        target[:, place] = (target[:, place] + (again & (spare <= 0))) % kinds
        spare -= again
    return {"target": target + 1}


def _alphas(x: Any, path: Any) -> Any:
    """Return the log-probabilities of all beginnings, for one sequence x[time, classes]."""
    before = np.full((len(x), len(path)), -np.inf)
    before[0, :2] = x[0, path[:2]]
    skips = np.array([s > 1 and path[s] != 0 and path[s] != path[s - 2] for s in range(len(path))])
    for t in range(1, len(x)):
        row = before[t - 1]
        shifted_one, shifted_two = (np.concatenate([np.full(k, -np.inf), row])[: len(row)] for k in (1, 2))
        before[t] = np.logaddexp(np.logaddexp(row, shifted_one), np.where(skips, shifted_two, -np.inf)) + x[t, path]
    return before


def _reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    rows = zip(arrays["x"].swapaxes(0, 1), _extended(arrays["target"]), strict=True)
    alphas = np.stack([_alphas(x, path) for x, path in rows])
    return {"y": -np.logaddexp.reduce(alphas[:, -1, -2:], axis=-1), "alphas": alphas}


def _backward_reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    grad = np.zeros_like(arrays["x"])
    paths = _extended(arrays["target"])
    for n, (x, path, upstream) in enumerate(zip(arrays["x"].swapaxes(0, 1), paths, arrays["grad_y"], strict=True)):
        alphas, betas = _alphas(x, path), _alphas(x[::-1], path[::-1])[::-1, ::-1]
        together = np.exp(alphas + betas - np.logaddexp.reduce(alphas[-1, -2:]))
        share = np.zeros_like(x)
        np.add.at(share.T, path, together.T)
        grad[:, n] = (np.exp(x) - share / np.exp(x)) * upstream
        if not np.isfinite(alphas[-1, -2:]).any():  # more labels than steps: the loss is infinite, and has no gradient
            grad[:, n] = np.nan
    return {"grad_x": grad}


def _passed(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return each gradient times the size of the logarithms whose sum it is the exponential of.

    Errors of these are its relative ones, and each step rounds them at their own size, however near 0 their sum is.
    """
    size = np.zeros_like(arrays["x"])
    paths = _extended(arrays["target"])
    for n, (x, path, upstream) in enumerate(zip(arrays["x"].swapaxes(0, 1), paths, arrays["grad_y"], strict=True)):
        alphas, betas = _alphas(x, path), _alphas(x[::-1], path[::-1])[::-1, ::-1]
        whole = np.logaddexp.reduce(alphas[-1, -2:])
        together = np.exp(alphas + betas - whole)
        logs = np.abs(np.where(together > 0, alphas, 0.0)) + np.abs(np.where(together > 0, betas, 0.0)) + np.abs(whole)
        share = np.zeros_like(x)
        np.add.at(share.T, path, (together * logs).T)
        size[:, n] = (np.exp(x) + share / np.exp(x)) * np.abs(upstream)
    return {"grad_x": size}


def _torch_call(tensors: dict[str, Any], batch: int, time: int, labels: int, **_: Any) -> dict[str, Any]:
    import torch

    y, alphas = torch.ops.aten._ctc_loss(tensors["x"], tensors["target"], [time] * batch, [labels] * batch)
    return {"y": y, "alphas": alphas.detach()}


def _from_aten(site: AtenSite) -> tuple[Match, ...]:
    """Match the loss and its gradient: one case per pair of lengths; lengths held in tensors are not known."""
    x, classes = site.args["log_probs"], site.args["log_probs"].shape[-1]
    batch = x.shape[1] if len(x.shape) == 3 else 1
    lengths = [site.args["input_lengths"], site.args["target_lengths"]]
    pairs = Counter(zip(*lengths, strict=True)) if all(isinstance(row, list) for row in lengths) else {(1, 0): batch}
    back = "backward" in site.name
    size = dtype_of(x.dtype)
    touched = {
        "log_probs": size.bytes(sum(count * time * min(labels + 1, 2) for (time, labels), count in pairs.items()))
    }
    return tuple(
        Match(
            arguments={"batch": count, "time": time, "classes": classes, "labels": labels, "dtype": x.dtype},
            phase="backward" if back else "forward",
            touched_bytes={} if back else touched,
        )
        for (time, labels), count in sorted(pairs.items())
    )


OPERATOR = Operator(
    forward=ctc_loss,
    family="norm",
    backward=_backward,
    tolerance=Tolerance(kind="normalisation", reduction="time", special="unspecified", below={"target": "classes"}),
    inputs=lambda batch, time, classes, labels, dtype, **_: {
        "x": Tensor(shape=(time, batch, classes), dtype=dtype),
        "target": Tensor(shape=(batch, labels), dtype="int64"),
    },
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    passed=_passed,
    torch_call=_torch_call,
    aten={f"aten._ctc_loss{phase}.{end}": _from_aten for phase in ("", "_backward") for end in ("default", "Tensor")},
)
