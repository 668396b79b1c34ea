"""Number formats: their bits per element and the execution units that multiply them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nearpeak.base.registry import unknown_name
from nearpeak.core.work.scheme import SCHEMES, Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """One number format, as stored."""

    name: str
    """Canonical short name."""
    bits_count: int
    """Bits per stored element."""
    kind: str = "float"
    """`float`, `int`, `bool`, `complex` or `opaque`: bytes without arithmetic."""
    matrix_units: tuple[str, ...] = ()
    """Units of a target whose products of two such numbers are at least as accurate as the format itself."""
    split_units: tuple[tuple[str, int], ...] = ()
    """Narrower units that reach the same accuracy by adding up this many partial products."""
    faster_units: tuple[str, ...] = ()
    """Narrower units that frameworks may use by default although they round the inputs (TF32)."""
    vector_units: tuple[str, ...] = ()
    """Vector units that element-wise arithmetic on the format may use."""
    scheme: Scheme | None = None
    """Set where the name denotes both factors of a quantised product; the other fields are those of A's format."""

    def bytes(self, count: int) -> int:
        """Return the bytes of `count` elements, packed and rounded up to whole bytes.

        >>> DTYPES["bf16"].bytes(3), DTYPES["fp4_e2m1"].bytes(3)
        (6, 2)
        """
        if self.bits_count % 8 == 0:
            return count * (self.bits_count // 8)
        return (count * self.bits_count + 7) // 8


_ACCURATE_HALF = ("tensor.tf32", "tensor.fp32", "tensor.fp64", "vector.fp32", "vector.fp64")
_NARROW = ("tensor.bf16", "tensor.fp16", "vector.bf16", "vector.fp16", *_ACCURATE_HALF)
# Eight-bit integers are exact in the half formats, and so are sums of their products as long as K is split;
# four-bit integers are exact in fp8 as well, and twice an fp4 number is an eight-bit integer.
_EXACT_INT8 = ("tensor.int8", "tensor.fp16", "tensor.bf16", "vector.int8", "vector.fp32")
_EXACT_INT4 = ("tensor.int4", "tensor.fp8", "vector.int4", *_EXACT_INT8)
_VECTOR = ("vector.fp32", "vector.fp16", "vector.bf16")

_OPAQUE_BYTES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (1, 3, 5, 6, 7)),
    "bits8", "bits1x8", "bits2x4", "bits4x2", "quint2x4", "quint4x2",
)  # fmt: skip

_ROWS = (
    DType(
        name="fp64",
        bits_count=64,
        matrix_units=("tensor.fp64", "vector.fp64"),
        # Fourteen 8-bit products, of residues modulo small numbers, reach fp64 (Ozaki et al. 2025, arXiv:2504.08009).
        split_units=(("tensor.int8", 14),),
        vector_units=("vector.fp64",),
    ),
    DType(
        name="fp32",
        bits_count=32,
        matrix_units=("tensor.fp32", "tensor.fp64", "vector.fp32", "vector.fp64"),
        # Three TF32, three scaled fp16 (Ootomo and Yokota 2022, arXiv:2203.03341) or six bf16 products reach fp32.
        split_units=(("tensor.tf32", 3), ("tensor.fp16", 3), ("tensor.bf16", 6)),
        faster_units=("tensor.tf32",),
        vector_units=("vector.fp32",),
    ),
    DType(
        name="bf16",
        bits_count=16,
        matrix_units=("tensor.bf16", "vector.bf16", *_ACCURATE_HALF),
        # The eight significant bits fit fp16's eleven; scaling each row keeps the range that matters to its sum.
        split_units=(("tensor.fp16", 1),),
        vector_units=_VECTOR,
    ),
    DType(
        name="fp16", bits_count=16, matrix_units=("tensor.fp16", "vector.fp16", *_ACCURATE_HALF), vector_units=_VECTOR
    ),
    DType(name="fp8_e4m3", bits_count=8, matrix_units=("tensor.fp8", *_NARROW), vector_units=_VECTOR),
    DType(name="fp8_e5m2", bits_count=8, matrix_units=("tensor.fp8", *_NARROW), vector_units=_VECTOR),
    # Without infinities and negative zero (Noune et al. 2022, arXiv:2206.02915, section 3).
    DType(name="fp8_e4m3fnuz", bits_count=8, matrix_units=("tensor.fp8", *_NARROW), vector_units=_VECTOR),
    DType(name="fp8_e5m2fnuz", bits_count=8, matrix_units=("tensor.fp8", *_NARROW), vector_units=_VECTOR),
    # Powers of two: scale factors of blocks.
    DType(name="fp8_e8m0", bits_count=8, vector_units=_VECTOR),
    DType(
        name="fp4_e2m1",
        bits_count=4,
        matrix_units=("tensor.fp4", "tensor.fp8", "tensor.int8", *_NARROW),
        vector_units=_VECTOR,
    ),
    # Two fp4 numbers in one element, as PyTorch stores them; products unpack them.
    DType(name="fp4_e2m1_x2", bits_count=8, vector_units=_VECTOR),
    DType(name="int64", bits_count=64, kind="int", vector_units=("vector.fp32",)),
    DType(name="int32", bits_count=32, kind="int", vector_units=("vector.fp32",)),
    DType(name="int16", bits_count=16, kind="int", vector_units=("vector.fp32",)),
    DType(name="uint64", bits_count=64, kind="int", vector_units=("vector.fp32",)),
    DType(name="uint32", bits_count=32, kind="int", vector_units=("vector.fp32",)),
    DType(name="uint16", bits_count=16, kind="int", vector_units=("vector.fp32",)),
    DType(name="int8", bits_count=8, kind="int", matrix_units=_EXACT_INT8, vector_units=_VECTOR),
    DType(name="uint8", bits_count=8, kind="int", matrix_units=_EXACT_INT8, vector_units=_VECTOR),
    *(DType(name=name, bits_count=2, kind="int", vector_units=_VECTOR) for name in ("int2", "uint2")),
    DType(
        name="int4",
        bits_count=4,
        kind="int",
        matrix_units=_EXACT_INT4,
        vector_units=_VECTOR,
    ),
    DType(name="uint4", bits_count=4, kind="int", matrix_units=_EXACT_INT4, vector_units=_VECTOR),
    # Storage formats that PyTorch names and gives no arithmetic: calls on them are counted as uncovered.
    *(DType(name=name, bits_count=8, kind="opaque") for name in _OPAQUE_BYTES),
    DType(name="bits16", bits_count=16, kind="opaque"),
    # 0 and 1 are exact in every narrow format; no product is counted on them but of what a step is known to hold.
    DType(
        name="bool",
        bits_count=8,
        kind="bool",
        matrix_units=("tensor.fp4", *_EXACT_INT4),
        vector_units=_VECTOR,
    ),
    DType(name="complex32", bits_count=32, kind="complex", vector_units=_VECTOR),
    DType(name="complex64", bits_count=64, kind="complex", vector_units=("vector.fp32",)),
    DType(name="complex128", bits_count=128, kind="complex", vector_units=("vector.fp64",)),
)

_FORMATS = {row.name: row for row in _ROWS}

DTYPES: Mapping[str, DType] = _FORMATS | {
    name: replace(_FORMATS[scheme.a.dtype], name=name, scheme=scheme) for name, scheme in SCHEMES.items()
}
"""All number formats and schemes of quantised products by canonical name."""

_ALIASES = {
    "float64": "fp64", "double": "fp64", "f64": "fp64", "float32": "fp32", "float": "fp32", "f32": "fp32",
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "f16": "fp16", "fp8": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "float8_e8m0fnu": "fp8_e8m0",
    "float8_e4m3fnuz": "fp8_e4m3fnuz", "float8_e5m2fnuz": "fp8_e5m2fnuz",
    "float4_e2m1": "fp4_e2m1", "fp4": "fp4_e2m1", "float4_e2m1fn": "fp4_e2m1", "float4_e2m1fn_x2": "fp4_e2m1_x2",
    "qint8": "int8", "quint8": "uint8", "qint32": "int32",
    "i64": "int64", "long": "int64", "i32": "int32", "int": "int32", "i8": "int8", "u8": "uint8",
}  # fmt: skip


def dtype_of(name: str) -> DType:
    """Return the format called `name`, which may be an alias of the frameworks.

    Raises:
        UnknownNameError: no such format.

    >>> dtype_of("bfloat16").name
    'bf16'
    """
    known = DTYPES.get(_ALIASES.get(name, name))
    if known is None:
        raise unknown_name("dtype", str(name), tuple(DTYPES))
    return known
