"""KV cache of a decode step: created by the model for one token, then extended to the requested length."""

from collections.abc import Iterator
from typing import Any

_CACHES = ("past_key_values", "cache_params", "state")
"""Names of the cache among outputs of models, and among inputs of the next decode step."""


def stretched(output: Any, kv_count: int) -> tuple[str, Any] | None:
    """Return name and value of the cache in `output`, extended to `kv_count` positions; none if there is no cache."""
    caches = {name: getattr(output, name) for name in _CACHES if getattr(output, name, None) is not None}
    if not caches:
        return None
    name, cache = next(iter(caches.items()))
    self_attention = getattr(cache, "self_attention_cache", cache)
    for layer in getattr(self_attention, "layers", ()):
        _fill(layer, kv_count)
    return name, cache


def forget_encoded(cache: Any) -> None:
    """Give the cross-attention cache storages of its own, as if from an earlier step."""
    import torch

    for layer in cache.cross_attention_cache.layers:
        layer.keys, layer.values = torch.empty_like(layer.keys), torch.empty_like(layer.values)


def _fill(layer: Any, kv_count: int) -> None:
    """Extend an attention layer's cache to `kv_count` positions, a sliding-window one to its window at most.

    The new position is written in place, as serving engines do; transformers' own cache would copy everything.
    """
    import torch

    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    if keys is None or values is None:
        return  # a recurrent layer: its state has the same size at every position
    window = getattr(layer, "sliding_window", None)
    position_count = min(kv_count, window - 1) if isinstance(window, int) else kv_count
    room = [torch.empty((*t.shape[:-2], position_count + 1, t.shape[-1]), dtype=t.dtype) for t in (keys, values)]
    layer.keys, layer.values = (storage[..., :position_count, :] for storage in room)
    if hasattr(layer, "cumulative_length"):
        layer.cumulative_length = kv_count

    def append(new_keys: Any, new_values: Any, *_args: Any, **_kwargs: Any) -> tuple[Any, Any]:
        for storage, new in zip(room, (new_keys, new_values), strict=True):
            storage[..., position_count:, :].copy_(new)
        layer.keys, layer.values = room
        return room[0], room[1]

    if type(layer).__name__ in ("DynamicLayer", "DynamicSlidingWindowLayer"):  # others keep more than keys and values
        layer.update = append


def cache_tensors(cache: Any) -> Iterator[tuple[Any, str, str]]:
    """Yield the tensors of a cache with kind and name."""
    import torch

    if isinstance(cache, list):  # the recurrent state of RWKV
        yield from ((tensor, "kv_cache", f"cache.{index}") for index, tensor in enumerate(cache))
    for part in ("self_attention_cache", "cross_attention_cache"):
        for index, layer in enumerate(getattr(getattr(cache, part, cache), "layers", ())):
            for name, value in vars(layer).items():
                held = value if isinstance(value, dict) else {"": value}  # recurrent layers number their states
                for key, tensor in held.items():
                    if isinstance(tensor, torch.Tensor) and not name.startswith("_"):
                        yield tensor, "kv_cache", f"cache.{index}.{name}" + (f".{key}" if key != "" else "")
