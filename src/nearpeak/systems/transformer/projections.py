"""Projections of a transformer layer: products with weights, their gradients, quantisation and collectives."""

from dataclasses import dataclass, replace
from math import ceil

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.scheme import SCHEMES
from nearpeak.systems.transformer.layout import Formats, Layout
from nearpeak.systems.transformer.pass_calls import PassCalls, collective, kernel, pointwise

_GATHERED_WIDE = "fp8_row"
"""Scheme whose inputs are gathered over tensor-parallel ranks before they are quantised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """One product of rows [rows, inputs] with a weight [outputs, inputs] on one rank."""

    name: str
    """Part of the model."""
    rows: int
    """Rows."""
    inputs: int
    """Features of a row on this rank."""
    outputs: int
    """Features of its result on this rank."""
    scheme: str = ""
    """Scheme of narrow numbers; empty for a plain product."""
    has_bias: bool = False
    """Whether the product adds a bias."""
    is_input_narrow: bool = False
    """Whether its input was quantised before (`column_input`)."""


def projection_calls(projection: Projection, formats: Formats, *, accumulates: bool) -> PassCalls:
    """Return the calls of a projection and of its gradients.

    Args:
        accumulates: the weight's gradient is added to `formats.gradient` inside the product.
    """
    if projection.scheme:
        return _narrow(projection, formats, accumulates=accumulates)
    name, rows, inputs, outputs = projection.name, projection.rows, projection.inputs, projection.outputs
    dtype = formats.activation
    return PassCalls(
        forward=(
            kernel(name, "gemm", m=rows, n=outputs, k=inputs, dtype=dtype, layout="nt", bias=projection.has_bias),
        ),
        backward=(kernel(name, "gemm", m=rows, n=inputs, k=outputs, dtype=dtype),),
        weight=(
            kernel(
                name, "gemm", m=outputs, n=inputs, k=rows, dtype=dtype, layout="tn",
                out_dtype=formats.gradient or dtype if accumulates else dtype,
            ),
            *_weight_tail(projection, formats, accumulates=accumulates),
        ),
    )  # fmt: skip


def _weight_tail(projection: Projection, formats: Formats, *, accumulates: bool) -> tuple[RankCall, ...]:
    """Return what follows the product of a weight's gradient: the bias's, and sums over micro-batches."""
    dtype, elements = formats.activation, projection.inputs * projection.outputs
    calls: list[RankCall] = []
    if projection.has_bias:
        calls.append(kernel(f"{projection.name}.bias", "reduce", outputs=projection.outputs, reduced=projection.rows,
                            dtype=dtype))  # fmt: skip
    if formats.gradient and not accumulates:
        calls.append(
            pointwise(f"{projection.name}.accumulate", elements, formats.gradient, "add", operands=2, b_dtype=dtype)
        )
    return tuple(calls)


def _narrow(projection: Projection, formats: Formats, *, accumulates: bool) -> PassCalls:
    """Return a projection of narrow numbers: operands are quantised on the way, weights once a step."""
    name, rows, inputs, outputs = projection.name, projection.rows, projection.inputs, projection.outputs
    scheme, dtype = projection.scheme, formats.activation
    gradient = "fp8_block_1x128" if scheme == "fp8_block" else scheme  # both factors are activations
    written = formats.gradient or dtype if accumulates else dtype
    forward = () if projection.is_input_narrow else quantisation(f"{name}.input", rows, inputs, scheme, formats)
    back = quantisation(f"{name}.gradient", rows, outputs, scheme, formats)
    step = quantisation(f"{name}.weight", outputs, inputs, scheme, formats, is_weight=True)
    out = dtype if dtype != SCHEMES[scheme].out else None
    return PassCalls(
        forward=(
            *forward,
            kernel(name, "scaled_gemm", m=rows, n=outputs, k=inputs, dtype=scheme, bias=projection.has_bias,
                   out_dtype=out),
        ),
        backward=(*back, kernel(name, "scaled_gemm", m=rows, n=inputs, k=outputs, dtype=scheme, out_dtype=out)),
        weight=(
            kernel(name, "scaled_gemm", m=outputs, n=inputs, k=rows, dtype=gradient, out_dtype=written),
            *_weight_tail(projection, formats, accumulates=accumulates),
        ),
        step=step,
    )  # fmt: skip


def quantisation(
    name: str, rows: int, columns: int, scheme: str, formats: Formats, *, is_weight: bool = False, dim: str = ""
) -> tuple[RankCall, ...]:
    """Return the calls that quantise one operand of a product; none where the scheme keeps it as it is.

    A current scale of a whole tensor takes a kernel that finds the largest magnitude, then one that casts.

    Args:
        dim: mesh dimension over which the tensor is split, whose ranks agree on the largest magnitude.
    """
    operand = SCHEMES[scheme].b if is_weight else SCHEMES[scheme].a
    if not operand.scaled or (is_weight and not formats.is_transposed and not formats.gradient):
        return ()  # weights of a served model were quantised before
    is_whole, dtype = not (operand.row_count or operand.column_count), formats.activation
    scaling = "current" if is_weight or not is_whole else formats.scaling
    calls: list[RankCall] = []
    if is_whole and scaling == "current":
        calls.append(kernel(f"{name}.amax", "reduce", outputs=1, reduced=rows * columns, dtype=dtype, function="max"))
        calls += [collective(f"{name}.amax", "all_reduce", 4, dim)] if dim else []
        scaling = "given"
    cast = kernel(
        f"{name}.quantise", "quantise", rows=rows, columns=columns, dtype=dtype, out_dtype=operand.dtype,
        block_rows=operand.row_count or None, block_columns=operand.column_count or None, scaling=scaling,
        scale_dtype=SCHEMES[scheme].scale, tensor_scale=SCHEMES[scheme].tensor_scale_count > 0 or None,
        transposed=formats.is_transposed or None,
    )  # fmt: skip
    return (*calls, cast)


def quantised_bytes(rows: int, columns: int, scheme: str, dtype: str) -> int:
    """Return the bytes of an activation as it is gathered: narrow with its scales, or plain."""
    if not scheme or not SCHEMES[scheme].a.scaled:
        return dtype_of(dtype).bytes(rows * columns)
    operand = SCHEMES[scheme].a
    scales = operand.scale_count(rows, columns) if operand.row_count else 1
    return dtype_of(operand.dtype).bytes(rows * columns) + dtype_of(SCHEMES[scheme].scale).bytes(scales)


def column_input(name: str, rows: int, width: int, scheme: str, layout: Layout, *, reductions: int = 1) -> PassCalls:
    """Return what precedes column-parallel projections that read one input [rows, width]: collectives, quantisation.

    With sequence parallelism the input is gathered and its gradient reduced and scattered; without, the gradient alone
    is reduced. A narrow input is quantised where its rows are, then gathered; a scale of the whole tensor takes a
    reduction of the largest magnitude first, and a transposed copy is made of what was gathered. Rows with scales of
    their own are gathered wide and quantised afterwards.

    Args:
        reductions: reductions of the gradient: one for each projection where they are not formed from one tensor.

    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2; NVIDIA/TransformerEngine pull 1471; torchtitan,
    docs/float8.md: float8 all-gather is for tensorwise scaling alone.
    """
    formats = layout.formats
    size = dtype_of(formats.activation).bytes(rows * width)
    if layout.tp == 1 or not layout.sequence_parallel:
        whole = quantisation(name, rows, width, scheme, formats) if scheme else ()
        reduced = collective(f"{name}.gradient", "all_reduce", size, "tp", is_beside=True)
        return PassCalls(forward=whole, backward=(reduced,) * reductions if layout.tp > 1 else ())
    copied = _sequence_copy(name, rows, width, layout)
    is_wide = scheme == _GATHERED_WIDE
    gathered = [_gather(name, rows, width, "" if is_wide else scheme, layout), *copied]
    quantised: tuple[RankCall, ...] = ()
    if is_wide:
        gathered += quantisation(name, rows, width, scheme, formats)
    elif scheme and SCHEMES[scheme].a.scaled:
        local = replace(formats, is_transposed=False)
        quantised = quantisation(name, split_rows(rows, layout), width, scheme, local, dim="tp")
        if formats.is_transposed:
            narrow = SCHEMES[scheme].a.dtype
            gathered.append(kernel(f"{name}.transpose", "copy", elements=rows * width, dtype=narrow))
    return PassCalls(
        forward=(*quantised, *gathered),
        backward=(*copied, collective(f"{name}.gradient", "reduce_scatter", size, "tp", is_beside=True)),
    )


def _sequence_copy(name: str, rows: int, width: int, layout: Layout) -> tuple[RankCall, ...]:
    if not layout.copies_sequences:
        return ()
    return (kernel(f"{name}.copy", "copy", elements=rows * width, dtype=layout.formats.activation),)


def second_gather(name: str, rows: int, width: int, scheme: str, layout: Layout) -> PassCalls:
    """Return the second gathering of an input, before the gradients of the projections that read it.

    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2: the split input alone is kept.
    """
    if layout.tp == 1 or not (layout.sequence_parallel and layout.gathers_again):
        return PassCalls()
    narrow = "" if scheme == _GATHERED_WIDE else scheme
    return PassCalls(backward=(_gather(name, rows, width, narrow, layout, is_beside=True),))


def _gather(name: str, rows: int, width: int, scheme: str, layout: Layout, *, is_beside: bool = False) -> RankCall:
    size = quantised_bytes(rows, width, scheme, layout.formats.activation)
    return collective(f"{name}.gather", "all_gather", size, "tp", is_beside=is_beside)


def row_output(name: str, rows: int, width: int, layout: Layout) -> PassCalls:
    """Return the collectives after a row-parallel projection that gives [rows, width]."""
    if layout.tp == 1:
        return PassCalls()
    size = dtype_of(layout.formats.activation).bytes(rows * width)
    if not layout.sequence_parallel:
        return PassCalls(forward=(collective(f"{name}.reduce", "all_reduce", size, "tp"),))
    copied = _sequence_copy(name, rows, width, layout)
    return PassCalls(
        forward=(*copied, collective(f"{name}.reduce", "reduce_scatter", size, "tp")),
        backward=(collective(f"{name}.gather", "all_gather", size, "tp"), *copied),
    )


def split_rows(rows: int, layout: Layout) -> int:
    """Return the rows of norms and residuals on one rank."""
    return ceil(rows / layout.split_rows)
