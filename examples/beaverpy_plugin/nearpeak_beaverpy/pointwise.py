"""Probes of the linear layer, losses and activations."""

import contextlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak_beaverpy.probe import Probe

_RANDOM = np.random.default_rng(15)


def _float(*shape: int) -> Any:
    return _RANDOM.standard_normal(shape).astype(np.float32)


X, WEIGHT = _float(4, 6), _float(5, 6)


def _zero(*shape: int) -> Any:
    import torch

    return torch.zeros(shape, dtype=torch.float64)


def _linear_change(package: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the difference between two results of one layer for the same input, without stated weights."""
    made = package.Linear(6, 5)
    return made.forward(inputs["x"]) - made.forward(inputs["x"])


LINEAR = (
    Probe(
        operator="Linear", name="bias=False crashes", arrays={"x": X, "weight": WEIGHT}, summand_count=6.0,
        ours=lambda p, a: p.Linear(6, 5, bias=False).forward(a["x"], a["weight"]),
        right=lambda a: a["x"] @ a["weight"].T,
    ),
    Probe(
        operator="Linear", name="other random weights in every call", arrays={"x": X},
        ours=_linear_change, right=lambda _: _zero(4, 5),
    ),
    Probe(
        operator="Linear", name="float32 becomes float64", arrays={"x": X * 0}, summand_count=6.0, of_format=True,
        ours=lambda p, a: p.Linear(6, 5).forward(a["x"]) * 0, right=lambda _: _zero(4, 5),
    ),
)  # fmt: skip


def _constructed(package: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the loss with an unknown reduction, which the constructor must refuse."""
    del inputs
    return package.MSELoss(reduction="median")


def _squares(arrays: Mapping[str, Any]) -> Any:
    return (arrays["x"] - arrays["target"]).square()


_UNEQUAL = {"x": X[:3, :1], "target": X[:1, :4]}
_PAIR = {"x": X, "target": _float(4, 6)}
LOSS = (
    Probe(
        operator="MSELoss", name="unknown reduction accepted until forward", arrays={}, ours=_constructed,
    ),
    Probe(
        operator="MSELoss", name="size_average ignored", arrays=_PAIR, summand_count=24.0,
        ours=lambda p, a: p.MSELoss(size_average=False).forward(a["x"], a["target"]), right=lambda a: _squares(a).sum(),
    ),
    Probe(
        operator="MSELoss", name="reduce ignored", arrays=_PAIR,
        ours=lambda p, a: p.MSELoss(reduce=False).forward(a["x"], a["target"]), right=_squares,
    ),
    Probe(
        operator="MSELoss", name="broadcasts without a warning", arrays=_UNEQUAL, summand_count=12.0,
        ours=lambda p, a: _warned(lambda: p.MSELoss().forward(a["x"], a["target"])), right=lambda a: _squares(a).mean(),
    ),
)  # fmt: skip


def _warned(call: Any) -> Any:
    """Return the result of `call` if it warned."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = call()
    if not seen:
        raise UserWarning("no warning was given")
    return result


def _silent(call: Any) -> Any:
    """Return the result of `call` if it did not warn."""
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        return call()


def _cosine(arrays: Mapping[str, Any], **options: Any) -> Any:
    import torch

    return torch.nn.functional.cosine_similarity(arrays["x"], arrays["y"], **options)


def _similarity(name: str, options: dict[str, Any], x: Any, y: Any) -> Probe:
    return Probe(
        operator="CosineSimilarity",
        name=name,
        arrays={"x": x, "y": y},
        summand_count=float(x.shape[-1]),
        contract="normalisation",
        ours=lambda p, a: p.CosineSimilarity(**options).forward(a["x"], a["y"]),
        right=lambda a: _cosine(a, **options),
    )


def _kept_dimension(package: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the result for three dimensions after a refused call with one."""
    made = package.CosineSimilarity(dim=2)
    with contextlib.suppress(IndexError, ValueError):
        made.forward(inputs["x"][0, 0], inputs["y"][0, 0])
    return made.forward(inputs["x"], inputs["y"])


_CUBE = {"x": _float(2, 3, 4), "y": _float(2, 3, 4)}
COSINE = (
    _similarity("zero vector gives NaN", {}, X * 0, X),
    _similarity("eps ignored", {"eps": 1.0}, np.array([[10.0, 0.0]], np.float32), np.array([[0.01, 0.0]], np.float32)),
    Probe(
        operator="CosineSimilarity", name="dimension out of range accepted", arrays={"x": X, "y": X},
        ours=lambda p, a: p.CosineSimilarity(dim=5).forward(a["x"], a["y"]),
    ),
    Probe(
        operator="CosineSimilarity", name="clamped dimension kept on the object", arrays=_CUBE, summand_count=4.0,
        contract="normalisation", ours=_kept_dimension, right=lambda a: _cosine(a, dim=2),
    ),
    Probe(
        operator="CosineSimilarity", name="fp16 overflows", arrays={k: np.full((1, 4), 300, np.float16) for k in "xy"},
        ours=lambda p, a: p.CosineSimilarity().forward(a["x"], a["y"]), right=_cosine, formats=("float16",),
        contract="normalisation", summand_count=4.0,
    ),
)  # fmt: skip


def _in_place(package: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the input after an in-place call."""
    x = inputs["x"]
    package.ReLU(inplace=True).forward(x)
    return x


def _sigmoid(name: str, x: Any, format_: str) -> Probe:
    return Probe(
        operator="Sigmoid", name=name, arrays={"x": x}, contract="normalisation", formats=(format_,), of_format=True,
        ours=lambda p, a: p.Sigmoid().forward(a["x"]), right=lambda a: a["x"].double().sigmoid(),
    )  # fmt: skip


def _softmax(name: str, x: Any, dim: int | None, right: int, format_: str = "float32") -> Probe:
    return Probe(
        operator="Softmax", name=name, arrays={"x": x}, contract="normalisation", formats=(format_,),
        summand_count=float(x.shape[right]), ours=lambda p, a: p.Softmax(dim=dim).forward(a["x"]),
        right=lambda a: a["x"].softmax(right),
    )  # fmt: skip


ACTIVATIONS = (
    Probe(
        operator="ReLU", name="inplace ignored", arrays={"x": X}, contract="exact", ours=_in_place,
        right=lambda a: a["x"].relu(),
    ),
    _sigmoid("fp16 underflows", np.array([-12.0, 1.0], np.float16), "float16"),
    _sigmoid("integers become float64", np.array([-3, 0, 2]), "float32"),
    Probe(
        operator="Sigmoid", name="overflow warning", arrays={"x": np.array([-200.0, 200.0], np.float32)},
        contract="normalisation", ours=lambda p, a: _silent(lambda: p.Sigmoid().forward(a["x"])),
        right=lambda a: a["x"].sigmoid(),
    ),
    _softmax("large inputs overflow", 1000 + X, -1, -1),
    _softmax("very negative inputs give NaN", X - 1e4, -1, -1),
    _softmax("fp16 overflows", (X + 12).astype(np.float16), -1, -1, "float16"),
    _softmax("dim=None means the last", _float(2, 3, 4), None, 0),
)  # fmt: skip
POINTWISE: tuple[Probe, ...] = (*LINEAR, *LOSS, *COSINE, *ACTIVATIONS)
