"""Factorisations and systems of linear equations: Cholesky, LU, inverse, determinant, solves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearpeak.base.registry import entry_of
from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops.product.decomposition import matched
from nearpeak.ops.shared.arithmetic import contraction
from nearpeak.ops.shared.definition.array_arithmetic import maximum
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Matcher, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.reference.decompositions import dominant, symmetric

_PIVOT = dtype_of("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Routine:
    """One routine on an n x n matrix and r right-hand sides."""

    flop: Callable[[int, int], int]
    """Multiplications and additions."""
    special: Callable[[int, int], int]
    """Divisions and roots."""
    read: Callable[[int, int], int]
    """Elements read."""
    written: Callable[[int, int], int]
    """Elements written."""
    reference: Callable[..., Any]
    """Result from (matrix, right-hand sides), in NumPy."""
    torch: Callable[..., Any]
    """Results from (torch, matrix, right-hand sides)."""
    kind: str = "general"
    """What the drawn matrix is made: `general`, `definite` or `triangular`."""


def _lu_flop(n: int, _: int = 0) -> int:
    return n * (n - 1) * (2 * n - 1) // 3


def _halves(n: int, _: int = 0) -> int:
    return n * (n - 1) // 2


def _square(n: int, _: int) -> int:
    return n * n


def _triangle(n: int, _: int) -> int:
    return n * (n + 1) // 2


def _sides(n: int, r: int) -> int:
    return n * r


def _packed_lu(a: Any, _: Any) -> Any:
    """Return L below and U above the diagonal of dominant matrices, which need no pivoting."""
    lu = a.copy()
    for k in range(a.shape[-1] - 1):
        lu[:, k + 1 :, k] /= lu[:, k, None, k]
        lu[:, k + 1 :, k + 1 :] -= lu[:, k + 1 :, k, None] * lu[:, k, None, k + 1 :]
    return lu


def _determinant(a: Any, _: Any) -> Any:
    """Return the product of the pivots: NumPy's own sums their logarithms, which is less exact the larger it is."""
    return _pivots(a).prod(axis=-1).astype(np.float64)


def _pivots(a: Any) -> Any:
    """Return the pivots of dominant matrices, in more than fp64 where NumPy has it."""
    return np.diagonal(_packed_lu(a.astype(np.longdouble), None), axis1=-2, axis2=-1)


def _lu_torch(torch: Any, a: Any, _: Any) -> dict[str, Any]:
    factors, pivots = torch.linalg.lu_factor(a)
    return {"y": factors, "pivots": pivots}


ROUTINES: Mapping[str, Routine] = {
    "cholesky": Routine(
        flop=lambda n, _: n * (n - 1) * (n + 1) // 3, special=_triangle, read=_triangle, written=_square,
        reference=lambda a, _: np.linalg.cholesky(a), torch=lambda torch, a, _: torch.linalg.cholesky(a),
        kind="definite",
    ),
    "cholesky_inverse": Routine(
        flop=lambda n, _: n * (4 * n * n + 5) // 6, special=lambda n, _: n, read=_triangle, written=_square,
        reference=lambda a, _: np.linalg.inv(a @ a.swapaxes(-1, -2)),
        torch=lambda torch, a, _: torch.cholesky_inverse(a), kind="triangular",
    ),
    "lu": Routine(
        flop=_lu_flop, special=_halves, read=_square, written=_square, reference=_packed_lu, torch=_lu_torch
    ),
    "inverse": Routine(
        flop=lambda n, _: 2 * n * (n * n - n + 1), special=lambda n, _: _halves(n) + n, read=_square, written=_square,
        reference=lambda a, _: np.linalg.inv(a), torch=lambda torch, a, _: torch.linalg.inv(a),
    ),
    "determinant": Routine(
        flop=lambda n, _: _lu_flop(n) + n - 1, special=_halves, read=_square, written=lambda *_: 1,
        reference=_determinant, torch=lambda torch, a, _: torch.linalg.det(a),
    ),
    "solve": Routine(
        flop=lambda n, r: _lu_flop(n) + 2 * n * (n - 1) * r, special=lambda n, r: _halves(n) + n * r,
        read=lambda n, r: n * n + n * r, written=_sides,
        reference=np.linalg.solve, torch=lambda torch, a, b: torch.linalg.solve(a, b),
    ),
    "lu_solve": Routine(
        flop=lambda n, r: 2 * n * (n - 1) * r, special=_sides, read=lambda n, r: n * n + n * r, written=_sides,
        reference=lambda a, b: np.linalg.solve((np.tril(a, -1) + np.eye(a.shape[-1])) @ np.triu(a), b),
        torch=lambda torch, a, b: torch.linalg.lu_solve(
            a, torch.arange(1, a.shape[-1] + 1, dtype=torch.int32, device=a.device).expand(a.shape[:-1]).contiguous(), b
        ),
    ),
    "ldl_solve": Routine(
        flop=lambda n, r: 2 * n * (n - 1) * r, special=_sides, kind="triangular",
        read=lambda n, r: _triangle(n, r) + n * r, written=_sides,
        reference=lambda a, b: np.linalg.solve(
            (np.tril(a, -1) + np.eye(a.shape[-1])) @ (np.eye(a.shape[-1]) * a) @ (np.tril(a, -1) + np.eye(a.shape[-1])
            ).swapaxes(-1, -2), b),
        torch=lambda torch, a, b: torch.linalg.ldl_solve(
            a, torch.arange(1, a.shape[-1] + 1, dtype=torch.int32, device=a.device).expand(a.shape[:-1]).contiguous(), b
        ),
    ),
    "cholesky_solve": Routine(
        flop=lambda n, r: 2 * n * (n - 1) * r, special=lambda n, r: 2 * n * r,
        read=lambda n, r: _triangle(n, r) + n * r, written=_sides, kind="triangular",
        reference=lambda a, b: np.linalg.solve(a @ a.swapaxes(-1, -2), b),
        torch=lambda torch, a, b: torch.cholesky_solve(b, a),
    ),
    "triangular_solve": Routine(
        flop=lambda n, r: n * (n - 1) * r, special=_sides, read=lambda n, r: _triangle(n, r) + n * r, written=_sides,
        reference=np.linalg.solve, kind="triangular",
        torch=lambda torch, a, b: torch.linalg.solve_triangular(a, b, upper=False),
    ),
}  # fmt: skip
"""All routines by name."""
_WITH_SIDES = ("solve", "lu_solve", "ldl_solve", "cholesky_solve", "triangular_solve")


@free_when_empty
def linalg(batch: int, n: int, dtype: DType, right: int = 0, function: str = "inverse") -> Work:
    """Return the least work of a routine on `batch` matrices of n x n.

    Counts: the classical algorithms' multiplications and additions: LU n(n-1)(2n-1)/3, Cholesky n(n-1)(n+1)/3,
    inverse 2n(n²-n+1), triangular solve n(n-1) per right-hand side; divisions and roots are special evaluations.
    Matrix units can form nearly all of the products, so all are counted as theirs. Comparisons of pivots are not.

    Args:
        right: right-hand sides of a solve.
        function: cholesky, lu, inverse, determinant, solve, triangular_solve, …

    Source: Blackford and Dongarra 1999, LAPACK Working Note 41, appendix C; sums of the classical algorithms.

    >>> linalg(1, 3, DType(name="fp32", bits_count=32), function="lu").flop
    {'matrix.fp32': 10}
    """
    row = routine_of(function)
    pivots = _PIVOT.bytes(batch * n) if function in ("lu", "lu_solve", "ldl_solve") else 0
    flop = batch * maximum(row.flop(n, right), 0)
    return Work(
        # Complex arithmetic takes four times as many real FLOP, in the format of the parts.
        flop=contraction(dtype, flop // 2) if dtype.kind == "complex" else {f"matrix.{dtype.name}": flop},
        special_count=batch * row.special(n, right),
        read_bytes=dtype.bytes(batch * row.read(n, right)) + (pivots if function in ("lu_solve", "ldl_solve") else 0),
        write_bytes=dtype.bytes(batch * row.written(n, right)) + (pivots if function == "lu" else 0),
    )


def routine_of(name: str) -> Routine:
    """Return the routine called `name`."""
    return entry_of("routine", ROUTINES, name)


def _inputs(batch: int, n: int, right: int, dtype: str, function: str, **_: Any) -> dict[str, Tensor]:
    tensors = {"a": Tensor(shape=(batch, n, n), dtype=dtype)}
    tensors |= {"b": Tensor(shape=(batch, n, right), dtype=dtype)} if function in _WITH_SIDES else {}
    return tensors | (
        {"pivots": Tensor(shape=(batch, n), dtype="int32")} if function in ("lu_solve", "ldl_solve") else {}
    )


def _valid(drawn: dict[str, Any], n: int, function: str, **_: Any) -> dict[str, Any]:
    """Return matrices with a dominant diagonal, symmetric or lower triangular where the routine wants it.

    They need no exchange of rows. Factors whose diagonal of ones is not stored have small numbers below it: a random
    triangle of ones and normal numbers is singular but for roundings from some dozens of rows on (Viswanath and
    Trefethen 1998, "Condition numbers of random triangular matrices"), which factors of matrices are not.
    """
    kind, a = routine_of(function).kind, drawn["a"]
    if kind == "definite":
        a = symmetric(a)
    a = dominant(np.tril(a) if kind == "triangular" else a)
    if function == "determinant":
        return {"a": a / (4 * n)}  # of a diagonal near 1: the product of larger ones leaves the range of fp64
    if "pivots" not in drawn:
        return {"a": a}
    return {"a": np.triu(a) + np.tril(a, -1) / (2 * n**0.5), "pivots": _in_place(a)}


def _in_place(a: Any) -> Any:
    """Return the pivots that leave each row of the matrices in its place: counted from 1."""
    return np.tile(np.arange(1, a.shape[-1] + 1), (len(a), 1))


def _reference(arrays: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    outputs = {"y": routine_of(function).reference(arrays["a"], arrays.get("b"))}
    return outputs | ({"pivots": _in_place(arrays["a"])} if function == "lu" else {})


def _stored(
    arrays: dict[str, Any], store: Callable[[Any, str], Any], dtype: str, function: str, **_: Any
) -> dict[str, Any]:
    """Return the results with the pivots of determinants rounded to `dtype`, as their errors multiply."""
    if function != "determinant":
        return _reference(arrays, function)
    pivots = store(_pivots(arrays["a"]).astype(np.float64), dtype)
    return {"y": pivots.prod(axis=-1)}


def _torch_call(tensors: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    import torch

    outputs = routine_of(function).torch(torch, tensors["a"], tensors.get("b"))
    return outputs if isinstance(outputs, dict) else {"y": outputs}


def _match(matrix: Tensor, right: int, function: str) -> dict[str, Value]:
    rows, n = matrix.shape[-2:]
    if rows != n:
        raise NotModelledError(f"linalg: {rows} x {n} is not square; only square matrices have a rule")
    batch = matrix.elements // (n * n) if n else 0
    return {"batch": batch, "n": n, "right": right, "dtype": matrix.dtype, "function": function}


def _from_aten(function: str, matrix: str = "", sides: str = "") -> Matcher:
    """Return the matcher of the calls whose argument `matrix` is factored and `sides` are the right-hand sides."""

    def matched(site: AtenSite) -> Match:
        name = matrix or ("A" if "A" in site.args else "self")
        a = site.args[name]
        rhs = site.args[sides] if sides else None
        vector = rhs is not None and len(rhs.shape) == len(a.shape) - 1
        n = a.shape[-1]
        right = 0 if rhs is None else 1 if vector else rhs.elements // max(1, n * _batches(rhs, a))
        arguments = _match(a, right, function)
        read = routine_of(function).read(n, 0) * _batches(a, a)
        return Match(arguments=arguments, touched_bytes={name: min(a.bytes, dtype_of(a.dtype).bytes(read))})

    return matched


def _factored(site: AtenSite) -> Match:
    """Match LU; rectangular matrices are a decomposition."""
    a = site.args["A"]
    if a.shape[-1] == a.shape[-2]:
        return _from_aten("lu")(site)  # type: ignore[return-value]  # one case, not several
    return replace(matched(site, "lu_packed", "A"), op="decomposition")


def _batches(tensor: Tensor, matrix: Tensor) -> int:
    n = matrix.shape[-1]
    return max(1, matrix.elements // max(1, n * n)) if tensor is matrix else max(1, int(np.prod(tensor.shape[:-2])))


def _from_onnx(site: OnnxSite) -> Match:
    """Match Det."""
    return Match(arguments=_match(site.tensor(0), 0, "determinant"))


OPERATOR = Operator(
    forward=linalg,
    family="product",
    degree_count=3,
    tolerance=Tolerance(
        kind="decomposition",
        reduction="n n",
        ulp_count=16.0,
        special="unspecified",
        # Substitution errs element by element: Higham 2002, Accuracy and Stability, theorem 8.5.
        by_element=("lu_solve", "ldl_solve", "cholesky_solve", "triangular_solve"),
    ),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    stored=_stored,
    torch_call=_torch_call,
    aten={
        "aten.linalg_cholesky_ex.default": _from_aten("cholesky"),
        "aten.cholesky.default": _from_aten("cholesky"),
        "aten.cholesky_inverse.default": _from_aten("cholesky_inverse"),
        "aten.linalg_lu_factor_ex.default": _factored,
        "aten.linalg_inv_ex.default": _from_aten("inverse"),
        "aten._linalg_det.default": _from_aten("determinant"),
        "aten._linalg_slogdet.default": _from_aten("determinant"),
        "aten._linalg_solve_ex.default": _from_aten("solve", sides="B"),
        "aten.linalg_ldl_solve.default": _from_aten("ldl_solve", matrix="LD", sides="B"),
        "aten.linalg_lu_solve.default": _from_aten("lu_solve", matrix="LU", sides="B"),
        "aten.cholesky_solve.default": _from_aten("cholesky_solve", matrix="input2", sides="self"),
        "aten.linalg_solve_triangular.default": _from_aten("triangular_solve", sides="B", matrix="self"),
        "aten.triangular_solve.default": _from_aten("triangular_solve", matrix="A", sides="self"),
    },
    onnx={"Det": _from_onnx},
)
