"""NumPy references of matrix decompositions, with a canonical choice of signs and order."""

from typing import Any

import numpy as np


def symmetric(a: Any) -> Any:
    """Return the drawn matrices made symmetric."""
    return 0.5 * (a + a.swapaxes(-1, -2))


def dominant(a: Any) -> Any:
    """Return the drawn matrices with a dominant diagonal, which need no exchange of rows."""
    return a + 4 * max(a.shape[-2:]) * np.eye(*a.shape[-2:])


def positive_diagonal(q: Any, r: Any) -> tuple[Any, Any]:
    """Return the factors of Q R (or R alone, then with no Q) with a positive diagonal of R, which makes them unique.

    Any columns of Q that complete the basis are correct; they are replaced by a projection that is the same for all,
    see `_projected`.
    """
    count = min(r.shape[-2:])
    signs = _sign(r[..., range(count), range(count)])
    turned = _turned(r.swapaxes(-1, -2), signs).swapaxes(-1, -2)
    return None if q is None else _projected(_turned(q, signs), count), turned


def by_first_row(u: Any, s: Any, v: Any) -> tuple[Any, Any, Any]:
    """Return singular vectors, or eigenvectors (then with no u), with positive first components.

    Any beyond the values that complete the basis are correct; they are replaced by a projection that is the same for
    all, see `_projected`.
    """
    if u is None:
        return None, s, _turned(v, _sign(v[..., 0, :]))
    count = s.shape[-1]
    signs = _sign(u[..., 0, :count])
    left, right = (_projected(_turned(basis, signs), count) for basis in (u, v.swapaxes(-1, -2)))
    return left, s, right.swapaxes(-1, -2)


def _sign(x: Any) -> Any:
    return (x + (x == 0)) / (abs(x) + (x == 0))


def _turned(x: Any, signs: Any) -> Any:
    """Return the columns times their signs; columns without a sign and NaN are unchanged."""
    turned = 1 * x
    turned[..., : signs.shape[-1]] = x[..., : signs.shape[-1]] * signs[..., None, :]
    return turned


def _projected(basis: Any, count: int) -> Any:
    """Return a basis with the columns beyond `count` replaced by the first columns of the projection on their span.

    C C^T is the same for all orthonormal C that complete the basis, and another where one element of C is wrong.

    >>> turned = np.array([[1.0, 0, 0], [0, 0.6, 0.8], [0, 0.8, -0.6]])
    >>> bool(np.allclose(_projected(turned, 1), _projected(np.eye(3), 1)))
    True
    """
    rest, projected = basis[..., count:], 1 * basis
    projected[..., count:] = (rest @ rest.swapaxes(-1, -2))[..., : basis.shape[-1] - count]
    return projected


def in_order(values: Any, vectors: Any = None) -> tuple[Any, Any]:
    """Return eigenvalues in one order, with vectors, if there are, of length 1 whose first components are positive."""
    if not isinstance(values, np.ndarray):
        import torch

        arrays = (None if tensor is None else tensor.detach().cpu().numpy() for tensor in (values, vectors))
        ordered = in_order(*arrays)
        return tuple(None if tensor is None else torch.as_tensor(tensor) for tensor in ordered)  # type: ignore[return-value]  # two, as were given
    order = np.argsort(values.real + 0.37 * values.imag, axis=-1)
    values = np.take_along_axis(values, order, -1) + 0j
    if vectors is None:
        return values, None
    vectors = np.take_along_axis(vectors, order[..., None, :], -1)
    return values, vectors / _sign(vectors[..., :1, :]) + 0j


def packed(a: Any) -> tuple[Any, Any]:
    """Return R above and the reflectors below the diagonal, with their factors."""
    h, tau = np.linalg.qr(a, "raw")
    return h.swapaxes(-1, -2), tau


def householder(a: Any, tau: Any) -> Any:
    """Return the product of the reflectors below the diagonal of `a`, all m columns of it."""
    rows = a.shape[-2]
    q = np.broadcast_to(np.eye(rows), (*a.shape[:-2], rows, rows))
    for j in range(tau.shape[-1]):
        v = np.where(np.arange(rows) < j, 0.0, np.where(np.arange(rows) == j, 1.0, a[..., :, j]))
        q = q - tau[..., j, None, None] * (q @ v[..., :, None]) * v[..., None, :]
    return q


def exponential(a: Any) -> Any:
    """Return the matrix exponential by its series, after halving the matrix four times."""
    small = a / 16
    term = total = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    for k in range(1, 30):
        term = term @ small / k
        total = total + term
    for _ in range(4):
        total = total @ total
    return total


def unpacked(a: Any, lu: Any = None) -> tuple[Any, ...]:
    """Return P, L, U, the packed factors and the pivots of matrices that need no exchange of rows."""
    if lu is None:
        lu = a.copy()
        for j in range(min(a.shape[-2:])):
            lu[..., j + 1 :, j] /= lu[..., j, None, j]
            lu[..., j + 1 :, j + 1 :] -= lu[..., j + 1 :, j, None] * lu[..., j, None, j + 1 :]
    rows, least = lu.shape[-2], min(lu.shape[-2:])
    identity = np.broadcast_to(np.eye(rows), (*lu.shape[:-2], rows, rows))
    lower = np.tril(lu, -1)[..., :least] + np.eye(rows, least)
    pivots = np.broadcast_to(np.arange(1, least + 1), (*lu.shape[:-2], least))
    parts = (identity, lower, np.triu(lu)[..., :least, :])
    return parts if a is None else (*parts, lu, pivots)


def ldl(a: Any) -> tuple[Any, Any]:
    """Return L below and D on the diagonal of A = L D L^T, and the pivots, for matrices that need no exchange."""
    factors = np.tril(a)
    count = a.shape[-1]
    for j in range(count):
        factors[..., j + 1 :, j] /= factors[..., j, None, j]
        column = factors[..., j + 1 :, j]
        factors[..., j + 1 :, j + 1 :] -= np.tril(
            factors[..., j, None, None, j] * column[..., :, None] * column[..., None, :]
        )
    return factors, np.broadcast_to(np.arange(1, count + 1), a.shape[:-1])
