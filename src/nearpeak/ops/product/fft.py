"""Discrete Fourier transforms of real and complex rows and planes."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

KINDS = ("r2c", "c2c", "c2r")
"""From real or complex to real or complex."""


@free_when_empty
def fft(rows: int, n: int, dtype: DType, planes: int = 1, kind: str = "c2c", onesided: bool = True) -> Work:
    """Return the least work of `rows` Fourier transforms over planes x n points.

    Shapes: complex numbers are pairs of `dtype`; of a real signal's transform only n // 2 + 1 columns are stored.
    Counts: bytes only. The least number of FLOP is not known; the usual 5 N log2 N is what one algorithm takes, not
    what every algorithm must.

    Args:
        planes: points along the other dimensions that are transformed.
        kind: r2c, c2c or c2r.
        onesided: the redundant half of a real signal's transform is left out.

    Source: Johnson and Frigo 2007, doi:10.1109/TSP.2006.882087; Frigo and Johnson 2005,
    doi:10.1109/JPROC.2004.840301.

    >>> fft(1, 8, DType(name="fp32", bits_count=32), kind="r2c").write_bytes
    40
    """
    required_one_of("fft", KINDS, kind=kind)
    whole, half = 2 * rows * planes * n, 2 * rows * planes * (n // 2 + 1)
    spectrum = half if onesided and kind != "c2c" else whole
    real = rows * planes * n
    return Work(
        read_bytes=dtype.bytes({"r2c": real, "c2c": whole, "c2r": half}[kind]),
        write_bytes=dtype.bytes(real if kind == "c2r" else spectrum),
    )


def _inputs(rows: int, n: int, planes: int, dtype: str, kind: str, **_: Any) -> dict[str, Tensor]:
    shapes = {"r2c": (rows, planes, n), "c2c": (rows, planes, n, 2), "c2r": (rows, planes, n // 2 + 1, 2)}
    return {"x": Tensor(shape=shapes[kind], dtype=dtype)}


def _reference(arrays: dict[str, Any], n: int, kind: str, onesided: bool, **_: Any) -> dict[str, Any]:
    x = arrays["x"] if kind == "r2c" else arrays["x"][..., 0] + 1j * arrays["x"][..., 1]
    if kind == "c2r":
        return {"y": np.fft.irfft(np.fft.ifft(x, axis=-2), n, axis=-1)}
    y = np.fft.rfft2(x) if kind == "r2c" and onesided else np.fft.fft2(x)
    return {"y": np.stack([y.real, y.imag], axis=-1)}


def _torch_call(tensors: dict[str, Any], n: int, kind: str, onesided: bool, **_: Any) -> dict[str, Any]:
    import torch

    x = tensors["x"] if kind == "r2c" else torch.view_as_complex(tensors["x"])
    if kind == "c2r":
        return {"y": torch.fft.irfft2(x, (x.shape[-2], n))}
    return {"y": torch.view_as_real(torch.fft.rfft2(x) if kind == "r2c" and onesided else torch.fft.fft2(x))}


_REAL = {"complex64": "fp32", "complex128": "fp64"}


def _from_aten(site: AtenSite) -> Match:
    """Match the transforms below torch.fft; the real side of the last dimension says how many points there are."""
    x, out = site.args["self"], site.outputs[0]
    kind = site.name.split(".")[1].removeprefix("_fft_")
    signal = out if kind == "c2r" else x
    dimensions = [dimension % len(x.shape) for dimension in site.args["dim"]]
    n = signal.shape[dimensions[-1]]
    planes = prod(signal.shape[dimension] for dimension in dimensions[:-1])
    points = n * planes
    arguments: dict[str, Value] = {
        "rows": signal.elements // points if points else 0, "n": n, "planes": planes, "kind": kind,
        "dtype": _REAL.get(x.dtype, x.dtype), "onesided": bool(site.args.get("onesided", True)),
    }  # fmt: skip
    return Match(arguments=arguments)


def _from_onnx(site: OnnxSite) -> Match:
    """Match DFT, whose last dimension holds one or two parts of each number."""
    x = site.tensor(0)
    axis = int(site.constants.get(2, (site.attributes.get("axis", -2),))[0]) % len(x.shape)
    kind = "c2c" if x.shape[-1] == 2 else "r2c"
    n = x.shape[axis]
    arguments: dict[str, Value] = {
        "rows": x.elements // (n * x.shape[-1]) if n else 0, "n": n, "kind": kind, "dtype": x.dtype,
        "onesided": bool(site.attributes.get("onesided", 0)),
    }  # fmt: skip
    return Match(arguments=arguments)


def _frames(site: OnnxSite) -> Match:
    """Match STFT: one transform per frame; the product with the window is not counted."""
    x, out = site.tensor(0), site.outputs[0]
    onesided = bool(site.attributes.get("onesided", 1))
    frames, columns = out.shape[-3], out.shape[-2]
    length = site.constants.get(3) or ((site.inputs[2].elements,) if len(site.inputs) > 2 and site.inputs[2] else ())
    n = int(length[0]) if length else columns if not onesided else 2 * (columns - 1)
    arguments: dict[str, Value] = {
        "rows": x.shape[0] * frames, "n": n, "kind": "c2c" if x.shape[-1] == 2 and len(x.shape) == 3 else "r2c",
        "dtype": x.dtype, "onesided": onesided,
    }  # fmt: skip
    return Match(arguments=arguments)


OPERATOR = Operator(
    forward=fft,
    family="product",
    tolerance=Tolerance(kind="normalisation", reduction="n planes", special="unspecified", gates="largest"),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
    aten={f"aten._fft_{kind}.default": _from_aten for kind in KINDS},
    onnx={"DFT": _from_onnx, "STFT": _frames},
)
