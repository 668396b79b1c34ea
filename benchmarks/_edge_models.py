"""Vision models of published edge figures, written from their papers, as random modules for captures."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks._edge_detectors import SCALES, SCALES_11, yolo, yolox_s
from benchmarks._edge_layers import conv_block


def built(name: str) -> tuple[Any, tuple[int, int]]:
    """Return the module called `name` in evaluation mode and the height and width of its image."""
    maker, size = MODELS[name]
    return maker().eval(), size


def _resnet50() -> Any:
    return _resnet((3, 4, 6, 3), 1, 64)


def _resnet(depths: tuple[int, ...], groups: int, width: int, *, head: bool = True) -> Any:
    """Return ResNet v1.5 or ResNeXt. Source: He et al. 2015, arXiv:1512.03385; Xie et al. 2016, arXiv:1611.05431."""
    from torch import nn

    class Bottleneck(nn.Module):
        def __init__(self, c1: int, planes: int, stride: int) -> None:
            super().__init__()
            inner, out = planes * width // 64 * groups if groups > 1 else planes, 4 * planes
            self.body = nn.Sequential(
                conv_block(c1, inner, act="relu"),
                conv_block(inner, inner, 3, stride, groups, "relu"),
                conv_block(inner, out, act=""),
            )
            self.shortcut = conv_block(c1, out, 1, stride, act="") if stride > 1 or c1 != out else nn.Identity()

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.body(x) + self.shortcut(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, channels, stages = conv_block(3, 64, 7, 2, act="relu"), 64, []
            for stage, depth in enumerate(depths):
                blocks = []
                for block in range(depth):
                    planes = 64 * 2**stage
                    blocks.append(Bottleneck(channels, planes, 2 if stage and not block else 1))
                    channels = 4 * planes
                stages.append(nn.Sequential(*blocks))
            self.stages, self.head = nn.ModuleList(stages), nn.Linear(channels, 1000) if head else None

        def forward(self, x: Any) -> Any:
            x, features = nn.functional.max_pool2d(self.stem(x), 3, 2, 1), []
            for stage in self.stages:
                x = stage(x)
                features.append(x)
            return features if self.head is None else self.head(x.mean((2, 3)))

    return Net()


def _retinanet() -> Any:
    """Return RetinaNet of MLPerf (ResNeXt-50 32x4d, 264 classes). Source: mlcommons/inference, vision/retinanet."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = _resnet((3, 4, 6, 3), 32, 4, head=False)
            self.lateral = nn.ModuleList(nn.Conv2d(c, 256, 1) for c in (512, 1024, 2048))
            self.smooth = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in range(3))
            self.p6, self.p7 = nn.Conv2d(2048, 256, 3, 2, 1), nn.Conv2d(256, 256, 3, 2, 1)
            self.heads = nn.ModuleList(
                nn.Sequential(
                    *(layer for _ in range(4) for layer in (nn.Conv2d(256, 256, 3, padding=1), nn.ReLU())),
                    nn.Conv2d(256, out, 3, padding=1),
                )
                for out in (9 * 264, 36)
            )

        def forward(self, x: Any) -> Any:
            c3, c4, c5 = self.body(x)[1:]
            tops = [conv(c) for conv, c in zip(self.lateral, (c3, c4, c5), strict=True)]
            for low in (1, 0):
                tops[low] = tops[low] + nn.functional.interpolate(tops[low + 1], size=tops[low].shape[-2:])
            levels = [conv(top) for conv, top in zip(self.smooth, tops, strict=True)]
            levels.append(self.p6(c5))
            levels.append(self.p7(torch.relu(levels[-1])))
            return [head(level) for level in levels for head in self.heads]

    return Net()


def _ssd(features: Callable[[], Any], classes: int, kernel: int, strides: tuple[int, ...] = (1,) * 6) -> Any:
    """Return a detector of single shots: a trunk, extra layers, and heads for boxes and classes."""
    from torch import nn

    trunk, channels, boxes = features()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = trunk
            self.heads = nn.ModuleList(
                nn.ModuleList(nn.Conv2d(c, out * n, kernel, stride, kernel // 2) for out in (4, classes))
                for c, n, stride in zip(channels, boxes, strides, strict=True)
            )

        def forward(self, x: Any) -> Any:
            levels = []
            for part, is_level in self.trunk:
                x = part(x)
                if is_level:
                    levels.append(x)
            return [head(level) for level, pair in zip(levels, self.heads, strict=True) for head in pair]

    net = Net()
    net.parts = nn.ModuleList([part for part, _ in trunk])
    return net


def _ssd_mobilenet() -> Any:
    """Return SSD MobileNet v1 at 300 x 300. Source: Howard et al. 2017, arXiv:1704.04861, and its detection zoo."""
    from torch import nn

    def features() -> Any:
        trunk, channels = [(conv_block(3, 32, 3, 2, act="relu6"), False)], 32
        plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
        for place, (out, stride) in enumerate(plan):
            block = nn.Sequential(
                conv_block(channels, channels, 3, stride, channels, "relu6"), conv_block(channels, out, act="relu6")
            )
            trunk.append((block, place in (10, 12)))
            channels = out
        for inner, out in ((256, 512), (128, 256), (128, 256), (64, 128)):
            trunk.append(
                (
                    nn.Sequential(conv_block(channels, inner, act="relu6"), conv_block(inner, out, 3, 2, act="relu6")),
                    True,
                )
            )
            channels = out
        return trunk, [512, 1024, 512, 256, 256, 128], [3, 6, 6, 6, 6, 6]

    return _ssd(features, 91, 1)


def _ssd_resnet34() -> Any:
    """Return SSD ResNet-34 at 1200 x 1200. Source: mlcommons/inference, vision/classification_and_detection."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, c1: int, c2: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(conv_block(c1, c2, 3, stride, act="relu"), conv_block(c2, c2, 3, act=""))
            self.shortcut = conv_block(c1, c2, 1, stride, act="") if stride > 1 or c1 != c2 else nn.Identity()

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.body(x) + self.shortcut(x))

    def features() -> Any:
        stem = nn.Sequential(conv_block(3, 64, 7, 2, act="relu"), nn.MaxPool2d(3, 2, 1))
        blocks, channels = [], 64
        for out, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 1)):
            for block in range(count):
                blocks.append(Block(channels, out, 1 if block else stride))
                channels = out
        trunk = [(nn.Sequential(stem, *blocks), True)]
        for inner, out, stride in ((256, 512, 2), (256, 512, 2), (128, 256, 2), (128, 256, 2), (128, 256, 1)):
            trunk.append(
                (
                    nn.Sequential(
                        conv_block(channels, inner, act="relu"), conv_block(inner, out, 3, stride, act="relu")
                    ),
                    True,
                )
            )
            channels = out
        return trunk, [256, 512, 512, 256, 256, 256], [4, 6, 6, 6, 4, 4]

    return _ssd(features, 81, 3, (3, 3, 2, 2, 2, 2))


MODELS: Mapping[str, tuple[Callable[[], Any], tuple[int, int]]] = {
    "resnet50": (_resnet50, (224, 224)),
    "retinanet": (_retinanet, (800, 800)),
    "ssd-mobilenet": (_ssd_mobilenet, (300, 300)),
    "ssd-resnet34": (_ssd_resnet34, (1200, 1200)),
    "yolox-s-leaky": (yolox_s, (640, 640)),
    "yolov5nu": (lambda: yolo("n", 5), (640, 640)),
    **{f"yolov8{size}": (lambda size=size: yolo(size, 8), (640, 640)) for size in SCALES},
    **{f"yolo11{size}": (lambda size=size: yolo(size, 11), (640, 640)) for size in SCALES_11},
}
"""Maker and image size by the name in the published rows."""
