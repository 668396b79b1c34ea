"""Probes of convolution and max pooling."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak_beaverpy.probe import Probe

_RANDOM = np.random.default_rng(14)


def _float(*shape: int) -> Any:
    return _RANDOM.standard_normal(shape).astype(np.float32)


X, KERNELS = _float(2, 3, 7, 9), _float(4, 3, 2, 3)


def _torch_conv(arrays: Mapping[str, Any], **options: Any) -> Any:
    import torch.nn.functional as F  # noqa: N812

    return F.conv2d(arrays["x"], arrays["kernels"], **options)


def _conv(name: str, arguments: tuple[Any, ...], options: dict[str, Any], right: dict[str, Any], **more: Any) -> Probe:
    """Return the probe of one convolution, whose right answer is PyTorch's with the options `right`."""
    arrays = {"x": more.pop("x", X), "kernels": more.pop("kernels", KERNELS)}
    return Probe(
        operator="Conv2D",
        name=name,
        ours=lambda package, arrays_by_name: package.Conv2D(*arguments, **options).forward(
            arrays_by_name["x"], arrays_by_name["kernels"]
        ),
        right=lambda arrays_by_name: _torch_conv(arrays_by_name, **right),
        arrays=arrays,
        summand_count=float(arrays["kernels"][0].size),
        **more,
    )


def _bias(package: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the difference between the result for zeros and the requested bias, which must be 0."""
    made = package.Conv2D(3, 4, (2, 3), bias=True)
    zeros = made.forward(inputs["x"] * 0, inputs["kernels"])
    bias = getattr(made, "bias", None)
    if not isinstance(bias, np.ndarray):
        raise TypeError(f"bias=True gave no bias but {bias!r}")
    return zeros - bias[None, :, None, None]


def _reflected(arrays: Mapping[str, Any]) -> Any:
    import torch.nn.functional as F  # noqa: N812

    padded = F.pad(arrays["x"], (1, 1, 1, 1), mode="reflect")
    return F.conv2d(padded, arrays["kernels"])


def _twice(kind: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the second result of one object for the same input."""

    def ours(package: Any, inputs: Mapping[str, Any]) -> Any:
        made = getattr(package, kind)(*arguments, **options)
        made.forward(*inputs.values())
        return made.forward(*inputs.values())

    return ours


def _change(package: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the difference between two results of one object for the same input, without stated kernels."""
    made = package.Conv2D(3, 4, (2, 3))
    return made.forward(inputs["x"]) - made.forward(inputs["x"])


def _zeros(arrays: Mapping[str, Any], *shape: int) -> Any:
    del arrays
    import torch

    return torch.zeros(shape, dtype=torch.float64)


_CONV = (
    _conv("padding precedes stride", (3, 4, (2, 3), 2), {}, {"stride": 2}),
    _conv("dtype ignored", (3, 4, (2, 3)), {"dtype": "float32"}, {}, of_format=True),
    _conv("float32 becomes float64", (3, 4, (2, 3)), {}, {}, of_format=True),
    _conv("padding='same' refused", (3, 4, (2, 3)), {"padding": "same"}, {"padding": "same"}),
    _conv("list as kernel size refused", (3, 4, [2, 3]), {}, {}),
    _conv("NumPy integer as kernel size refused", (3, 4, np.int64(2)), {}, {}, kernels=_float(4, 3, 2, 2)),
    _conv("unbatched input refused", (3, 4, (2, 3)), {}, {}, x=X[0]),
    _conv("empty batch with padding crashes", (3, 4, (2, 3)), {"padding": 1}, {"padding": 1}, x=X[:0]),
)
_FIVE = _float(1, 5, 7, 9)
_ZERO = {"x": X, "kernels": KERNELS}
CONV = (
    Probe(
        operator="Conv2D", name="second forward of a dilated one", arrays=_ZERO, summand_count=18.0,
        ours=_twice("Conv2D", (3, 4, (2, 3)), {"dilation": 2}), right=lambda a: _torch_conv(a, dilation=2),
    ),
    *_CONV,
    Probe(
        operator="Conv2D", name="padding_mode ignored", arrays=_ZERO, summand_count=18.0, right=_reflected,
        ours=lambda p, a: p.Conv2D(3, 4, (2, 3), padding=1, padding_mode="reflect").forward(a["x"], a["kernels"]),
    ),
    Probe(
        operator="Conv2D", name="bias ignored", arrays=_ZERO, ours=_bias,
        right=lambda a: _zeros(a, 2, 4, 6, 7),
    ),
    Probe(
        operator="Conv2D", name="channels of the input not checked", arrays={"x": _FIVE, "kernels": KERNELS},
        ours=lambda p, a: p.Conv2D(3, 4, (2, 3)).forward(a["x"], a["kernels"]),
    ),
    Probe(
        operator="Conv2D", name="other random kernels in every call", arrays={"x": X}, ours=_change,
        right=lambda a: _zeros(a, 2, 4, 6, 7),
    ),
)  # fmt: skip

PLANE = _RANDOM.permutation(2 * 3 * 8 * 10).reshape(2, 3, 8, 10).astype(np.float32) / 8
_WITH_NAN = PLANE.copy()
_WITH_NAN[0, 0, 3, 4] = np.nan
_WHOLE = PLANE.astype(np.int64)
_ALL_LOW = np.full((1, 1, 6, 8), -np.inf, np.float32)


def _torch_pool(arrays: Mapping[str, Any], *arguments: Any, **options: Any) -> Any:
    import torch.nn.functional as F  # noqa: N812

    result: Any = F.max_pool2d(arrays["x"], *arguments, **options)
    return result


def _pool(name: str, arguments: tuple[Any, ...], options: dict[str, Any], **more: Any) -> Probe:
    """Return the probe of one pooling; options of PyTorch are the same unless `right` gives others."""
    right = more.pop("right", (arguments, options))
    return Probe(
        operator="MaxPool2D",
        name=name,
        ours=lambda package, inputs: package.MaxPool2D(*arguments, **options).forward(inputs["x"]),
        right=lambda inputs: _torch_pool(inputs, *right[0], **right[1]),
        arrays={"x": more.pop("x", PLANE)},
        contract="exact",
        **more,
    )


_INDEX = {"return_indices": True}
_BOTH = ("float32", "int64")


def _indices(name: str, x: Any, padding: int) -> Probe:
    return _pool(
        name, (3,), {"padding": padding, "stride": 3, **_INDEX}, x=x, formats=_BOTH,
        right=((3,), {"padding": padding, "stride": 3, **_INDEX}),
    )  # fmt: skip


POOL = (
    _pool("default stride is 1", (2,), {}),
    _pool("padding precedes stride", (3, 1), {}),
    _pool("stride=None refused", (2,), {"stride": None}),
    _indices("indices in padded coordinates", PLANE[:, :, :, :8], 1),
    _indices("indices by the height", PLANE, 0),
    _pool("NaN ignored", (2,), {"stride": 2}, x=_WITH_NAN),
    _pool("index of a window of -inf", (2,), {"stride": 2, **_INDEX}, x=_ALL_LOW, formats=_BOTH),
    _pool("ceil_mode ignored", (3,), {"stride": 2, "ceil_mode": True}),
    _pool("integers with padding overflow", (3,), {"stride": 3, "padding": 1}, x=_WHOLE, formats=("int64",)),
    _pool("empty batch with padding crashes", (3,), {"stride": 3, "padding": 1}, x=PLANE[:0]),
    _pool("float32 becomes float64", (2,), {"stride": 2}, of_format=True),
    _pool("unbatched input refused", (2,), {"stride": 2}, x=PLANE[0]),
    Probe(
        operator="MaxPool2D", name="second forward of a dilated one", arrays={"x": PLANE}, contract="exact",
        ours=_twice("MaxPool2D", (2,), {"stride": 1, "dilation": 2}),
        right=lambda a: _torch_pool(a, 2, stride=1, dilation=2),
    ),
)  # fmt: skip
CONV_POOL: tuple[Probe, ...] = (*CONV, *POOL)
