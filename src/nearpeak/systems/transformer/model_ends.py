"""Embedding, output head and cross entropy of a transformer, split by vocabulary."""

from functools import lru_cache

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.dtype import dtype_of
from nearpeak.systems.transformer.adapters import adapted
from nearpeak.systems.transformer.layout import Layout, padded_vocabulary
from nearpeak.systems.transformer.norms import casts, dropout_calls, norm_calls, residual_norm_calls
from nearpeak.systems.transformer.pass_calls import Axes, PassCalls, collective, joined, kernel, of_batch, pointwise
from nearpeak.systems.transformer.projections import (
    Projection,
    column_input,
    projection_calls,
    second_gather,
    split_rows,
)
from nearpeak.systems.transformer.token_batch import Batch, ServingBatch, TrainingBatch, row_count

_FP32_BYTES = 4


@lru_cache(maxsize=1024)
def embedding_calls(shape: TransformerShape, layout: Layout, batch: Batch) -> PassCalls:
    """Return the calls of the embedding on one rank, learned positions and dropout included."""
    rows, dtype, tp = row_count(batch, layout.cp), layout.formats.activation, layout.vocabulary_ranks
    vocabulary = padded_vocabulary(shape, layout) // tp
    forward: list[RankCall] = []
    backward: list[RankCall] = []
    if tp > 1:  # indices of other ranks' rows are masked, and their rows zeroed
        forward.append(pointwise("embedding.mask", rows, "int64", "sub", times=3))
    forward.append(
        kernel("embedding", "embedding", tokens=rows, dim=shape.hidden, vocab=vocabulary, dtype=dtype,
               touched_rows=min(rows, vocabulary))
    )  # fmt: skip
    backward.append(kernel("embedding", "embedding", "backward", tokens=rows, dim=shape.hidden, vocab=vocabulary,
                           dtype=dtype))  # fmt: skip
    if tp > 1:
        size = dtype_of(dtype).bytes(rows * shape.hidden)
        is_split = layout.sequence_parallel
        forward.append(collective("embedding.reduce", "reduce_scatter" if is_split else "all_reduce", size, "tp"))
        if is_split:
            backward.insert(0, collective("embedding.gather", "all_gather", size, "tp"))
    rank_elements = split_rows(rows, layout) * shape.hidden
    if shape.positions == "learned":
        forward.append(kernel("embedding.positions", "embedding", tokens=rows, dim=shape.hidden,
                              vocab=max(shape.position_count, 1), dtype=dtype,
                              touched_rows=min(rows, max(shape.position_count, 1))))  # fmt: skip
        forward.append(pointwise("embedding.add", rank_elements, dtype, "add", operands=2))
        backward.insert(0, kernel("embedding.positions", "embedding", "backward", tokens=rows, dim=shape.hidden,
                                  vocab=max(shape.position_count, 1), dtype=dtype))  # fmt: skip
    return joined(
        PassCalls(forward=tuple(forward), backward=tuple(backward)), dropout_calls("embedding", rank_elements, layout)
    )


@lru_cache(maxsize=1024)
def head_calls(shape: TransformerShape, layout: Layout, batch: Batch) -> PassCalls:
    """Return the calls of the last norm, the output head and, in training, cross entropy."""
    rows = row_count(batch, layout.cp)
    is_served = isinstance(batch, ServingBatch)
    logit_rows = batch.logit_rows if is_served else rows
    vocabulary, scheme = padded_vocabulary(shape, layout) // layout.vocabulary_ranks, layout.formats.head
    norm = residual_norm_calls if is_served else norm_calls
    product = projection_calls(
        Projection(name="head", rows=logit_rows, inputs=shape.hidden, outputs=vocabulary, scheme=scheme,
                   is_input_narrow=not is_served),
        layout.formats, accumulates=layout.fused("accumulate"),
    )  # fmt: skip
    parts = [norm("head.norm", shape, split_rows(rows, layout), shape.hidden, layout)]
    if isinstance(batch, TrainingBatch):
        if layout.splits_vocabulary:
            parts.append(column_input("head.input", rows, shape.hidden, scheme, layout))
        parts += [product, second_gather("head.input", rows, shape.hidden, scheme, layout)]
        return adapted(joined(*parts, _loss(rows, vocabulary, layout)), layout)
    taken = kernel("head.rows", "gather", rows=logit_rows, width=shape.hidden, table_rows=rows,
                   touched_rows=logit_rows, dtype=layout.formats.activation)  # fmt: skip
    sampled = _sampling(shape, logit_rows, vocabulary, layout)
    return of_batch(joined(*parts, PassCalls(forward=(taken,)), product, sampled), batch)


def _sampling(shape: TransformerShape, rows: int, vocabulary: int, layout: Layout) -> PassCalls:
    """Return the gathering of the logits and the choice of the likeliest token (greedy decoding)."""
    dtype = layout.formats.activation
    calls: list[RankCall] = []
    if layout.vocabulary_ranks > 1:
        size = dtype_of(dtype).bytes(rows * vocabulary * layout.tp)
        calls.append(collective("head.logits", "all_gather", size, "tp"))
    calls.append(kernel("head.sample", "cast", elements=rows * shape.vocabulary, dtype=dtype, out_dtype="fp32"))
    calls.append(kernel("head.sample", "topk", rows=rows, columns=shape.vocabulary, k=1, dtype="fp32"))
    return PassCalls(forward=tuple(calls))


def _loss(rows: int, classes: int, layout: Layout) -> PassCalls:
    """Return cross entropy over the logits of one rank, in fp32.

    Split by vocabulary, ranks exchange each row's maximum, then the target's logit and the sum of exponentials, never
    the logits; where these kernels are fused the latter two travel together.

    Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3; NVIDIA/Megatron-LM, tensor_parallel/cross_entropy.py.
    """
    dtype, elements = layout.formats.activation, rows * classes
    if layout.fused("loss"):
        whole: Axes = {"rows": rows, "classes": classes, "dtype": dtype}
        return PassCalls(
            forward=(kernel("loss", "cross_entropy", "forward", whole), *_loss_reductions(rows, layout)),
            backward=(kernel("loss", "cross_entropy", "backward", whole),),
        )
    widened, narrowed = casts("loss", elements, dtype)
    if layout.vocabulary_ranks == 1:
        soft: Axes = {"rows": rows, "columns": classes, "dtype": "fp32", "log": True}
        picked: Axes = {"rows": rows, "classes": classes, "dtype": "fp32"}
        return PassCalls(
            forward=(*widened, kernel("loss", "softmax", "forward", soft),
                     kernel("loss", "nll_loss", "forward", picked)),
            backward=(kernel("loss", "nll_loss", "backward", picked), kernel("loss", "softmax", "backward", soft),
                      *narrowed),
        )  # fmt: skip
    largest, target, total = _loss_reductions(rows, layout)
    return PassCalls(
        forward=(
            *widened,
            kernel("loss.maximum", "reduce", outputs=rows, reduced=classes, dtype="fp32", function="max"),
            largest,
            kernel("loss", "elementwise", elements=elements, dtype="fp32", function="sub", b=rows),
            kernel("loss.target", "gather", rows=rows, width=1, table_rows=elements, touched_rows=rows, dtype="fp32"),
            target,
            pointwise("loss", elements, "fp32", "exp"),
            kernel("loss.sum", "reduce", outputs=rows, reduced=classes, dtype="fp32"),
            total,
            kernel("loss", "elementwise", elements=elements, dtype="fp32", function="div", b=rows),
        ),
        backward=(
            kernel("loss", "elementwise", elements=elements, dtype="fp32", function="mul", b=rows),
            *narrowed,
        ),
    )


def _loss_reductions(rows: int, layout: Layout) -> tuple[RankCall, ...]:
    if layout.vocabulary_ranks == 1:
        return ()
    size = _FP32_BYTES * rows
    largest = collective("loss.maximum", "all_reduce", size, "tp")
    if layout.fused("loss"):
        return largest, collective("loss.sums", "all_reduce", 2 * size, "tp")
    return (
        largest,
        collective("loss.target", "all_reduce", size, "tp"),
        collective("loss.sum", "all_reduce", size, "tp"),
    )
