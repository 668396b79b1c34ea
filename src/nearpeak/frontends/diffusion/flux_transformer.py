"""Transformer of FLUX.1: blocks with two streams, one of text and one of image tokens, then blocks with one."""

# Structure: Black Forest Labs 2024, github.com/black-forest-labs/flux, src/flux/model.py and modules/layers.py; blocks
# of two streams: Esser et al. 2024, arXiv:2403.03206, section 4.

from collections.abc import Mapping
from functools import partial
from typing import Any

from nearpeak.frontends.diffusion.composed_module import attend, embedder, module_of, sinusoids

_TIME_WIDTH = 256


def flux(config: Mapping[str, Any]) -> Any:
    """Return the network; it takes `img`, `txt`, `time`, `pooled`, `rotary` and, where it is distilled, `guidance`."""
    from torch import nn

    width, heads = config["hidden_size"], config["num_heads"]
    double = [module_of(_run_double_block, img=_stream(config), txt=_stream(config)) for _ in range(config["depth"])]
    single = [_single_block(config) for _ in range(config["depth_single_blocks"])]
    return module_of(
        partial(_run_flux, heads=heads), img_in=nn.Linear(config["in_channels"], width),
        txt_in=nn.Linear(config["context_in_dim"], width), time_in=embedder(_TIME_WIDTH, width),
        vector_in=embedder(config["vec_in_dim"], width),
        guidance_in=embedder(_TIME_WIDTH, width) if config["guidance_embed"] else None,
        double_blocks=nn.ModuleList(double), single_blocks=nn.ModuleList(single), norm_out=_plain_norm(width),
        modulation_out=nn.Linear(width, 2 * width), img_out=nn.Linear(width, config["in_channels"]),
    )  # fmt: skip


def flux_inputs(config: Mapping[str, Any], batch: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs by name."""
    tokens, text = config["image_tokens"], config["text_tokens"]
    shapes = {
        "img": (batch, tokens, config["in_channels"]), "txt": (batch, text, config["context_in_dim"]),
        "time": (batch,), "pooled": (batch, config["vec_in_dim"]),
        "rotary": (2, text + tokens, 1, config["hidden_size"] // config["num_heads"] // 2),
    }  # fmt: skip
    return shapes | ({"guidance": (batch,)} if config["guidance_embed"] else {})


def _run_flux(
    flux: Any, img: Any, txt: Any, time: Any, pooled: Any, rotary: Any, guidance: Any = None, *, heads: int
) -> Any:
    import torch
    from torch.nn.functional import silu

    embedding = flux.time_in(sinusoids(time, _TIME_WIDTH))
    if guidance is not None:
        embedding = embedding + flux.guidance_in(sinusoids(guidance, _TIME_WIDTH))
    embedding = silu(embedding + flux.vector_in(pooled))[:, None]
    img, txt = flux.img_in(img), flux.txt_in(txt)
    for block in flux.double_blocks:
        img, txt = block(img, txt, embedding, rotary, heads)
    tokens = torch.cat((txt, img), dim=1)
    for block in flux.single_blocks:
        tokens = block(tokens, embedding, rotary, heads)
    shift, scale = flux.modulation_out(embedding).chunk(2, dim=-1)
    return flux.img_out((1 + scale) * flux.norm_out(tokens[:, txt.shape[1] :]) + shift)


def _plain_norm(width: int) -> Any:
    from torch import nn

    return nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)


def _stream(config: Mapping[str, Any]) -> Any:
    """Return the layers of one stream of a block."""
    from torch import nn

    width, ffn = config["hidden_size"], int(config["hidden_size"] * config["mlp_ratio"])
    head_width = width // config["num_heads"]
    return module_of(
        None, modulation=nn.Linear(width, 6 * width), norm=_plain_norm(width), qkv=nn.Linear(width, 3 * width),
        query_norm=nn.RMSNorm(head_width, eps=1e-6), key_norm=nn.RMSNorm(head_width, eps=1e-6),
        proj=nn.Linear(width, width), norm_ffn=_plain_norm(width),
        ffn=nn.Sequential(nn.Linear(width, ffn), nn.GELU(approximate="tanh"), nn.Linear(ffn, width)),
    )  # fmt: skip


def _run_double_block(block: Any, img: Any, txt: Any, embedding: Any, rotary: Any, heads: int) -> Any:
    import torch

    streams = (block.txt, txt), (block.img, img)
    changes = [stream.modulation(embedding).chunk(6, dim=-1) for stream, _ in streams]
    parts = [
        _heads(stream, stream.qkv((1 + scale) * stream.norm(tokens) + shift), heads)
        for (stream, tokens), (shift, scale, *_) in zip(streams, changes, strict=True)
    ]
    query, key, value = (torch.cat(pair, dim=1) for pair in zip(*parts, strict=True))
    attended = attend(_rotated(query, rotary), _rotated(key, rotary), value)
    results = []
    for (stream, tokens), change, share in zip(
        streams, changes, (attended[:, : txt.shape[1]], attended[:, txt.shape[1] :]), strict=True
    ):
        _, _, gate, shift, scale, gate_ffn = change
        after = tokens + gate * stream.proj(share)
        results.append(after + gate_ffn * stream.ffn((1 + scale) * stream.norm_ffn(after) + shift))
    return results[1], results[0]


def _single_block(config: Mapping[str, Any]) -> Any:
    """Return a block whose attention and feed-forward part run side by side on all tokens."""
    from torch import nn

    width, ffn = config["hidden_size"], int(config["hidden_size"] * config["mlp_ratio"])
    head_width = width // config["num_heads"]
    return module_of(
        _run_single_block, modulation=nn.Linear(width, 3 * width), norm=_plain_norm(width),
        linear1=nn.Linear(width, 3 * width + ffn), linear2=nn.Linear(width + ffn, width),
        query_norm=nn.RMSNorm(head_width, eps=1e-6), key_norm=nn.RMSNorm(head_width, eps=1e-6),
    )  # fmt: skip


def _run_single_block(block: Any, tokens: Any, embedding: Any, rotary: Any, heads: int) -> Any:
    import torch
    from torch.nn.functional import gelu

    shift, scale, gate = block.modulation(embedding).chunk(3, dim=-1)
    width = tokens.shape[-1]
    mixed = block.linear1((1 + scale) * block.norm(tokens) + shift)
    query, key, value = _heads(block, mixed[..., : 3 * width], heads)
    attended = attend(_rotated(query, rotary), _rotated(key, rotary), value)
    hidden = torch.cat((attended, gelu(mixed[..., 3 * width :], approximate="tanh")), dim=-1)
    return tokens + gate * block.linear2(hidden)


def _heads(layers: Any, mixed: Any, heads: int) -> tuple[Any, Any, Any]:
    """Return queries, keys and values by head, the first two normed."""
    query, key, value = mixed.unflatten(-1, (3, heads, -1)).unbind(2)
    return layers.query_norm(query), layers.key_norm(key), value


def _rotated(heads: Any, rotary: Any) -> Any:
    """Return queries or keys turned by the angles of their positions, given as cosines and sines."""
    import torch

    cosine, sine = rotary
    even, odd = heads.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2).to(heads.dtype)
