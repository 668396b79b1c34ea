"""FLOP kinds by number format, and the work of contractions that are no plain matrix products."""

from collections.abc import Mapping

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.structure import Contraction
from nearpeak.ops.shared.definition.array_arithmetic import maximum

_PARTS: Mapping[str, str] = {"complex32": "fp16", "complex64": "fp32", "complex128": "fp64"}
"""Format of the real and of the imaginary part."""
INDEX = dtype_of("int64")
"""Format of positions, classes and counts, as frameworks store them."""


def unit(dtype: DType) -> str:
    """Return the kind of vector FLOP that arithmetic on `dtype` counts as.

    >>> unit(DType(name="bf16", bits_count=16))
    'vector.fp32'
    """
    return "vector.fp64" if dtype.name in ("fp64", "complex128") else "vector.fp32"


def shared_operands(formats: tuple[DType, ...], products: int, reuse: int = 1) -> Contraction | None:
    """Return what `products` multiply-adds of two operands share; nothing is claimed of parts and of single bits.

    Args:
        formats: of both operands and the result.
        reuse: most (output, tap) pairs that one input position serves.
    """
    if any(number_format.kind in ("complex", "bool") for number_format in formats):
        return None
    bits = min(number_format.bits_count for number_format in formats)
    return Contraction(product_count=products, word_bits_count=bits, reuse_count=reuse)


def bilinear(left: int, right: int, result: int) -> int:
    """Return how many multiplications any bilinear algorithm needs for a map of that many elements that matter.

    Each product of linear forms adds at most one dimension to what the map distinguishes of either operand, and to
    what its results span; so there are at least as many products as elements of the largest of the three.

    Source: Winograd 1970, doi:10.1002/cpa.3160230204 (matrix times vector); Buergisser, Clausen and Shokrollahi 1997,
    Algebraic Complexity Theory, chapter 14 (rank of a concise tensor). For one channel of a convolution it is the
    n_out + k - 1 of Winograd 1980, Arithmetic Complexity of Computations, chapter IV.

    >>> bilinear(16, 32, 8)
    32
    """
    return maximum(left, maximum(right, result))


def contraction(dtype: DType, products: int, sums: int | None = None) -> dict[str, int]:
    """Return the FLOP of `products` multiply-adds and of `sums` single additions, by kind.

    A complex product is four real ones. Wide integers have no matrix unit anywhere, so their products count as vector
    work, which is a model and never part of a proved bound.

    >>> contraction(DType(name="bf16", bits_count=16), 8, 3)
    {'matrix.bf16': 16, 'vector.fp32': 3}
    >>> contraction(DType(name="complex64", bits_count=64, kind="complex"), 8)
    {'matrix.fp32': 64}
    """
    flop = {f"matrix.{dtype.name}": 2 * products}
    if dtype.kind == "complex":
        flop = {f"matrix.{_PARTS[dtype.name]}": 8 * products}
    elif dtype.kind == "bool" or (dtype.kind == "int" and dtype.bits_count > 8):
        flop = {unit(dtype): 2 * products}
    if sums is None:
        return flop
    added = sums * (2 if dtype.kind == "complex" else 1)
    return flop | {unit(dtype): flop.get(unit(dtype), 0) + added}
