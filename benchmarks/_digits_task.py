"""Digits of scikit-learn (1,297 to learn from, 500 to answer): a small convolutional network and a transformer."""

from typing import Any

import numpy as np

LEARNT_COUNT = 1297
BATCH = 128


def convolutions(seed: int) -> dict[str, Any]:
    """Return three convolutions with batch normalisation, trained for 15 epochs."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    layers: list[Any] = []
    channels = 1
    for wide in (16, 32, 32):
        layers += [nn.Conv2d(channels, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
        channels = wide
    model = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(channels * 16, 10))
    return _task(model, seed, 15)


def transformer(seed: int) -> dict[str, Any]:
    """Return two blocks of explicit attention over the eight rows of a digit, trained for 40 epochs."""
    import torch

    torch.manual_seed(seed)
    return _task(_transformer(), seed, 40)


def _transformer() -> Any:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x: Any) -> Any:
            rows, length, width = x.shape
            q, k, v = self.qkv(self.before(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            scores = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
            x = x + self.out((scores @ v).transpose(1, 2).reshape(rows, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.between(x))))

    class Transformer(nn.Module):
        def __init__(self, width: int = 48) -> None:
            super().__init__()
            self.embed, self.place = nn.Linear(8, width), nn.Parameter(torch.zeros(8, width))
            self.blocks, self.head = nn.Sequential(Block(width, 4), Block(width, 4)), nn.Linear(width, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.blocks(self.embed(x.squeeze(1)) + self.place).mean(1))

    return Transformer()


def _task(model: Any, seed: int, epochs: int) -> dict[str, Any]:
    import torch
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.tensor(digits.images[order] / 16, dtype=torch.float32)[:, None]
    images, model = images.to(memory_format=torch.channels_last), model.to(memory_format=torch.channels_last)
    labels = torch.tensor(digits.target[order])
    learnt, asked = (images[:LEARNT_COUNT], labels[:LEARNT_COUNT]), (images[LEARNT_COUNT:], labels[LEARNT_COUNT:])

    def fit(model: Any, epoch_count: int, rate: float = 1.5e-3) -> None:
        draw = torch.Generator().manual_seed(seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
        model.train()
        for _ in range(epoch_count):
            for part in torch.randperm(LEARNT_COUNT, generator=draw).split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(learnt[0][part]), learnt[1][part]).backward()
                optimizer.step()

    @torch.no_grad()
    def accuracy(model: Any) -> float:
        return float((model.eval()(asked[0]).argmax(1) == asked[1]).float().mean())

    @torch.no_grad()
    def calibrate(model: Any) -> None:
        model.eval()(learnt[0][:512])

    fit(model, epochs, 4e-3)
    return {"model": model, "fit": fit, "accuracy": accuracy, "calibrate": calibrate}
