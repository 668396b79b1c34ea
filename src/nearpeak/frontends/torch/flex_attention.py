"""FlexAttention kept as one call: its mask and score functions are evaluated over all pairs."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from nearpeak.frontends.torch.fake_tensors import replaced
from nearpeak.frontends.torch.recorder import Recorder


@contextmanager
def flex_kept_whole(recorder: Recorder) -> Iterator[None]:
    """Replace what flex_attention hands its arguments to, while the block runs.

    Functions of the scores count by the pairs that they hide; their arithmetic is not counted.
    """
    from torch.nn.attention import flex_attention as module

    def whole(query: Any, key: Any, value: Any, score: Any, blocks: Any, scale: Any, *_: Any, **_named: Any) -> Any:
        import torch

        mask = _mask(recorder, query, key, score, blocks)
        attend = torch.nn.functional.scaled_dot_product_attention
        out = attend(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)
        row = query.new_empty(query.shape[:-1], dtype=torch.float32)
        return out, row, row

    with ExitStack() as stack:
        stack.enter_context(replaced(module, "flex_attention_hop", whole))
        if hasattr(module, "_validate_device"):  # it knows no gradient on the CPU, where captures run
            stack.enter_context(replaced(module, "_validate_device", lambda *_: None))
        yield


def _mask(recorder: Recorder, query: Any, key: Any, score: Any, blocks: Any) -> Any:
    """Return the pairs that the functions leave; what inputs decide leaves all, since nobody reads it as a mask."""
    from torch.nn.attention import flex_attention as module

    functions = {
        blocks[-1]: (*blocks[2].shape[:2], getattr(module, "noop_mask", None)),
        score: (*query.shape[:2], getattr(module, "_identity", None)),
    }
    mask = None
    before, recorder.recording = recorder.recording, False
    try:
        for function, (batch, heads, nothing) in functions.items():
            if function is nothing:
                continue
            plain, extents = _plain(function, scores=function is score), (query.shape[-2], key.shape[-2])
            function_mask = module.create_mask(plain, batch, heads, *extents, device="cpu")
            if recorder.masks.live(query, key, function_mask, False) is not None:
                mask = function_mask if mask is None else mask & function_mask
    finally:
        recorder.recording = before
    if mask is not None:
        recorder.storages.number(mask, "constant")
    return mask


def _plain(function: Any, *, scores: bool) -> Any:
    """Return `function` with stated parameters: PyTorch tells scores from masks by them, and `*args` states none."""

    def of_scores(value: Any, batch: Any, head: Any, q: Any, kv: Any) -> Any:
        return function(value, batch, head, q, kv)

    def of_pairs(batch: Any, head: Any, q: Any, kv: Any) -> Any:
        return function(batch, head, q, kv)

    return of_scores if scores else of_pairs
