"""Vision models of the training benchmark in PyTorch: LeNet-5, ResNet-18 for 32×32 images, MobileNetV3-Large."""

from collections.abc import Callable
from functools import partial
from typing import Any

from nearpeak.errors import SpecError

_MOBILE = (
    (3, 16, 16, False, "relu", 1), (3, 64, 24, False, "relu", 2), (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2), (5, 120, 40, True, "relu", 1), (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "hswish", 2), (3, 200, 80, False, "hswish", 1), (3, 184, 80, False, "hswish", 1),
    (3, 184, 80, False, "hswish", 1), (3, 480, 112, True, "hswish", 1), (3, 672, 112, True, "hswish", 1),
    (5, 672, 160, True, "hswish", 2), (5, 960, 160, True, "hswish", 1), (5, 960, 160, True, "hswish", 1),
)  # fmt: skip
"""Blocks: kernel, expanded channels, channels out, squeeze-and-excite, activation, stride. Howard et al. 2019,
arXiv:1905.02244, table 1."""


def build_model(name: str, classes: int, *, norm: str = "batch", seed: int = 0) -> Any:
    """Return a model with random weights as a torch module.

    Shapes: lenet5 takes [batch, 1, 28, 28], resnet18 [batch, 3, 32, 32], mobilenetv3 [batch, 3, 224, 224]; all return
    [batch, classes].

    Args:
        norm: of resnet18: `batch`, or `group` normalisation with 2 groups.

    Raises:
        SpecError: there is no such model.
    """
    import torch

    builders: dict[str, Callable[[], Any]] = {
        "lenet5": partial(_lenet5, torch.nn, classes), "resnet18": partial(_resnet18, torch.nn, classes, norm),
        "mobilenetv3": partial(_mobilenetv3, torch.nn, classes),
    }  # fmt: skip
    if name not in builders:
        raise SpecError(f"model {name!r}: is not one of {', '.join(builders)}")
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    model = builders[name]()
    torch.set_rng_state(state)
    return model


def _lenet5(nn: Any, classes: int) -> Any:
    """Return LeNet-5 with dense connections between its feature maps (LeCun et al. 1998)."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, classes),
    )  # fmt: skip


def _resnet18(nn: Any, classes: int, norm: str) -> Any:
    """Return ResNet-18 with a 3×3 stem and no first pooling, as used for 32×32 images (He et al. 2016)."""

    def normalised(inputs: int, outputs: int, kernel: int, stride: int) -> list[Any]:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        return [convolution, nn.GroupNorm(2, outputs) if norm == "group" else nn.BatchNorm2d(outputs)]

    layers = [*normalised(3, 64, 3, 1), nn.ReLU()]
    inputs = 64
    for outputs, first_stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first_stride, 1):
            body = [*normalised(inputs, outputs, 3, stride), nn.ReLU(), *normalised(outputs, outputs, 3, 1)]
            is_plain = stride == 1 and inputs == outputs
            shortcut = nn.Identity() if is_plain else nn.Sequential(*normalised(inputs, outputs, 1, stride))
            layers += [_sum(nn, nn.Sequential(*body), shortcut), nn.ReLU()]
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def _mobilenetv3(nn: Any, classes: int) -> Any:
    """Return MobileNetV3-Large (Howard et al. 2019)."""
    activations = {"relu": nn.ReLU, "hswish": nn.Hardswish}

    def normalised(inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1) -> list[Any]:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        return [convolution, nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)]

    layers, inputs = [*normalised(3, 16, 3, 2), nn.Hardswish()], 16
    for kernel, wide, outputs, is_squeezed, activation, stride in _MOBILE:
        body: list[Any] = [] if wide == inputs else [*normalised(inputs, wide, 1, 1), activations[activation]()]
        body += [*normalised(wide, wide, kernel, stride, wide), activations[activation]()]
        body += [_squeeze(nn, wide)] if is_squeezed else []
        block = nn.Sequential(*body, *normalised(wide, outputs, 1, 1))
        layers.append(_sum(nn, block, nn.Identity()) if stride == 1 and inputs == outputs else block)
        inputs = outputs
    layers += [*normalised(160, 960, 1, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(960, 1280), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1280, classes))


def _sum(nn: Any, body: Any, shortcut: Any) -> Any:
    """Return the sum of two modules of one input."""

    class Residual(nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            self.body, self.shortcut = body, shortcut

        def forward(self, x: Any) -> Any:
            return self.body(x) + self.shortcut(x)

    return Residual()


def _squeeze(nn: Any, channels: int) -> Any:
    """Return squeeze-and-excite: channels scaled by a gate of their means."""
    narrow = max(8, (channels // 4 + 4) // 8 * 8)  # the multiple of 8 next to a quarter,
    narrow += 8 if narrow < 0.9 * channels / 4 else 0  # not more than a tenth below it
    gate = nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, narrow, 1), nn.ReLU(), nn.Conv2d(narrow, channels, 1),
        nn.Hardsigmoid(),
    )  # fmt: skip

    class SqueezeExcite(nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            self.gate = gate

        def forward(self, x: Any) -> Any:
            return x * self.gate(x)

    return SqueezeExcite()
