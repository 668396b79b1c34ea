"""Emulated block-scaled and custom number formats."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nearpeak.base.input_files import toml_of_file, toml_table
from nearpeak.base.registry import unknown_name
from nearpeak.core.work.scheme import SCHEMES, Operand, Scheme
from nearpeak.errors import SpecError
from nearpeak.ops.shared.number_formats import FORMATS, FloatFormat, Format, IntFormat

_LEAST_EXPONENT = 127
"""Largest exponent of scales that are powers of two, and of their inverses."""


class Quantised(NamedTuple):
    """A matrix in a format of blocks."""

    elements: Any
    """Numbers of the element format, shape (rows, columns)."""
    scales: Any
    """Scale of each block, shape (rows of blocks, columns of blocks)."""
    tensor_scale: float
    """Scale of the whole matrix; 1 where the format has none."""
    values: Any
    """Decoded values as float64: each product of an element and its scales is exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFormat:
    """Elements in blocks, each with a scale.

    >>> BLOCKS["mxfp4"].rounded([[0.3, 6.0, -7.0]]).tolist()
    [[0.5, 6.0, -6.0]]
    """

    name: str
    """How results call it."""
    element: Format
    """Format of the elements."""
    block_count: int = 0
    """Neighbours along the sum of a product that share a scale; 0 for all."""
    row_count: int = 1
    """Rows that share a scale; 0 for all."""
    scale: FloatFormat | None = None
    """Format of scales; none for fp32 and the largest number of a block on the largest of the format."""
    two_levels: bool = False
    """Whether scales of blocks are quantised against an fp32 scale of the whole."""

    def __post_init__(self) -> None:
        """Refuse blocks of nothing."""
        if self.block_count < 0 or self.row_count < 0:
            raise SpecError(f"format {self.name}: a block has 1 element or more, or 0 for all")
        if self.two_levels and self.scale is None:
            raise SpecError(f'format {self.name}: scales of blocks have no format; scale = "fp8_e4m3" is usual')

    def quantised(self, matrix: Any, rounding: str = "nearest_even", *, seed: int = 0) -> Quantised:
        """Return a matrix of shape (rows, columns) in the format; products sum along columns.

        Scales follow the definitions in fp32: powers of two put the largest number's exponent on that of the format's
        (OCP Microscaling Formats 1.0, section 6.3); others put it on the format's largest number.

        A block with a NaN or an infinity has NaN for its scale and for every value (section 5.1: of a scale that is NaN
        all values are); the scale of a whole matrix follows from its other blocks.
        """
        x = np.asarray(matrix, dtype=np.float32)
        if x.ndim != 2:
            raise SpecError(f"format {self.name}: a matrix has two dimensions, got {x.ndim}")
        high, wide = self.row_count or max(x.shape[0], 1), self.block_count or max(x.shape[1], 1)
        rows, columns = np.arange(0, max(x.shape[0], 1), high), np.arange(0, max(x.shape[1], 1), wide)
        largest = np.maximum.reduceat(np.maximum.reduceat(np.abs(x), rows, axis=0), columns, axis=1)
        scales, whole = self._scales(largest)
        each = scales[np.arange(x.shape[0]) // high][:, np.arange(x.shape[1]) // wide]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # scales may vanish
            scaled = np.where(x == 0, x, x / (each.astype(np.float32) * np.float32(whole)))
        elements = self.element.rounded(scaled, rounding, saturates=True, seed=seed)
        return Quantised(elements, scales, whole, elements * (each * whole))

    def rounded(self, values: Any, rounding: str = "nearest_even", *, seed: int = 0) -> Any:
        """Return numbers of any shape rounded to the format, blocks along the last dimension, as float64."""
        x = np.asarray(values, dtype=np.float64)
        flat = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
        return self.quantised(flat, rounding, seed=seed).values.reshape(x.shape)

    def _scales(self, largest: Any) -> tuple[Any, float]:
        """Return the scale of each block, NaN where its largest number is none, and that of the whole."""
        finite = np.isfinite(largest)
        scales, whole = self._finite_scales(np.where(finite, largest, np.float32(0)))
        return np.where(finite, scales, np.nan), whole

    def _finite_scales(self, largest: Any) -> tuple[Any, float]:
        """Return the scale of each block, and that of the whole."""
        top = np.float32(self.element.largest)
        if self.scale is None:
            return _usable(largest / top).astype(np.float64), 1.0
        if self.scale.fraction_bits_count == 0:
            exponent = np.frexp(_usable(largest))[1] - np.frexp(top)[1]
            return np.exp2(np.clip(exponent, -_LEAST_EXPONENT, _LEAST_EXPONENT).astype(np.float64)), 1.0
        if not self.two_levels:
            return _usable(self.scale.rounded(largest / top, saturates=True)).astype(np.float64), 1.0
        whole = _usable(largest.max() / (top * np.float32(self.scale.largest)))
        return self.scale.rounded(largest / top / whole, saturates=True), float(whole)


def _usable(scale: Any) -> Any:
    """Return scales, 1 where one is zero, infinite or NaN: finite values then saturate or vanish."""
    return np.where(np.isfinite(scale) & (scale > 0), scale, 1).astype(np.float32)


def _of_scheme(name: str, scheme: Scheme, operand: Operand) -> BlockFormat:
    """Return the row of one factor of a quantised product."""
    scale = FORMATS[scheme.scale]
    is_float_scale = isinstance(scale, FloatFormat) and scale.bits_count == 8
    element = FORMATS[operand.dtype]
    if isinstance(element, IntFormat) and not scheme.zeros:
        element = replace(element, symmetric=True)
    return BlockFormat(
        name=name, element=element, block_count=operand.column_count, row_count=operand.row_count,
        scale=scale if is_float_scale and isinstance(scale, FloatFormat) else None,
        two_levels=scheme.tensor_scale_count > 0,
    )  # fmt: skip


BLOCKS: Mapping[str, BlockFormat] = {
    name: _of_scheme(name, scheme, scheme.a if scheme.a.scaled else scheme.b) for name, scheme in SCHEMES.items()
} | {
    f"mxfp8_{kind}": BlockFormat(
        name=f"mxfp8_{kind}", element=FORMATS[f"fp8_{kind}"], block_count=32, scale=FORMATS["fp8_e8m0"],  # type: ignore[arg-type]  # a row of floats
    )
    for kind in ("e4m3", "e5m2")
} | {
    f"mxfp6_{kind}": BlockFormat(
        name=f"mxfp6_{kind}", element=FORMATS[f"fp6_{kind}"], block_count=32, scale=FORMATS["fp8_e8m0"],  # type: ignore[arg-type]  # a row of floats
    )
    for kind in ("e2m3", "e3m2")
}  # fmt: skip
"""Formats of blocks by name: those of `core.scheme` by their first quantised factor, and the rest of OCP's."""
_FLOAT = {"exponent_bits": "exponent_bits_count", "fraction_bits": "fraction_bits_count", "bias": "bias",
          "signed": "signed", "nan": "nan"}  # fmt: skip
_INT = {"bits": "bits_count", "signed": "signed", "symmetric": "symmetric"}
_BLOCK = {"element": "element", "block": "block_count", "rows": "row_count", "scale": "scale",
          "two_levels": "two_levels"}  # fmt: skip
Row = Format | BlockFormat


def table_of(path: Path | None = None, edits: Sequence[str] = ()) -> dict[str, Row]:
    """Return all formats by name, with those of a file and with fields edited.

    Args:
        path: TOML with a table `[format.NAME]` per row: exponent_bits and fraction_bits (bias, signed, nan); bits
            (signed, symmetric); or element, block and scale (rows, two_levels), whose names are other rows.
        edits: `NAME.FIELD=VALUE`, e.g. `mxfp4.block=16`.

    Raises:
        SpecError: a file, a name or a field that is not known or contradicts itself.

    >>> table_of(edits=["fp8_e4m3.fraction_bits=4", "fp8_e4m3.exponent_bits=3"])["fp8_e4m3"].largest
    30.0
    """
    table: dict[str, Row] = {**FORMATS, **BLOCKS}
    for name, entry in ({} if path is None else _read(path)).items():
        table[name] = _row(name, entry, table, f"{path}: ")
    for text in edits:
        place, sign, value = text.partition("=")
        name, dot, key = place.rpartition(".")
        if not sign or not dot:
            raise SpecError(f"--set {text!r}: is not FORMAT.FIELD=VALUE; e.g. mxfp4.block=16")
        old = table.get(name)
        stated = {} if old is None else _stated(old)
        table[name] = _row(name, stated | {key: _value(value)}, table, f"--set {text!r}: ")
    return table


def _read(path: Path) -> Mapping[str, Mapping[str, Any]]:
    entries = toml_of_file(path, f"formats {path}").get("format")
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise SpecError(f"formats {path}: has no tables [format.NAME]")
    return entries


def _value(text: str) -> Any:
    """Return a value in TOML syntax; words need no quotes."""
    try:
        return toml_table(f"x = {text}")["x"]
    except ValueError:
        return text


def _stated(row: Row) -> dict[str, Any]:
    """Return a row as a file states it."""
    names = _BLOCK if isinstance(row, BlockFormat) else _INT if isinstance(row, IntFormat) else _FLOAT
    entries = {key: getattr(row, field) for key, field in names.items()}
    return {key: getattr(value, "name", value) for key, value in entries.items() if value is not None}


def _row(name: str, entry: Mapping[str, Any], table: Mapping[str, Row], where: str) -> Row:
    """Return one row, checked."""
    kind, names = (BlockFormat, _BLOCK) if "element" in entry else (IntFormat, _INT) if "bits" in entry else (
        FloatFormat, _FLOAT)  # fmt: skip
    unknown = sorted(set(entry) - set(names))
    if unknown:
        raise SpecError(f"{where}format {name}: no field {unknown[0]}; there are {', '.join(names)}")
    arguments: dict[str, Any] = {names[key]: value for key, value in entry.items()}
    for key, value in arguments.items():
        wanted = (
            str if key in ("nan", "element", "scale") else bool if key in ("signed", "symmetric", "two_levels") else int
        )
        if type(value) is not wanted:
            raise SpecError(f"{where}format {name}: {key} is {value!r}; {wanted.__name__} is right")
    for key in ("element", "scale"):
        if key in arguments:
            arguments[key] = _element(arguments[key], table, f"{where}format {name}: {key}")
    try:
        return kind(name=name, **arguments)
    except TypeError:
        required = {field.name for field in fields(kind) if field.default is MISSING}
        needed = [key for key, field in names.items() if field in required and key not in entry]
        raise SpecError(f"{where}format {name}: {', '.join(needed)} is missing") from None


def _element(name: str, table: Mapping[str, Row], where: str) -> Format:
    element = table.get(name)
    if element is None:
        raise unknown_name("format", name, tuple(table))
    if isinstance(element, BlockFormat):
        raise SpecError(f"{where} is {name}, a format of blocks; one of elements is right")
    return element
