"""Products of a matrix with its own transpose: half of the multiply-adds suffice, as the result is symmetric."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.work import Work
from nearpeak.core.work.workload import Call


def is_gram(call: Call) -> bool:
    """Say whether the call multiplies a matrix with its own transpose; where no arguments are stated, it may."""
    if call.case is None or call.case.phase != "forward" or call.case.op not in ("attention", "gemm"):
        return False
    tensors = [value for _, value in call.form.arguments if isinstance(value, Layout)] if call.form else []
    if call.case.op == "attention":  # queries and keys are the same tensor, and pairs are seen from both sides
        same = len(tensors) > 1 and tensors[0] == tensors[1] and call.storages[0] == call.storages[1]
        return same and not call.case.record()["causal"]
    axes = dict(call.case.axes)
    if axes["m"] != axes["n"] or len(call.reads) < 2 or call.reads[-1] != call.reads[-2]:
        return False
    return len(tensors) < 2 or tensors[-1] == _transposed(tensors[-2])


def gram_work(call: Call, work: Work) -> Work:
    """Return `work` with each pair of rows multiplied once: m (m + 1) / 2 of the m m pairs."""
    assert call.case is not None
    if call.case.op == "attention":
        return _half_scored(call.case.record(), work)
    m = dict(call.case.axes)["m"]
    flop = {k: n * (m + 1) // (2 * m) if k.startswith("matrix.") and m else n for k, n in work.flop.items()}
    return dataclasses.replace(work, flop=flop)


def _half_scored(axes: Mapping[str, Any], work: Work) -> Work:
    """Return `work` with the score of each pair of positions formed once, which both sides of it share.

    Of a mask only the number of pairs is known: at least half of them are different.
    """
    scores = axes["batch"] * axes["heads"]
    dense = scores * axes["q"] * axes["kv"]
    matrix = {kind: flop for kind, flop in work.flop.items() if kind.startswith("matrix.")}
    width = axes["dim"] + (axes["v_dim"] or axes["dim"])
    saved = {}
    for kind, flop in matrix.items():
        pairs = flop // (2 * width)
        distinct = scores * axes["q"] * (axes["q"] + 1) // 2 if pairs == dense else (pairs + 1) // 2
        saved[kind] = flop - 2 * axes["dim"] * (pairs - distinct)
    return dataclasses.replace(work, flop={**work.flop, **saved})


def _transposed(layout: Layout) -> Layout | None:
    """Return the same tensor with its last two dimensions exchanged; none where it has fewer."""
    if len(layout.shape) < 2:
        return None
    shape, strides = ((*values[:-2], values[-1], values[-2]) for values in (layout.shape, layout.strides))
    return layout._replace(shape=shape, strides=strides)
