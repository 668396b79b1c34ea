"""Decode attention over a paged key-value cache, whose pages are found through a page table."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import SpecError
from nearpeak.ops.shared.attention_reference import torch_attention, weights_of
from nearpeak.ops.shared.attention_work import Heads, forward_work
from nearpeak.ops.shared.definition.argument_cache import tensor_of
from nearpeak.ops.shared.definition.array_arithmetic import ceil_div
from nearpeak.ops.shared.definition.axis_checks import required_at_most, required_multiple, required_positive
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.live_pairs import Band, Live, band_mask


@free_when_empty
def paged_attention(
    batch: int, heads: int, tokens: int, pages: int, dim: int, dtype: DType, kv_dtype: DType | None = None, q: int = 1,
    page: int = 16, kv_heads: int | None = None, v_dim: int | None = None, distinct_tokens: int | None = None,
    latent: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of attention of `q` new tokens of each sequence over its cached ones, itself among them.

    Shapes: Q [batch, heads, q, dim]; caches [pages, page, kv_heads, dim] and [.., v_dim]; page table in int32, one
    entry for each page in use; lengths in int32 [batch].
    Counts: as attention; the last query of a sequence is aligned with its last token. The unused part of a page is not
    read.

    Args:
        tokens: cached tokens of all sequences together; a sequence has at least `q`. With a sliding window those
            within it alone.
        pages: entries of the page table in use, of all sequences together.
        kv_dtype: format of the cache, e.g. fp8; products are formed in `dtype`.
        page: tokens that a page holds.
        distinct_tokens: tokens stored, where sequences share the pages of a common beginning.
        latent: the values are the first v_dim features of the keys and stored once (MLA in its absorbed form).

    Source: Kwon et al. 2023, arXiv:2309.06180, section 4.1.

    >>> paged_attention(2, 1, 40, 4, 8, DType(name="bf16", bits_count=16)).read_bytes
    1336
    """
    groups, width = heads if kv_heads is None else kv_heads, dim if v_dim is None else v_dim
    stored = tokens if distinct_tokens is None else distinct_tokens
    _check(batch, heads, tokens, pages, q, page, groups, stored)
    if latent:
        required_at_most("paged_attention", {"dim": dim}, v_dim=width)
    pairs = q * tokens - batch * (q * (q - 1) // 2)
    live = Live(heads * pairs, groups * stored, batch * heads * q)
    return forward_work(
        Heads(dim, width, dtype, kv_dtype or dtype, latent), live, batch * heads * q,
        softcap=False, sinks=0, more_bytes=4 * (pages + batch),
    )  # fmt: skip


def _check(batch: int, heads: int, tokens: int, pages: int, q: int, page: int, groups: int, stored: int) -> None:
    required_positive("paged_attention", page=page)
    required_at_most("paged_attention", {"heads": heads}, kv_heads=groups)
    required_multiple("paged_attention", {"kv_heads": groups}, heads=heads)
    required_at_most("paged_attention", {"tokens": tokens}, pages=pages, distinct_tokens=stored)
    required_at_most("paged_attention", {"pages*page": pages * page}, tokens=tokens)
    required_at_most("paged_attention", {"tokens": tokens}, **{"batch*q": batch * q})


def _inputs(**arguments: Any) -> dict[str, Tensor]:
    batch, pages, page, groups, dim = (arguments[name] for name in ("batch", "pages", "page", "kv_heads", "dim"))
    stored = arguments["kv_dtype"]
    tensors = {
        "query": Tensor(shape=(batch, arguments["heads"], arguments["q"], dim), dtype=arguments["dtype"]),
        "key": Tensor(shape=(pages, page, groups, dim), dtype=stored),
        "value": Tensor(shape=(pages, page, groups, arguments["v_dim"]), dtype=stored),
        "table": Tensor(shape=(pages,), dtype="int32"),
        "lengths": Tensor(shape=(batch,), dtype="int32"),
    }
    return {name: tensor for name, tensor in tensors.items() if name != "value" or not arguments["latent"]}


def _valid(drawn: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """Return the lengths of sequences that are as equally long as they can be."""
    batch, tokens, page = (arguments[name] for name in ("batch", "tokens", "page"))
    lengths = [tokens // batch + (index < tokens % batch) for index in range(batch)]
    pages = sum(ceil_div(length, page) for length in lengths)
    if pages != arguments["pages"]:
        raise SpecError(f"paged_attention: equal sequences take {pages} pages, not {arguments['pages']}")
    return {"lengths": np.array(lengths)}


def _sequences(tensors: dict[str, Any], arguments: dict[str, Any]) -> list[tuple[dict[str, Any], Any]]:
    """Return query, keys and values of each sequence, gathered from its pages, with what makes its mask."""
    sequences = []
    lengths = [int(length) for length in tensors["lengths"]]
    counts = [ceil_div(length, arguments["page"]) for length in lengths]
    for index, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        first = sum(counts[:index])
        operands = {"query": tensors["query"][index : index + 1]}
        for name in ("key", "value"):
            pool = tensors["key"][..., : arguments["v_dim"]] if name not in tensors else tensors[name]
            rows = pool[tensors["table"][first : first + count]]
            operands[name] = rows.reshape(-1, *rows.shape[2:])[:length].swapaxes(0, 1)[None]
        sequences.append((operands, (arguments["q"], length, Band(0, 0, 0, True, "lower_right"))))
    return sequences


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    parts = [weights_of(operands, band_mask(*band)) for operands, band in _sequences(arrays, arguments)]
    return {"output": np.concatenate([part.weights @ part.value for part in parts])}


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch

    # The case says the lengths too: read from a GPU, they would make the host wait for it.
    known = {"table": tensors["table"].long(), **_valid(tensors, **arguments)}
    parts = _sequences({**tensors, **known}, arguments)
    live = [tensor_of(tensors["query"].device, band_mask, *band) for _, band in parts]
    return {
        "output": torch.cat([torch_attention(operands, mask) for (operands, _), mask in zip(parts, live, strict=True)])
    }


OPERATOR = Operator(
    forward=paged_attention,
    family="attention",
    tolerance=Tolerance(
        kind="normalisation",
        reduction="tokens dim",
        below={"table": "pages"},
        special="unspecified",
        steps_count=2,
        gates="always",
        rounds=("large", "deep"),
    ),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    torch_call=_torch_call,
    same={"kv_heads": "heads", "v_dim": "dim", "distinct_tokens": "tokens"},
)
