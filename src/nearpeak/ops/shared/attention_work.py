"""Least work of attention, forward and backward, from the number of unmasked pairs."""

from typing import NamedTuple

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.live_pairs import Live


class Heads(NamedTuple):
    """Widths and formats of queries, keys and values."""

    dim: int
    """Features of a query and of a key."""
    v_dim: int
    """Features of a value."""
    dtype: DType
    """Format of queries and outputs."""
    kv_dtype: DType
    """Format of keys and values as stored."""
    latent: bool = False
    """Values are the first features of the keys, stored once."""

    def cache_bytes(self, keys: int) -> int:
        """Return the bytes of `keys` keys with their values."""
        key_bytes = self.kv_dtype.bytes(keys * self.dim)
        return key_bytes if self.latent else key_bytes + self.kv_dtype.bytes(keys * self.v_dim)


def forward_work(heads: Heads, live: Live, outputs: int, *, softcap: bool, sinks: int, more_bytes: int) -> Work:
    """Return the work of the forward pass, `live` summed over batch and heads.

    Args:
        outputs: queries, live or not, whose output is written.
        sinks: heads with a sink logit.
        more_bytes: masks, tables and lengths read besides.
    """
    return Work(
        flop={f"matrix.{heads.dtype.name}": 2 * live.pairs * (heads.dim + heads.v_dim)},
        special_count=live.pairs * (1 + softcap) + live.queries + sinks,
        read_bytes=heads.dtype.bytes(live.queries * heads.dim)
        + heads.cache_bytes(live.keys)
        + heads.dtype.bytes(sinks)
        + more_bytes,
        write_bytes=heads.dtype.bytes(outputs * heads.v_dim),
    )


def backward_work(
    heads: Heads, live: Live, queries: int, keys: int, *, softcap: bool, sinks: int, more_bytes: int, bias_bytes: int
) -> Work:
    """Return the work of the gradients: five products per live pair, of which the first repeats the forward pass.

    Args:
        queries: queries, live or not, whose gradient is written; `keys` alike.
        bias_bytes: gradient of the bias.
    """
    unit = f"matrix.{heads.dtype.name}"
    return Work(
        flop={unit: 2 * live.pairs * (3 * heads.dim + 2 * heads.v_dim)},
        recompute_flop={unit: 2 * live.pairs * heads.dim},
        special_count=live.pairs * (1 + softcap) + sinks,
        read_bytes=heads.dtype.bytes(live.queries * heads.dim)
        + heads.cache_bytes(live.keys)
        + heads.dtype.bytes(live.queries * heads.v_dim)
        + heads.dtype.bytes(sinks)
        + more_bytes,
        write_bytes=heads.dtype.bytes(queries * heads.dim)
        + heads.cache_bytes(keys)
        + heads.dtype.bytes(sinks)
        + bias_bytes,
    )
