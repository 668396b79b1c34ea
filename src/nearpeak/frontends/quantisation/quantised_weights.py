"""Steps whose products in repeated layers take weights in a quantisation scheme, scales included."""

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.scheme import Operand, Scheme
from nearpeak.core.work.stored_formats import WIDE_FORMAT, WeightFormat
from nearpeak.core.work.workload import Buffer, Call, Use, Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.quantisation.quantised_convolutions import (
    SOURCE,
    takes_convolutions,
    with_quantised_convolutions,
)
from nearpeak.frontends.quantisation.replaced_calls import with_replaced_calls
from nearpeak.ops import case as case_of
from nearpeak.units import counted

_LAYER = re.compile(r"(^|\.)\d+(\.|$)")
_ROUTER = re.compile(r"(^|\.)(\w+_)?(gate|router)$")
_WIDE_BYTES = 2
_PRODUCTS = ("gemm", "grouped_gemm", "conv")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A product whose weights can be quantised."""

    call: Call
    """The call."""
    row_count: int
    """Rows of its activations."""
    output_count: int
    """Outputs of one matrix of weights."""
    depth_count: int
    """Extent of the sum."""
    weight: Use
    """Its weights."""
    activation: Use
    """Its activations."""

    @property
    def matrix_bytes(self) -> int:
        """Bytes of one matrix of weights in 16 bits."""
        return self.output_count * self.depth_count * _WIDE_BYTES


def with_quantised_weights(workload: Workload, format_: WeightFormat) -> Workload:
    """Return the step with the weights of its repeated layers in a scheme, and activations quantised before products.

    Embeddings, the output head, routers of experts and weights that other operators read stay as they are, and so do
    convolutions in all formats but those of 8 bits on both sides. Activations that several products read are quantised
    once.

    Raises:
        SpecError: no product of the step takes such weights.
    """
    products, scheme = _quantisable(workload, format_.is_experts_only), format_.scheme
    edit = _Edit(workload, format_)
    changed = with_replaced_calls(
        workload, {index: tuple(edit.calls_of(index, products[index])) for index in sorted(products)}, edit.buffers
    )
    convolution_count = 0
    if takes_convolutions(scheme) and not format_.is_experts_only:
        changed, convolution_count = with_quantised_convolutions(changed, scheme)
    _check(workload, products, format_, convolution_count)
    others = sum(
        call.case is not None and call.case.op in _PRODUCTS and dict(call.case.dtypes)["dtype"] == WIDE_FORMAT
        for call in changed.calls
    )
    parts = [f"{counted(len(products), 'product')} are stored as {format_.scheme_name} with scales ({scheme.source})"]
    if convolution_count:
        parts.append(f"of {counted(convolution_count, 'convolution')} in {scheme.b.dtype} ({SOURCE})")
    note = (
        f"Weights of {', '.join(parts)}; embeddings, output head, routers and {counted(others, 'other product')} "
        f"stay in {WIDE_FORMAT}. Quantised products count as written: algebra does not look into them."
    )
    origin = {**workload.origin, "weights": format_.scheme_name}
    return dataclasses.replace(changed, origin=origin, assumptions=(*workload.assumptions, note))


def _check(workload: Workload, products: dict[int, _Product], format_: WeightFormat, convolution_count: int) -> None:
    """Refuse a format that changes nothing, or leaves most weights in convolutions that it does not cover."""
    if not products and not convolution_count:
        part = "experts" if format_.is_experts_only else "repeated layers"
        raise SpecError(
            f"--weights {format_.option}: {workload.name} has no {WIDE_FORMAT} product of {part} with weights of "
            "its own; leave it out"
        )
    convolved = sum(
        use.bytes for call in workload.calls for use in call.reads
        if call.case is not None and call.case.op.startswith("conv") and workload.buffers[use.buffer].kind == "weight"
    )  # fmt: skip
    quantised = sum(workload.buffers[product.weight.buffer].bytes for product in products.values())
    if convolved > quantised and not convolution_count:
        raise SpecError(
            f"--weights {format_.option}: {workload.name} has most of its weights in convolutions, which it does not "
            "cover; give int8 or fp8, or leave it out"
        )


def stored_bytes(scheme: Scheme, width: int, depth: int) -> int:
    """Return the bytes of a matrix of weights in a scheme, scales, zero points and scale of the tensor included.

    >>> from nearpeak.core.work.scheme import SCHEMES
    >>> stored_bytes(SCHEMES["fp8_row"], 4096, 4096) - 4096 * 4096 == 4 * 4096
    True
    """
    scales = scheme.b.scale_count(width, depth) * (2 if scheme.zeros else 1)
    return (
        dtype_of(scheme.b.dtype).bytes(width * depth)
        + dtype_of(scheme.scale).bytes(scales)
        + (dtype_of("fp32").bytes(1) if scheme.tensor_scale_count else 0)
    )


def _quantisable(workload: Workload, is_experts_only: bool) -> dict[int, _Product]:
    """Return the products of repeated layers by position; their weights are read by such products alone."""
    products = {
        index: product for index, call in enumerate(workload.calls)
        if (product := _product(workload, call)) is not None
        and not (is_experts_only and "experts" not in call.module)
    }  # fmt: skip
    used = {
        use.buffer for index, call in enumerate(workload.calls) for use in (*call.reads, *call.writes)
        if index not in products or use is not products[index].weight
    }  # fmt: skip
    return {index: product for index, product in products.items() if product.weight.buffer not in used}


def _product(workload: Workload, call: Call) -> _Product | None:
    """Return the product that a call is; none where it is not one of 16-bit weights in a repeated layer."""
    case = call.case
    if case is None or case.op not in ("gemm", "grouped_gemm") or (case.phase, call.phase) != ("forward", "forward"):
        return None
    is_in_layers = bool(_LAYER.search(call.module)) and not _ROUTER.search(call.module)
    if not is_in_layers or set(dict(case.dtypes).values()) != {WIDE_FORMAT}:
        return None
    weights = [use for use in call.reads if workload.buffers[use.buffer].kind == "weight"]
    inputs = [use for use in call.reads if workload.buffers[use.buffer].kind != "weight"]
    axes, choices = dict(case.axes), dict(case.attributes)
    is_plain = axes.get("batch", 1) == 1 and choices.get("split", "m") == "m" and not choices.get("accumulate")
    if not (weights and inputs and is_plain and axes.get("bias_elements", 0) in (0, axes["n"])):
        return None
    largest = max(weights, key=lambda use: use.bytes)
    product = _Product(
        call=call, row_count=axes["m"], output_count=axes["n"], depth_count=axes["k"], weight=largest,
        activation=inputs[0],
    )  # fmt: skip
    whole = product.matrix_bytes * axes.get("groups", 1)
    is_whole = workload.buffers[product.weight.buffer].bytes == whole and product.weight.start_bytes == 0
    return product if is_whole and product.weight.bytes % max(product.matrix_bytes, 1) == 0 else None


class _Edit:
    """Storages of the quantised step, which grow by those of quantised activations."""

    def __init__(self, workload: Workload, format_: WeightFormat) -> None:
        self.buffers: list[Buffer] = list(workload.buffers)
        self._old, self._format = workload, format_
        self._made: dict[tuple[Use, int], Use] = {}
        self._writers: dict[int, list[int]] = {}
        for index, call in enumerate(workload.calls):
            for use in call.writes:
                self._writers.setdefault(use.buffer, []).append(index)

    def calls_of(self, index: int, product: _Product) -> Iterator[Call]:
        """Yield the quantisation of the activations, unless done before, and the product."""
        scheme, call = self._format.scheme, product.call
        assert call.case is not None
        activation = product.activation
        if scheme.a.scaled:
            key = (activation, sum(writer < index for writer in self._writers.get(activation.buffer, ())))
            if key not in self._made:
                self._made[key] = self._quantised(scheme.a, scheme, product)
                case = _quantise(self._format.scheme_name, product.row_count, product.depth_count)
                yield _kept(call, "nearpeak.quantise", case, (activation,), (self._made[key],))
            activation = self._made[key]
        weight = self._weight(product)
        reads = [weight if use is product.weight else activation if use is product.activation else use
                 for use in call.reads]  # fmt: skip
        case = _scaled(call.case, self._format.scheme_name)
        yield _kept(call, f"nearpeak.{case.op}", case, tuple(reads), call.writes)

    def _quantised(self, operand: Operand, scheme: Scheme, product: _Product) -> Use:
        """Return a new storage of quantised activations with their scales."""
        scales = dtype_of(scheme.scale).bytes(operand.scale_count(product.row_count, product.depth_count))
        whole = dtype_of("fp32").bytes(1) if scheme.tensor_scale_count else 0
        size = dtype_of(operand.dtype).bytes(product.row_count * product.depth_count) + scales + whole
        self.buffers.append(Buffer(bytes=size, kind="activation"))
        return Use(buffer=len(self.buffers) - 1, bytes=size, stop_bytes=size)

    def _weight(self, product: _Product) -> Use:
        """Return the stored weights that a product reads, and give their storage its size."""
        each = stored_bytes(self._format.scheme, product.output_count, product.depth_count)
        old, number = product.weight, product.weight.buffer
        whole = self._old.buffers[number].bytes // product.matrix_bytes * each
        self.buffers[number] = dataclasses.replace(self._old.buffers[number], bytes=whole)
        return Use(buffer=number, bytes=old.bytes // product.matrix_bytes * each, stop_bytes=whole)


def _kept(call: Call, operator: str, case: Case, reads: tuple[Use, ...], writes: tuple[Use, ...]) -> Call:
    """Return a call in the place of another one, without the form that the source gave that."""
    return dataclasses.replace(
        call, operator=operator, case=case, reads=reads, writes=writes, form=None, storages=()
    )  # fmt: skip


@cache  # equal calls share one case
def _scaled(case: Case, scheme: str) -> Case:
    axes, choices = dict(case.axes), dict(case.attributes)
    if case.op == "grouped_gemm":
        return case_of("grouped_gemm", "forward", **axes, **choices, dtype=scheme, out_dtype=WIDE_FORMAT)
    sizes = {name: axes[name] for name in ("m", "n", "k")}
    return case_of("scaled_gemm", "forward", **sizes, dtype=scheme, bias=choices["bias"])


@cache
def _quantise(scheme_name: str, rows: int, columns: int) -> Case:
    """Return the quantisation of activations as the scheme scales them, with scales of the values themselves."""
    scheme = dtype_of(scheme_name).scheme
    assert scheme is not None
    blocks = {"block_rows": min(scheme.a.row_count, rows), "block_columns": min(scheme.a.column_count, columns)}
    return case_of(
        "quantise", "forward", rows=rows, columns=columns, dtype=WIDE_FORMAT, out_dtype=scheme.a.dtype,
        scale_dtype=scheme.scale, tensor_scale=bool(scheme.tensor_scale_count),
        **{name: count for name, count in blocks.items() if count},
    )  # fmt: skip
