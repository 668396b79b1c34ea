"""PyTorch U-Net of latent diffusion, built from a model's config, and the shapes of its inputs."""

# Structure: Rombach et al. 2022, arXiv:2112.10752, section 3; depths of the transformers: Podell et al. 2023,
# arXiv:2307.01952, table 1.

from collections.abc import Mapping
from functools import partial
from typing import Any

from nearpeak.frontends.diffusion.composed_module import attend, embedder, module_of, sinusoids

_GROUPS = 32


def unet(config: Mapping[str, Any]) -> Any:
    """Return the network; it takes `latents`, `time`, `text` and, where the dimensions state its width, `pooled`."""
    from torch import nn

    widths, depths = config["block_out_channels"], config["transformer_layers_per_block"]
    layers, last = config["layers_per_block"], len(widths) - 1
    stage = partial(_stage, config)
    width, skips = widths[0], [widths[0]]
    down, up = [], []
    for level, (out, depth) in enumerate(zip(widths, depths, strict=True)):
        for _ in range(layers):
            down.append(stage(width, out, depth))
            width = out
            skips.append(out)
        if level < last:
            down.append(module_of(_run_halving, conv=nn.Conv2d(out, out, 3, stride=2, padding=1)))
            skips.append(out)
    middle_depth = max(depth for depth in depths[-2:])
    middle = stage(width, width, middle_depth), stage(width, width, 0)
    for level in range(last, -1, -1):
        for place in range(layers + 1):
            doubles = level > 0 and place == layers
            up.append(stage(width + skips.pop(), widths[level], depths[level], doubles=doubles))
            width = widths[level]
    pooled = config.get("projection_class_embeddings_input_dim", 0)
    return module_of(
        _run_unet,
        time_embedding=embedder(widths[0], 4 * widths[0]),
        pooled_embedding=embedder(pooled, 4 * widths[0]) if pooled else None,
        conv_in=nn.Conv2d(config["in_channels"], widths[0], 3, padding=1),
        down=nn.ModuleList(down), middle=nn.ModuleList(middle), up=nn.ModuleList(up),
        norm_out=nn.GroupNorm(_GROUPS, width), conv_out=nn.Conv2d(width, config["in_channels"], 3, padding=1),
    )  # fmt: skip


def unet_inputs(config: Mapping[str, Any], batch: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs by name."""
    side, pooled = config["sample_size"], config.get("projection_class_embeddings_input_dim", 0)
    shapes = {
        "latents": (batch, config["in_channels"], side, side), "time": (batch,),
        "text": (batch, config["text_tokens"], config["cross_attention_dim"]),
    }  # fmt: skip
    return shapes | ({"pooled": (batch, pooled)} if pooled else {})


def _run_unet(unet: Any, latents: Any, time: Any, text: Any, pooled: Any = None) -> Any:
    import torch
    from torch.nn.functional import silu

    embedding = unet.time_embedding(sinusoids(time, unet.conv_in.out_channels))
    if pooled is not None:
        embedding = embedding + unet.pooled_embedding(pooled)
    embedding = silu(embedding)
    features = unet.conv_in(latents)
    skips = [features]
    for stage in unet.down:
        features = stage(features, embedding, text)
        skips.append(features)
    for stage in unet.middle:
        features = stage(features, embedding, text)
    for stage in unet.up:
        features = stage(torch.cat((features, skips.pop()), dim=1), embedding, text)
    return unet.conv_out(silu(unet.norm_out(features)))


def _stage(config: Mapping[str, Any], width_in: int, width: int, depth: int, *, doubles: bool = False) -> Any:
    """Return a residual block with a transformer behind it, and a doubling of the resolution where asked for."""
    from torch import nn

    transformer = None
    if depth:
        blocks = (_transformer_block(config, width) for _ in range(depth))
        transformer = module_of(
            _run_transformer, norm=nn.GroupNorm(_GROUPS, width, eps=1e-6), proj_in=nn.Linear(width, width),
            blocks=nn.ModuleList(blocks), proj_out=nn.Linear(width, width),
        )  # fmt: skip
    residual = module_of(
        _run_residual, norm_in=nn.GroupNorm(_GROUPS, width_in), conv_in=nn.Conv2d(width_in, width, 3, padding=1),
        time=nn.Linear(4 * config["block_out_channels"][0], width), norm_out=nn.GroupNorm(_GROUPS, width),
        conv_out=nn.Conv2d(width, width, 3, padding=1),
        shortcut=nn.Conv2d(width_in, width, 1) if width_in != width else nn.Identity(),
    )  # fmt: skip
    upsampler = nn.Conv2d(width, width, 3, padding=1) if doubles else None
    return module_of(_run_stage, residual=residual, transformer=transformer, upsampler=upsampler)


def _run_stage(stage: Any, features: Any, embedding: Any, text: Any) -> Any:
    from torch.nn.functional import interpolate

    features = stage.residual(features, embedding)
    if stage.transformer is not None:
        features = stage.transformer(features, text)
    if stage.upsampler is not None:
        features = stage.upsampler(interpolate(features, scale_factor=2.0, mode="nearest"))
    return features


def _run_halving(halving: Any, features: Any, _embedding: Any, _text: Any) -> Any:
    return halving.conv(features)


def _run_residual(block: Any, features: Any, embedding: Any) -> Any:
    from torch.nn.functional import silu

    hidden = block.conv_in(silu(block.norm_in(features))) + block.time(embedding)[:, :, None, None]
    return block.shortcut(features) + block.conv_out(silu(block.norm_out(hidden)))


def _run_transformer(transformer: Any, features: Any, text: Any) -> Any:
    tokens = transformer.proj_in(transformer.norm(features).flatten(2).transpose(1, 2))
    for block in transformer.blocks:
        tokens = block(tokens, text)
    return features + transformer.proj_out(tokens).transpose(1, 2).unflatten(2, features.shape[2:])


def _transformer_block(config: Mapping[str, Any], width: int) -> Any:
    from torch import nn

    heads = config.get("head_count") or width // config["head_dim"]
    return module_of(
        _run_transformer_block, norm_own=nn.LayerNorm(width), own=_attention(width, width, heads),
        norm_text=nn.LayerNorm(width), text=_attention(width, config["cross_attention_dim"], heads),
        norm_ffn=nn.LayerNorm(width), ffn_in=nn.Linear(width, 8 * width), ffn_out=nn.Linear(4 * width, width),
    )  # fmt: skip


def _run_transformer_block(block: Any, tokens: Any, text: Any) -> Any:
    from torch.nn.functional import gelu

    hidden = block.norm_own(tokens)
    tokens = tokens + block.own(hidden, hidden)
    tokens = tokens + block.text(block.norm_text(tokens), text)
    hidden, gate = block.ffn_in(block.norm_ffn(tokens)).chunk(2, dim=-1)
    return tokens + block.ffn_out(hidden * gelu(gate))


def _attention(width: int, width_of_keys: int, heads: int) -> Any:
    from torch import nn

    return module_of(
        partial(_run_attention, heads=heads), to_q=nn.Linear(width, width, bias=False),
        to_k=nn.Linear(width_of_keys, width, bias=False), to_v=nn.Linear(width_of_keys, width, bias=False),
        to_out=nn.Linear(width, width),
    )  # fmt: skip


def _run_attention(attention: Any, tokens: Any, source: Any, heads: int) -> Any:
    parts = attention.to_q(tokens), attention.to_k(source), attention.to_v(source)
    return attention.to_out(attend(*(part.unflatten(-1, (heads, -1)) for part in parts)))
