"""Convolutions as products of matrices whose rows are gathered on the way (implicit GEMM)."""

from nearpeak.core.case import Case
from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.ops import case as case_of
from nearpeak.predict._conv_shapes import product_of, shape_of
from nearpeak.predict._form import Setting
from nearpeak.predict._gemm_kernel import TENSOR_TILES
from nearpeak.sim.lowering._lowering import Lowering, ceilings
from nearpeak.sim.lowering.gemm import Product, kernel_of
from nearpeak.sim.work import Kernel

_PASSES = {"forward": ("fprop",), "backward": ("dgrad", "wgrad")}


def _kernels(case: Case, target: Target, setting: Setting) -> tuple[Kernel, ...]:
    """Return one kernel per pass."""
    name = dict(case.dtypes)["dtype"]
    dtype = DTYPES[name]
    units = [unit for unit in dtype.matrix_units if unit in target.peaks]
    if not units or dtype.scheme is not None:
        raise NotModelledError(f"{target.name}: states no rate for products of {name}")
    peak = max((target.peaks[unit] for unit in units), key=lambda one: one.flop_per_s)
    shape, size = shape_of(dict(case.axes)), dtype.bits_count / 8
    scalars, _ = ceilings(case_of("gemm", m=1, n=1, k=1, dtype=name), target, "gemm")
    kernels = []
    for part in _PASSES[case.phase]:
        m, n, k = (float(extent[0]) for extent in product_of(shape, part))
        product = Product(
            m=m, n=n, k=k, batch=float(shape.groups[0]), a_bytes=size, b_bytes=size, c_bytes=size,
            flop_per_s=peak.flop_per_s, clock_hz=peak.clock_hz, tiles=TENSOR_TILES, setting=setting,
        )  # fmt: skip
        kernels.append(kernel_of(product, target, dict(scalars), 1.0, f"conv {part}"))
    return tuple(kernels)


LOWERING = Lowering(ops=("conv",), kernels=_kernels, phases=("forward", "backward"))
