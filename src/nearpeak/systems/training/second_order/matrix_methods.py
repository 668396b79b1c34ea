"""Work that second-order optimizers add to a layer: factors, inverses, updates, and bytes that ranks exchange."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nearpeak.base.registry import entry_of
from nearpeak.core.systems.rank_program import Transfer
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.ops import case

FACTOR_BYTES = 4
"""Bytes of an element of factors and inverses, which are kept in fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixLayer:
    """A weight matrix and the tokens of a step that one rank sees."""

    name: str
    """Part of the model."""
    rows: int
    """Outputs."""
    columns: int
    """Inputs."""
    token_count: int
    """Tokens of one rank and step."""
    layer_count: int = 1
    """Equal layers."""

    def __post_init__(self) -> None:
        """Refuse extents that no layer has."""
        if min(self.rows, self.columns, self.token_count, self.layer_count) < 1:
            raise SpecError(f"layer {self.name}: rows, columns, token_count and layer_count must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseJob:
    """Work on one matrix that one rank does for all."""

    case: Case
    """The kernel."""
    result_bytes: int
    """Size of what it hands to all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodWork:
    """What a method adds to a step for one layer."""

    factors: tuple[Case, ...] = ()
    """Kernels that every rank runs when factors are updated."""
    reduced_bytes: int = 0
    """Size of the all-reduce of the factors."""
    inverses: tuple[InverseJob, ...] = ()
    """Jobs that are placed on ranks."""
    updates: tuple[Case, ...] = ()
    """Kernels that every rank runs in every step."""

    @property
    def reduction(self) -> Transfer | None:
        """All-reduce of the factors; none where the method has no factors."""
        return Transfer(kind="all_reduce", bytes=self.reduced_bytes, dim="dp") if self.reduced_bytes else None


def kfac_work(layer: MatrixLayer, dtype: str = "bf16") -> MethodWork:
    """Return the work of K-FAC: two factors, their damped inverses, and the update between them.

    Triangles of the factors are reduced, whole inverses handed out.

    Source: Martens and Grosse 2015, arXiv:1503.05671; distribution: Osawa et al. 2019, arXiv:1811.12019, section 5.

    >>> work = kfac_work(MatrixLayer(name="mlp", rows=4096, columns=1024, token_count=8192))
    >>> work.reduced_bytes == 4 * (4096 * 4097 + 1024 * 1025) // 2, [job.case.op for job in work.inverses]
    (True, ['kfac_inverse', 'kfac_inverse'])
    """
    extents = (layer.columns, layer.rows)
    return MethodWork(
        factors=tuple(case("kfac_factor", tokens=layer.token_count, dim=dim, dtype=dtype) for dim in extents),
        reduced_bytes=FACTOR_BYTES * sum(dim * (dim + 1) // 2 for dim in extents),
        inverses=tuple(
            InverseJob(case=case("kfac_inverse", batch=1, dim=dim, dtype="fp32"), result_bytes=FACTOR_BYTES * dim * dim)
            for dim in extents
        ),
        updates=(case("kfac_precondition", rows=layer.rows, columns=layer.columns, dtype="fp32"),),
    )


def shampoo_work(layer: MatrixLayer, dtype: str = "fp32") -> MethodWork:
    """Return the work of Shampoo: statistics of the reduced gradient, inverse fourth roots by eigenvalues, the update.

    The catalogue counts the bytes of eigenvalues only: their time must come from a measurement.

    Source: Gupta et al. 2018, arXiv:1802.09568; distribution: Shi et al. 2023, arXiv:2309.06497.
    """
    sides = ((layer.rows, layer.columns), (layer.columns, layer.rows))
    return MethodWork(
        factors=tuple(case("kfac_factor", tokens=other, dim=dim, dtype=dtype) for dim, other in sides),
        inverses=tuple(
            InverseJob(
                case=case("decomposition", batch=1, m=dim, n=dim, dtype="fp32", function="eigh"),
                result_bytes=FACTOR_BYTES * dim * dim,
            )
            for dim, _ in sides
        ),
        updates=(case("kfac_precondition", rows=layer.rows, columns=layer.columns, dtype="fp32"),),
    )


def muon_work(layer: MatrixLayer, dtype: str = "fp32") -> MethodWork:
    """Return the work of Muon: the whole orthogonalised step of a matrix on one rank, its update handed out in bf16.

    Source: Jordan et al. 2024; distribution: Liu et al. 2025, arXiv:2502.16982, section 2.3.
    """
    job = InverseJob(
        case=case("muon", rows=layer.rows, columns=layer.columns, dtype=dtype),
        result_bytes=2 * layer.rows * layer.columns,
    )
    return MethodWork(inverses=(job,))


METHODS: Mapping[str, Callable[[MatrixLayer], MethodWork]] = {
    "kfac": kfac_work,
    "shampoo": shampoo_work,
    "muon": muon_work,
}


def method_work(method: str, layer: MatrixLayer) -> MethodWork:
    """Return the work of a method by name; an unknown name lists the closest ones."""
    return entry_of("second-order method", METHODS, method)(layer)
