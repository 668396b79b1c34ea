"""Decompositions of rectangular matrices: QR, SVD, eigenvalues, least squares, matrix exponential."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from nearpeak.base.registry import entry_of
from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import SpecError
from nearpeak.ops.shared.definition.array_arithmetic import minimum
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Matcher, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.reference.decompositions import (
    by_first_row,
    dominant,
    exponential,
    householder,
    in_order,
    ldl,
    packed,
    positive_diagonal,
    symmetric,
    unpacked,
)

_COMPLEX = {"fp32": "complex64", "fp64": "complex128"}
_REAL = {"complex64": "fp32", "complex128": "fp64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """One routine on an m x n matrix, k = min(m, n), and r further columns."""

    written: tuple[tuple[str, Callable[[int, int, int, int], int]], ...]
    """Format (empty for the matrix's, `real`, `complex`, `int32`) and elements of each result, from m, n, k, r."""
    reference: Callable[..., tuple[Any, ...]]
    """Results from (matrix, further operands), in NumPy."""
    torch: Callable[..., tuple[Any, ...]]
    """Results from (torch, matrix, further operands)."""
    form: Callable[[Any], Any] | None = None
    """(drawn matrices) → matrices that the routine is for."""
    canonical: Callable[..., tuple[Any, ...]] | None = None
    """(results) → the same with signs and order chosen, where several are right; for arrays and tensors alike."""
    triangle: bool = False
    """Only one triangle of the matrix is read."""
    square: bool = False
    """Only square matrices have one."""
    further: tuple[tuple[str, Callable[[int, int, int, int], tuple[int, ...]]], ...] = ()
    """Format and shape of the operands other than the matrix."""


def _whole(m: int, n: int, _k: int, _r: int) -> int:
    return m * n


def _least(_m: int, _n: int, k: int, _r: int) -> int:
    return k


def _left(m: int, _n: int, k: int, _r: int) -> int:
    return m * k


def _right(_m: int, n: int, k: int, _r: int) -> int:
    return k * n


def _rows(m: int, _n: int, _k: int, _r: int) -> int:
    return m * m


def _without_above(factors: Any, pivots: Any) -> tuple[Any, Any]:
    """Return the packed factors of a triangle, 0 above their diagonal, where anything may be, and the pivots."""
    return (np.tril(factors) if isinstance(factors, np.ndarray) else factors.tril()), pivots


def _exponential_torch(torch: Any, a: Any) -> tuple[Any]:
    """Return the exponential, of 16 bits in fp32: PyTorch 2.13 is wrong there, 1e30 for entries of 0.01 in bf16."""
    return (torch.linalg.matrix_exp(a.float()).to(a.dtype) if a.element_size() == 2 else torch.linalg.matrix_exp(a),)


def _of_values(values: Any) -> tuple[Any]:
    return in_order(values)[:1]


def _of_eigenvectors(values: Any, vectors: Any) -> tuple[Any, ...]:
    return by_first_row(None, values, vectors)[1:]


_QR = (("", _left), ("", _right))
_SVD = (("", _left), ("real", _least), ("", _right))
_PARTS = (("", _rows), *_QR)
_TAU = ("", lambda _m, _n, k, _r: (k,))
_PIVOTS = ("int32", lambda _m, _n, k, _r: (k,))
_SIDES = ("", lambda m, _n, _k, r: (m, r))
DECOMPOSITIONS: Mapping[str, Decomposition] = {
    "qr": Decomposition(
        written=_QR, reference=np.linalg.qr, torch=lambda torch, a: tuple(torch.linalg.qr(a)),
        canonical=positive_diagonal,
    ),
    "qr_complete": Decomposition(
        written=(("", _rows), ("", _whole)), reference=lambda a: np.linalg.qr(a, "complete"),
        torch=lambda torch, a: tuple(torch.linalg.qr(a, "complete")), canonical=positive_diagonal,
    ),
    "qr_right": Decomposition(
        written=(("", _right),), reference=lambda a: (np.linalg.qr(a, "r"),),
        torch=lambda torch, a: (torch.linalg.qr(a, "r").R,), canonical=lambda r: positive_diagonal(None, r)[1:],
    ),
    "reflectors": Decomposition(
        written=(("", _whole), ("", _least)), reference=packed, torch=lambda torch, a: tuple(torch.geqrf(a))
    ),
    "reflectors_product": Decomposition(
        written=(("", _whole),), further=(_TAU,), reference=lambda a, tau: (householder(a, tau)[..., : a.shape[-1]],),
        torch=lambda torch, a, tau: (torch.linalg.householder_product(a, tau),),
    ),
    "reflectors_applied": Decomposition(
        written=(("", lambda m, _n, _k, r: m * r),), further=(_TAU, _SIDES),
        reference=lambda a, tau, b: (householder(a, tau) @ b,),
        torch=lambda torch, a, tau, b: (torch.ormqr(a, tau, b),),
    ),
    "svd": Decomposition(
        written=_SVD, reference=lambda a: np.linalg.svd(a, full_matrices=False),
        torch=lambda torch, a: tuple(torch.linalg.svd(a, full_matrices=False)), canonical=by_first_row,
    ),
    "svd_full": Decomposition(
        written=(("", _rows), ("real", _least), ("", lambda _m, n, _k, _r: n * n)), reference=np.linalg.svd,
        torch=lambda torch, a: tuple(torch.linalg.svd(a)), canonical=by_first_row,
    ),
    "singular_values": Decomposition(
        written=(("real", _least),), reference=lambda a: (np.linalg.svd(a, compute_uv=False),),
        torch=lambda torch, a: (torch.linalg.svdvals(a),),
    ),
    "eigh": Decomposition(
        written=(("real", _least), ("", _whole)), triangle=True, square=True, form=symmetric,
        canonical=_of_eigenvectors, reference=np.linalg.eigh, torch=lambda torch, a: tuple(torch.linalg.eigh(a)),
    ),
    "eigh_values": Decomposition(
        written=(("real", _least),), triangle=True, square=True, form=symmetric,
        reference=lambda a: (np.linalg.eigvalsh(a),),
        torch=lambda torch, a: (torch.linalg.eigvalsh(a),),
    ),
    "eig": Decomposition(
        written=(("complex", _least), ("complex", _whole)), square=True, reference=np.linalg.eig, canonical=in_order,
        torch=lambda torch, a: tuple(torch.linalg.eig(a)),
    ),
    "eig_values": Decomposition(
        written=(("complex", _least),), square=True, reference=lambda a: (np.linalg.eigvals(a),), canonical=_of_values,
        torch=lambda torch, a: (torch.linalg.eigvals(a),),
    ),
    "pseudo_inverse": Decomposition(
        written=(("", _whole),), reference=lambda a: (np.linalg.pinv(a),),
        torch=lambda torch, a: (torch.linalg.pinv(a),),
    ),
    "least_squares": Decomposition(
        written=(("", lambda _m, n, _k, r: n * r),), further=(_SIDES,),
        reference=lambda a, b: (np.linalg.pinv(a) @ b,), torch=lambda torch, a, b: (torch.linalg.lstsq(a, b).solution,),
    ),
    "exponential": Decomposition(
        written=(("", _whole),), square=True, reference=lambda a: (exponential(a),),
        torch=_exponential_torch,
    ),
    "lu_packed": Decomposition(
        written=(("", _whole), ("int32", _least)), form=dominant, reference=lambda a: unpacked(a)[3:],
        torch=lambda torch, a: tuple(torch.linalg.lu_factor(a)),
    ),
    "lu_parts": Decomposition(
        written=_PARTS, form=dominant, reference=lambda a: unpacked(a)[:3],
        torch=lambda torch, a: tuple(torch.linalg.lu(a)),
    ),
    "lu_unpacked": Decomposition(
        written=_PARTS, further=(_PIVOTS,), reference=lambda a, _: unpacked(None, a),
        torch=lambda torch, a, pivots: tuple(torch.lu_unpack(a, pivots)),
    ),
    "ldl": Decomposition(
        written=(("", _whole), ("int32", _least)), triangle=True, square=True, form=lambda a: dominant(symmetric(a)),
        reference=ldl,
        torch=lambda torch, a: tuple(torch.linalg.ldl_factor(a)), canonical=_without_above,
    ),
}  # fmt: skip
"""All decompositions by name."""


@free_when_empty
def decomposition(batch: int, m: int, n: int, dtype: DType, right: int = 0, function: str = "svd") -> Work:
    """Return the least work of a decomposition of `batch` matrices of m x n.

    Counts: bytes only. The least number of operations is not known: eigenvalues and singular values are found by
    iteration, and the routes to Q and R differ in what they cost.

    Args:
        right: further columns, of least squares and of what reflectors are applied to.
        function: qr, svd, eigh, eig, pseudo_inverse, least_squares, exponential, …

    Source: definition; Golub and Van Loan 2013, Matrix Computations, fourth edition, chapters 5, 7 and 8.

    >>> decomposition(1, 8, 4, DType(name="fp32", bits_count=32)).write_bytes
    208
    """
    row, k = decomposition_of(function), minimum(m, n)
    formats = {"": dtype, "real": dtype_of(_REAL.get(dtype.name, dtype.name)), "int32": dtype_of("int32"),
               "complex": dtype_of(_COMPLEX.get(dtype.name, dtype.name))}  # fmt: skip
    matrix = n * (n + 1) // 2 if row.triangle else m * n
    further = sum(formats[kind].bytes(batch * prod(shape(m, n, k, right))) for kind, shape in row.further)
    return Work(
        read_bytes=dtype.bytes(batch * matrix) + further,
        write_bytes=sum(formats[kind].bytes(batch * count(m, n, k, right)) for kind, count in row.written),
    )


def decomposition_of(name: str) -> Decomposition:
    """Return the decomposition called `name`."""
    return entry_of("decomposition", DECOMPOSITIONS, name)


def _inputs(batch: int, m: int, n: int, right: int, dtype: str, function: str, **_: Any) -> dict[str, Tensor]:
    if decomposition_of(function).square and m != n:
        raise SpecError(f"decomposition: {function} is of square matrices; got m={m} and n={n}")
    tensors = {"a": Tensor(shape=(batch, m, n), dtype=dtype)}
    for place, (kind, shape) in enumerate(decomposition_of(function).further, 1):
        tensors[f"operand_{place}"] = Tensor(shape=(batch, *shape(m, n, min(m, n), right)), dtype=kind or dtype)
    return tensors


def _valid(drawn: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    """Return matrices of the form that the routine is for, and pivots that leave each row in its place."""
    row = decomposition_of(function)
    valid = {"a": drawn["a"] if row.form is None else row.form(drawn["a"])}
    if (_PIVOTS in row.further) and (pivots := drawn["operand_1"]).size:
        valid["operand_1"] = np.tile(np.arange(1, pivots.shape[-1] + 1), (len(pivots), 1))
    return valid


def _canonical(outputs: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    chosen = decomposition_of(function).canonical
    return outputs if chosen is None else dict(zip(outputs, chosen(*outputs.values()), strict=True))


def _reference(arrays: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    results = decomposition_of(function).reference(*arrays.values())
    return {f"y{place}": result for place, result in enumerate(results)}


def _torch_call(tensors: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    import torch

    results = decomposition_of(function).torch(torch, *tensors.values())
    return {f"y{place}": result for place, result in enumerate(results)}


def _from_aten(function: str, matrix: str = "self", right: str = "") -> Matcher:
    """Return the matcher of the calls whose argument `matrix` is decomposed, with the further columns of `right`."""
    return lambda site: matched(site, function, matrix, right)


def matched(site: AtenSite, function: str, matrix: str = "self", right: str = "") -> Match:
    """Return the case of a call that decomposes its argument `matrix`."""
    a = site.args[matrix]
    m, n = a.shape[-2:]
    batch = a.elements // (m * n) if m * n else 0
    arguments: dict[str, Value] = {"batch": batch, "m": m, "n": n, "dtype": a.dtype, "function": function}
    if right:
        arguments["right"] = site.args[right].elements // (batch * m) if batch * m else 0
    half = dtype_of(a.dtype).bytes(batch * (n * (n + 1) // 2))
    return Match(arguments=arguments, touched_bytes={matrix: half} if decomposition_of(function).triangle else {})


def _qr(site: AtenSite) -> Match:
    return matched(site, {"complete": "qr_complete", "r": "qr_right"}.get(site.args["mode"], "qr"), "A")


def _svd(site: AtenSite) -> Match:
    with_vectors = "svd_full" if site.args["full_matrices"] else "svd"
    return matched(site, with_vectors if site.args["compute_uv"] else "singular_values", "A")


OPERATOR = Operator(
    forward=decomposition,
    family="product",
    degree_count=2,
    tolerance=Tolerance(
        kind="decomposition",
        reduction="m n",
        ulp_count=256.0,
        special="unspecified",
        # Of dominant matrices |L| |U| is about |A|: Higham 2002, Accuracy and Stability, theorem 9.3.
        by_element=("lu_packed", "lu_parts", "lu_unpacked", "ldl"),
    ),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    canonical=_canonical,
    torch_call=_torch_call,
    aten={
        "aten.linalg_qr.default": _qr,
        "aten._linalg_svd.default": _svd,
        "aten._linalg_eigh.default": lambda site: matched(
            site, "eigh" if site.args["compute_v"] else "eigh_values", "A"
        ),
        "aten.linalg_eig.default": _from_aten("eig"),
        "aten._linalg_eigvals.default": _from_aten("eig_values"),
        "aten.linalg_eigvals.default": _from_aten("eig_values"),
        **{f"aten.linalg_pinv.{end}": _from_aten("pseudo_inverse") for end in ("atol_rtol_tensor", "default")},
        "aten.linalg_lstsq.default": _from_aten("least_squares", right="b"),
        "aten.linalg_matrix_exp.default": _from_aten("exponential"),
        "aten.geqrf.default": _from_aten("reflectors"),
        "aten.linalg_householder_product.default": _from_aten("reflectors_product", "input"),
        "aten.ormqr.default": _from_aten("reflectors_applied", right="input3"),
        "aten.linalg_lu.default": _from_aten("lu_parts", "A"),
        "aten.lu_unpack.default": _from_aten("lu_unpacked", "LU_data"),
        "aten.linalg_ldl_factor_ex.default": _from_aten("ldl"),
    },
)
