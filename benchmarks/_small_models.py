"""Models small enough to run for real, of many kinds: what fidelity and attribution are measured on."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

HIDDEN, HEADS, TOKENS, BATCH = 32, 4, 16, 2


class Small(NamedTuple):
    """One model."""

    name: str
    build: Callable[[], Any]
    """Returns the module."""
    inputs: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
    """Returns positional and keyword inputs."""


def small_models() -> list[Small]:
    """Return all models: own ones of many kinds, and architectures of transformers with few, narrow layers."""
    return [*own_models(), *architectures()]


def own_models() -> list[Small]:
    """Return models written here."""
    image, text = (BATCH, 3, 32, 32), (BATCH, TOKENS, HIDDEN)
    shapes: list[tuple[Callable[[], Any], tuple[int, ...]]] = [
        (_mlp, text), (Residual, image), (Depthwise, image), (UNet, image), (Detector, image), (GAN, (BATCH, HIDDEN)),
        (Recurrent, text), (Encoder, text), (Experts, text), (StateSpace, text), (Checkpointed, text),
        (CustomGradient, text), (VariationalAutoencoder, image), (Volume, (1, 2, 8, 16, 16)), (Fourier, (BATCH, 2, 64)),
        (Metric, (8, HIDDEN)),
    ]  # fmt: skip
    return [
        Small(build.__name__.strip("_").lower(), build, lambda shape=shape: ((torch.rand(shape),), {}))
        for build, shape in shapes
    ]


def architectures() -> list[Small]:
    """Return architectures of transformers."""
    ids, image = {"input_ids": (BATCH, TOKENS)}, {"pixel_values": (BATCH, 3, 32, 32)}
    pair = {**ids, "decoder_input_ids": (BATCH, TOKENS)}
    wide = {"num_hidden_layers": 2, "hidden_size": HIDDEN, "intermediate_size": 64, "num_attention_heads": HEADS}
    gated = {**wide, "vocab_size": 64, "num_key_value_heads": 2, "head_dim": 8}
    vision = {**wide, "image_size": 32, "patch_size": 8}
    experts = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    rows: list[tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]] = [
        ("bert", wide, ids), ("roberta", wide, ids), ("distilbert", {"n_layers": 2, "dim": 32, "n_heads": 4}, ids),
        ("gpt2", {"n_layer": 2, "n_embd": HIDDEN, "n_head": HEADS, "vocab_size": 64}, ids),
        ("llama", gated, ids), ("qwen2", gated, ids), ("gemma2", gated, ids),
        ("phi3", {**gated, "pad_token_id": 0}, ids),
        ("gpt_neox", {**wide, "vocab_size": 64}, ids), ("mixtral", {**gated, **experts, "dtype": "bfloat16"}, ids),
        ("t5", {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4, "d_kv": 8, "vocab_size": 64}, pair),
        ("bart", {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64,
                  "decoder_ffn_dim": 64, "encoder_attention_heads": 4, "decoder_attention_heads": 4}, pair),
        ("vit", vision, image), ("deit", vision, image), ("dinov2", vision, image),
        ("resnet", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}, image),
        ("convnext", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, image),
        ("mamba", {"num_hidden_layers": 2, "hidden_size": 32, "state_size": 4, "vocab_size": 64}, ids),
    ]  # fmt: skip
    return [_architecture(*row) for row in rows]


def _architecture(kind: str, settings: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> Small:
    def build() -> Any:
        from transformers import AutoConfig, AutoModel

        dtype = settings.get("dtype", "float32")
        config = AutoConfig.for_model(kind, **{key: value for key, value in settings.items() if key != "dtype"})
        config.use_cache = False
        return AutoModel.from_config(config, dtype=getattr(torch, dtype))

    def inputs() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {name: _tensor(name, shape) for name, shape in shapes.items()}

    return Small(kind, build, inputs)


def _tensor(name: str, shape: tuple[int, ...]) -> Any:
    return torch.ones(shape, dtype=torch.int64) if name.endswith("ids") else torch.rand(shape)


def _mlp() -> nn.Module:
    layers = (nn.Linear(HIDDEN, 64), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(64), nn.Linear(64, HIDDEN))
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """Convolutions with batch norm and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16)
        self.body, self.head = nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        """Return class scores."""
        x = functional.max_pool2d(torch.relu_(self.norm(self.stem(x))), 2)
        return self.head((x + self.body(x)).mean((2, 3)))


class Depthwise(nn.Sequential):
    """Depthwise separable convolutions."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 1), nn.Hardswish(), nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.GroupNorm(2, 8),
            nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5), nn.LogSoftmax(-1),
        )  # fmt: skip


class UNet(nn.Module):
    """One level down and up with a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(11, 3, 3, padding=1)

    def forward(self, x: Any) -> Any:
        """Return an image of the input's size."""
        deep = functional.interpolate(functional.silu(self.down(x)), scale_factor=0.5, mode="bilinear")
        wide = self.up(functional.interpolate(deep, scale_factor=2.0, mode="nearest"))
        return self.out(torch.cat([x, wide], 1))


class Detector(nn.Module):
    """Scores and boxes on a grid; the best are gathered."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.Conv2d(8, 5, 1)

    def forward(self, x: Any) -> dict[str, Any]:
        """Return the boxes of the ten best cells with their scores."""
        cells = self.head(torch.relu(self.body(x))).flatten(2).transpose(1, 2)
        scores, best = cells[..., 0].sigmoid().topk(10)
        boxes = cells[..., 1:].gather(1, best[..., None].expand(-1, -1, 4))
        return {"scores": scores, "boxes": boxes.clamp(0, 1)}


class GAN(nn.Module):
    """A generator and a judge of its images."""

    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Sequential(nn.ConvTranspose2d(HIDDEN, 8, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 3, 1))
        self.judge = nn.Sequential(nn.Conv2d(3, 4, 4), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(4, 1))

    def forward(self, x: Any) -> Any:
        """Return the generator's loss."""
        judged = self.judge(torch.tanh(self.make(x[..., None, None])))
        return functional.binary_cross_entropy_with_logits(judged, torch.ones_like(judged))


class Recurrent(nn.Module):
    """Two recurrent layers and a plain cell."""

    def __init__(self) -> None:
        super().__init__()
        self.long = nn.LSTM(HIDDEN, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.gated, self.cell = nn.GRU(HIDDEN, 16, batch_first=True), nn.RNNCell(16, 8)

    def forward(self, x: Any) -> Any:
        """Return the last state of the cell."""
        x = self.gated(self.long(x)[0])[0]
        return self.cell(x[:, -1])


class Encoder(nn.Module):
    """A transformer encoder and causal attention over it."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(HIDDEN, HEADS, 64, batch_first=True, norm_first=True)
        self.layers, self.norm = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.RMSNorm(HIDDEN)

    def forward(self, x: Any) -> Any:
        """Return mixed positions."""
        heads = self.norm(self.layers(x)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        return functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


class Experts(nn.Module):
    """A mixture of experts in bf16 that computes every expert and weighs the best."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(HIDDEN, 4, dtype=torch.bfloat16)
        self.weights = nn.Parameter(torch.randn(4, HIDDEN, HIDDEN, dtype=torch.bfloat16))

    def forward(self, x: Any) -> Any:
        """Return the weighed sum of the two best experts."""
        x = x.to(torch.bfloat16).flatten(0, 1)
        shares, best = self.router(x).softmax(-1).topk(2)
        every = torch.einsum("th,ehd->ted", x, self.weights)
        return (every.gather(1, best[..., None].expand(-1, -1, HIDDEN)) * shares[..., None]).sum(1)


class StateSpace(nn.Module):
    """A diagonal recurrence in a Python loop."""

    def __init__(self) -> None:
        super().__init__()
        self.decay, self.into = nn.Parameter(torch.rand(HIDDEN)), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Any) -> Any:
        """Return the states."""
        state, states, x = torch.zeros_like(x[:, 0]), [], self.into(x)
        for index in range(x.shape[1]):
            state = torch.exp(-functional.softplus(self.decay)) * state + x[:, index]
            states.append(state)
        return torch.stack(states, 1)


class Checkpointed(nn.Module):
    """A block whose activations are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = _mlp(), nn.Linear(HIDDEN, 4)

    def forward(self, x: Any) -> Any:
        """Return scores."""
        return self.head(torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False))


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """Return the squares."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Return the gradient."""
        return 2 * ctx.saved_tensors[0] * grad


class CustomGradient(nn.Module):
    """A function with a gradient of its own between layers with tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.second.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        """Return the second layer's output."""
        return self.second(_Square.apply(self.first(x)))


class VariationalAutoencoder(nn.Module):
    """Mean and variance, a random draw, and the two losses."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.image = nn.Linear(3 * 32 * 32, 16), nn.Linear(8, 3 * 32 * 32)

    def forward(self, x: Any) -> Any:
        """Return reconstruction loss and divergence."""
        mean, log_variance = self.code(x.flatten(1)).chunk(2, 1)
        drawn = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum()
        return functional.mse_loss(self.image(drawn), x.flatten(1)) + divergence


class Volume(nn.Sequential):
    """Convolutions in three dimensions."""

    def __init__(self) -> None:
        super().__init__(nn.Conv3d(2, 4, 3), nn.InstanceNorm3d(4, affine=True), nn.ELU(), nn.AvgPool3d(2))


class Fourier(nn.Module):
    """Learned weights on frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.rand(2, 2, 33))

    def forward(self, x: Any) -> Any:
        """Return the filtered signal."""
        return torch.fft.irfft(torch.einsum("bif,iof->bof", torch.fft.rfft(x), self.weights.to(torch.complex64)))


class Metric(nn.Module):
    """Distances between normalised embeddings, and a contrastive loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.scale = nn.Linear(HIDDEN, 16), nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Any) -> Any:
        """Return the loss."""
        y = functional.normalize(self.embed(x), dim=-1)
        return functional.cross_entropy(self.scale.exp() * y @ y.T, torch.arange(x.shape[0]))
