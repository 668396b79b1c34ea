"""Mutants of outputs and memory that apply to every operator: stale, zeroed, swapped or overrun results."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.validation.checks.v04_special import inputs_with_nan
from nearpeak.validation.inputs.nonfinite_values import special_draw
from nearpeak.validation.mutants.mutant import Mutant, Tensors, right_call, with_output, with_outputs
from nearpeak.validation.oracle.float64_oracle import declared_formats
from nearpeak.validation.running.implementation_run import Call

TILE = 8


def of_outputs(case: Case) -> Iterator[Mutant]:
    """Yield the mutants of every output, and those of the whole call."""
    yield Mutant(row="zero kernel", where="", make=_every(case, lambda y: y.zero_()))
    yield Mutant(row="constant kernel", where="", make=_every(case, _constant), changes=_constant)
    yield Mutant(row="stale output", where="", make=lambda: _stale(right_call(case)))
    yield Mutant(row="output not written to its end", where="", make=_every(case, _half_written))
    yield Mutant(row="writes beside its output", where="", make=lambda: _overrunning(right_call(case)))
    yield Mutant(row="changes an input", where="", make=lambda: _mutating(case, right_call(case)))
    with_nan = _outputs_with_nan(case)
    for name, dtype in declared_formats(case).items():
        yield Mutant(row="one element wrong", where=name, make=with_output(case, name, _one_element))
        yield Mutant(row="sign of one row", where=name, make=with_output(case, name, _one_row))
        yield Mutant(row="tile zeroed", where=name, make=with_output(case, name, _tile))
        yield Mutant(row="columns swapped", where=name, make=with_output(case, name, _columns), moves=_columns)
        if name in with_nan:
            yield Mutant(row="NaN swallowed", where=name, make=with_output(case, name, lambda y: y.nan_to_num()))
        if dtype.is_floating_point:
            cut = with_output(case, name, _fewer_bits)
            yield Mutant(row="bits lost", where=name, make=cut, changes=_fewer_bits)


def _outputs_with_nan(case: Case) -> set[str]:
    """Return the outputs that NaN reaches, where a mutant can swallow it."""
    names = set()
    for name in inputs_with_nan(case):
        draw = special_draw(case, 0, name, float("nan"))
        for output, expected in draw.expected.items() if draw else ():
            if expected.values.dtype.kind == "f" and np.isnan(expected.values).any():
                names.add(output)
    return names


def _every(case: Case, change: Callable[[Any], Any]) -> Callable[[], Call]:
    return with_outputs(case, lambda outputs: {name: change(output.clone()) for name, output in outputs.items()})


def _constant(y: Any) -> Any:
    return y.fill_(1)


def _stale(right: Call) -> Call:
    """Return a call that returns the results of the call before."""
    answers: list[Tensors] = []

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        answers.append({name: y.detach().clone() for name, y in right(tensors, **arguments).items()})
        return answers[-2] if len(answers) > 1 else {name: y * 0 for name, y in answers[-1].items()}

    return call


def _half_written(y: Any) -> Any:
    import torch

    out, flat = torch.empty_like(y), y.reshape(-1)
    out.view(-1)[: len(flat) // 2] = flat[: len(flat) // 2]
    return out


def _overrunning(right: Call) -> Call:
    """Return a call that writes one element past an input, like a kernel without a bounds check."""
    import torch

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        outputs = {name: y.clone() for name, y in right(tensors, **arguments).items()}
        for tensor in tensors.values():
            data = tensor.detach()
            torch.as_strided(data, (1,), (1,), data.storage_offset() + data.numel()).zero_()
        return outputs

    return call


def _mutating(case: Case, right: Call) -> Call:
    """Return a call that also changes inputs that are no outputs."""
    outputs = declared_formats(case)

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        results = {name: y.clone() for name, y in right(tensors, **arguments).items()}
        for name, tensor in tensors.items():
            if name not in outputs and tensor.numel():
                flat = tensor.detach().view(-1)
                flat[0] = 0 if flat[0].item() else 1
        return results

    return call


def _largest(y: Any) -> int:
    """Return the position of the largest finite element of the flattened tensor."""
    import torch

    size = torch.nan_to_num(y.detach().double().abs() if not y.is_complex() else y.detach().abs().double(), 0, 0, 0)
    return int(size.reshape(-1).argmax()) if y.numel() else 0


def _one_element(y: Any) -> Any:
    flat = y.reshape(-1).clone()
    if len(flat):
        at = _largest(y)
        wrong = _wrong(flat[at : at + 1])[0]
        flat[at] = wrong if wrong != flat[at] else 0  # what is at the format's end saturates
    return flat.view(y.shape)


def _wrong(part: Any) -> Any:
    """Return wrong values: 1.5 times a float, the next integer, the opposite boolean."""
    if str(part.dtype) == "torch.bool":
        return ~part
    if not part.is_floating_point() and not part.is_complex():
        return part + 1
    return (part.to(_wide(part)) * 1.5).to(part.dtype)


def _wide(part: Any) -> Any:
    import torch

    return part.dtype if part.is_complex() else torch.float64


def _one_row(y: Any) -> Any:
    """Flip the sign of the row with the largest element; integers and booleans get other values."""
    rows = y.reshape(-1, y.shape[-1]).clone() if y.dim() else y.reshape(1, 1).clone()
    if rows.numel():
        row = _largest(rows) // rows.shape[1]
        float_like = y.is_floating_point() or y.is_complex()
        rows[row] = (-rows[row].to(_wide(rows))).to(y.dtype) if float_like else _wrong(rows[row])
    return rows.view(y.shape)


def _tile(y: Any) -> Any:
    """Zero the tile that holds the largest element, at most half of each of the last two dimensions."""
    out = y.clone()
    if not y.numel():
        return out
    at = _largest(y)
    place = []
    for extent in reversed(y.shape):
        place.append((at % extent, extent))
        at //= extent
    spans = []
    for position, extent in reversed(place[:2]):
        width = min(TILE, max(extent // 2, 1))
        start = position - position % width
        spans.append(slice(start, start + width))
    outer = [position for position, _ in reversed(place[2:])]
    out[tuple(outer + spans)] = 0
    return out


def _columns(y: Any) -> Any:
    """Swap the last two elements of the last dimension that has two; a single number stays."""
    out = y.clone()
    for dimension in reversed(range(y.dim())):
        extent = y.shape[dimension]
        if extent > 1:
            first, last = (out.select(dimension, index).clone() for index in (extent - 2, extent - 1))
            out.select(dimension, extent - 2).copy_(last)
            out.select(dimension, extent - 1).copy_(first)
            break
    return out


def _fewer_bits(y: Any) -> Any:
    """Keep half of the significant bits of each element, cut off."""
    import torch

    bits = {torch.float64: 26, torch.float32: 12, torch.bfloat16: 4, torch.float16: 5}.get(y.dtype)
    if bits is None:
        return y
    mantissa, exponent = torch.frexp(y.double())
    return torch.where(
        y.isfinite(), torch.trunc(mantissa * 2**bits) / 2**bits * 2.0 ** exponent.double(), y.double()
    ).to(y.dtype)
