"""Quantised ONNX files of a float model, written by ONNX Runtime's own quantiser."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.errors import MissingExtraError
from nearpeak.precision.quantisation.packed_weights import with_packed_weights

Feeds = Mapping[str, Any]
"""Inputs of one run by name."""
Writer = Callable[[Path, Path, Sequence[Feeds], Sequence[str]], None]
"""Takes the float model, the new file, inputs to calibrate with, and the nodes that stay as they are."""
MIXED = "mixed"
"""Scheme of the nodes alone in which integers are expected to pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedScheme:
    """One way of quantising a file after training."""

    precision: str
    """Row of the table that it belongs to: `int8` or `int4`."""
    text: str
    """What is quantised, in words."""
    write: "Writer"
    """Writes the quantised file."""


def _static(activations: str, weights: str) -> Writer:
    def write(source: Path, out: Path, samples: Sequence[Feeds], left_out: Sequence[str]) -> None:
        library = _library()
        kinds = library.QuantType
        library.quantize_static(
            str(source), str(out), _reader(library, samples), quant_format=library.QuantFormat.QDQ, per_channel=True,
            activation_type=getattr(kinds, activations), weight_type=getattr(kinds, weights),
            nodes_to_exclude=list(left_out),
        )  # fmt: skip

    return write


def _operators(source: Path, out: Path, samples: Sequence[Feeds], left_out: Sequence[str]) -> None:
    library = _library()
    library.quantize_static(
        str(source), str(out), _reader(library, samples), quant_format=library.QuantFormat.QOperator,
        activation_type=library.QuantType.QUInt8, weight_type=library.QuantType.QInt8, nodes_to_exclude=list(left_out),
    )  # fmt: skip


def _dynamic(source: Path, out: Path, _: Sequence[Feeds], left_out: Sequence[str]) -> None:
    library = _library()
    library.quantize_dynamic(
        str(source), str(out), weight_type=library.QuantType.QInt8, nodes_to_exclude=list(left_out)
    )  # fmt: skip


def _weights_only(bits: int) -> Writer:
    def write(source: Path, out: Path, _: Sequence[Feeds], __: Sequence[str]) -> None:
        import onnx

        onnx.save(with_packed_weights(onnx, onnx.load(str(source)), bits), str(out))

    return write


SCHEMES: Mapping[str, QuantisedScheme] = {
    "s8s8": QuantisedScheme(
        precision="int8", text="int8 activations and weights, static", write=_static("QInt8", "QInt8")
    ),
    "u8s8": QuantisedScheme(
        precision="int8", text="uint8 activations, int8 weights, static", write=_static("QUInt8", "QInt8")
    ),
    MIXED: QuantisedScheme(
        precision="int8", text="as u8s8, in the nodes where it is expected to pay", write=_static("QUInt8", "QInt8")
    ),
    "u8s8_operators": QuantisedScheme(precision="int8", text="as u8s8, with integer operators", write=_operators),
    "dynamic": QuantisedScheme(precision="int8", text="int8 weights, activations scaled at each run", write=_dynamic),
    "w8": QuantisedScheme(precision="int8", text="int8 weights alone, in blocks of 32", write=_weights_only(8)),
    "w4": QuantisedScheme(precision="int4", text="int4 weights alone, in blocks of 32", write=_weights_only(4)),
    "s8s4": QuantisedScheme(
        precision="int4", text="int8 activations, int4 weights, static", write=_static("QInt8", "QInt4")
    ),
}
"""Schemes by name."""


def write_quantised(
    source: Path, out: Path, scheme: str, samples: Sequence[Feeds], left_out: Sequence[str] = ()
) -> str:
    """Write a file quantised after training; return the reason where the quantiser refuses, else nothing.

    Args:
        left_out: nodes that stay as they are.
    """
    try:
        with _quiet():
            SCHEMES[scheme].write(source, out, samples, left_out)
    except Exception as error:  # the quantiser has no errors of its own
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return (lines[0] if lines else type(error).__name__)[:160]
    return ""


def _library() -> Any:
    try:
        import onnxruntime.quantization as library
    except ImportError:
        raise MissingExtraError("quantisation needs ONNX Runtime; install 'nearpeak[onnxruntime]'") from None
    return library


def _reader(library: Any, samples: Sequence[Feeds]) -> Any:
    """Return a reader of the samples, as the quantiser takes them."""
    left = iter(samples)

    class Reader(library.CalibrationDataReader):  # type: ignore[misc]  # the library is a parameter
        def get_next(self) -> Feeds | None:
            sample = next(left, None)
            return None if sample is None else {name: np.asarray(value) for name, value in sample.items()}

    return Reader()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the quantiser's advice on preparing a model off the terminal."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
