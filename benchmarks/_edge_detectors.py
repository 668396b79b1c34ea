"""YOLO models of published edge figures, written from their papers, as random modules for captures."""

from typing import Any

from benchmarks._edge_layers import conv_block

SCALES = {"n": (0.34, 0.25, 1024), "s": (0.34, 0.50, 1024), "m": (0.67, 0.75, 768), "l": (1.0, 1.0, 512),
          "x": (1.0, 1.25, 512)}  # fmt: skip
"""Depth, width and most channels of YOLOv8. Source: ultralytics/cfg/models/v8/yolov8.yaml."""
SCALES_11 = {"n": (0.5, 0.25, 1024), "s": (0.5, 0.50, 1024), "m": (0.5, 1.0, 512), "l": (1.0, 1.0, 512),
             "x": (1.0, 1.5, 512)}  # fmt: skip
"""The same of YOLO11. Source: ultralytics/cfg/models/11/yolo11.yaml."""


def yolo(size: str, version: int, act: str = "silu") -> Any:
    """Return YOLOv8, YOLO11 or YOLOv5u. Source: ultralytics/cfg/models, nn/modules/block.py (structure alone)."""
    import torch
    from torch import nn

    if version == 11:
        depth, width, most = SCALES_11[size]
    else:
        depth, width, most = SCALES[size] if version == 8 else (0.33, 0.25, 1024)

    def ch(count: int) -> int:
        return int(-(-min(count, most) * width // 8) * 8)

    def reps(count: int) -> int:
        return max(round(count * depth), 1)

    class Pair(nn.Module):
        def __init__(self, c1: int, c2: int, add: bool, e: float, k: tuple[int, int] = (3, 3)) -> None:
            super().__init__()
            self.body, self.add = (
                nn.Sequential(conv_block(c1, int(c2 * e), k[0], act=act), conv_block(int(c2 * e), c2, k[1], act=act)),
                add,
            )

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.add else self.body(x)

    class C3(nn.Module):
        def __init__(self, c1: int, c2: int, n: int, add: bool, k: tuple[int, int] = (1, 3)) -> None:
            super().__init__()
            inner = c2 // 2
            self.a, self.b, self.c = (
                conv_block(c1, inner, act=act),
                conv_block(c1, inner, act=act),
                conv_block(2 * inner, c2, act=act),
            )
            self.m = nn.Sequential(*(Pair(inner, inner, add, 1.0, k) for _ in range(n)))

        def forward(self, x: Any) -> Any:
            return self.c(torch.cat((self.m(self.a(x)), self.b(x)), 1))

    class C2f(nn.Module):
        def __init__(self, c1: int, c2: int, n: int, add: bool, e: float = 0.5, c3k: bool | None = None) -> None:
            super().__init__()
            self.c = int(c2 * e)
            self.a, self.b = conv_block(c1, 2 * self.c, act=act), conv_block((2 + n) * self.c, c2, act=act)
            inner = {None: lambda: Pair(self.c, self.c, add, 1.0), False: lambda: Pair(self.c, self.c, add, 0.5),
                     True: lambda: C3(self.c, self.c, 2, add, (3, 3))}[c3k]  # fmt: skip
            self.m = nn.ModuleList(inner() for _ in range(n))

        def forward(self, x: Any) -> Any:
            parts = list(self.a(x).chunk(2, 1))
            for block in self.m:
                parts.append(block(parts[-1]))
            return self.b(torch.cat(parts, 1))

    class Pyramid(nn.Module):
        def __init__(self, c1: int, c2: int) -> None:
            super().__init__()
            self.a, self.b = conv_block(c1, c1 // 2, act=act), conv_block(2 * c1, c2, act=act)

        def forward(self, x: Any) -> Any:
            parts = [self.a(x)]
            for _ in range(3):
                parts.append(nn.functional.max_pool2d(parts[-1], 5, 1, 2))
            return self.b(torch.cat(parts, 1))

    class Attention(nn.Module):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.heads, self.key = dim // 64, 32
            self.qkv, self.proj = conv_block(dim, dim + 2 * self.heads * self.key, act=""), conv_block(dim, dim, act="")
            self.pe = conv_block(dim, dim, 3, 1, dim, "")

        def forward(self, x: Any) -> Any:
            b, c, h, w = x.shape
            q, k, v = self.qkv(x).view(b, self.heads, 2 * self.key + 64, h * w).split([self.key, self.key, 64], 2)
            weights = ((q.transpose(-2, -1) @ k) * self.key**-0.5).softmax(-1)
            return self.proj((v @ weights.transpose(-2, -1)).view(b, c, h, w) + self.pe(v.reshape(b, c, h, w)))

    class C2PSA(nn.Module):
        def __init__(self, c1: int, n: int) -> None:
            super().__init__()
            self.c = c1 // 2
            self.a, self.b = conv_block(c1, c1, act=act), conv_block(c1, c1, act=act)
            self.attn = nn.ModuleList(Attention(self.c) for _ in range(n))
            self.ffn = nn.ModuleList(
                nn.Sequential(conv_block(self.c, 2 * self.c, act=act), conv_block(2 * self.c, self.c, act=""))
                for _ in range(n)
            )

        def forward(self, x: Any) -> Any:
            a, b = self.a(x).split((self.c, self.c), 1)
            for attn, ffn in zip(self.attn, self.ffn, strict=True):
                b = b + attn(b)
                b = b + ffn(b)
            return self.b(torch.cat((a, b), 1))

    def block(c1: int, c2: int, n: int, add: bool, e: float = 0.5, c3k: bool = False) -> Any:
        if version == 5:
            return C3(c1, c2, n, add)
        if version == 8:
            return C2f(c1, c2, n, add)
        return C2f(c1, c2, n, True, e, c3k or size in "mlx")

    class Head(nn.Module):
        def __init__(self, channels: tuple[int, ...]) -> None:
            super().__init__()
            c2, c3 = max(16, channels[0] // 4, 64), max(channels[0], 80)
            self.boxes = nn.ModuleList(
                nn.Sequential(conv_block(c, c2, 3, act=act), conv_block(c2, c2, 3, act=act), nn.Conv2d(c2, 64, 1))
                for c in channels
            )
            self.classes = nn.ModuleList(
                nn.Sequential(conv_block(c, c, 3, 1, c, act), conv_block(c, c3, act=act),
                              conv_block(c3, c3, 3, 1, c3, act), conv_block(c3, c3, act=act),
                              nn.Conv2d(c3, 80, 1)) if version == 11
                else nn.Sequential(conv_block(c, c3, 3, act=act), conv_block(c3, c3, 3, act=act), nn.Conv2d(c3, 80, 1))
                for c in channels
            )  # fmt: skip

        def forward(self, levels: Any) -> Any:
            both = [
                torch.cat((b(x), c(x)), 1).flatten(2) for x, b, c in zip(levels, self.boxes, self.classes, strict=True)
            ]
            joined = torch.cat(both, 2)
            boxes, classes = joined.split((64, 80), 1)
            weights = boxes.view(boxes.shape[0], 4, 16, -1).transpose(1, 2).softmax(1)
            return (weights * torch.arange(16.0).view(1, 16, 1, 1)).sum(1), classes.sigmoid()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            deep = (3, 6, 9, 3) if version == 5 else (3, 6, 6, 3) if version == 8 else (2, 2, 2, 2)
            neck = 3 if version != 11 else 2
            c = [ch(n) for n in (64, 128, 256, 512, 1024)]
            outs = [c[1], c[2], c[3], c[4]] if version != 11 else [ch(256), ch(512), ch(512), ch(1024)]
            wide = [0.25, 0.25, 0.5, 0.5]
            self.stem = nn.Sequential(
                conv_block(3, c[0], 6 if version == 5 else 3, 2, act=act, p=2 if version == 5 else 1)
            )
            channels, stages = c[0], []
            for stage in range(4):
                down = conv_block(channels, c[stage + 1], 3, 2, act=act)
                body = block(c[stage + 1], outs[stage], reps(deep[stage]), True, wide[stage], stage > 1)
                stages.append(nn.Sequential(down, body))
                channels = outs[stage]
            self.stages, self.pool = nn.ModuleList(stages), Pyramid(channels, channels)
            self.psa = C2PSA(channels, reps(2)) if version == 11 else nn.Identity()
            p3, p4, p5 = ch(256), ch(512), ch(1024)
            n = reps(neck)
            self.is_old = version == 5
            if self.is_old:
                self.r5, self.r4 = conv_block(p5, p4, act=act), conv_block(p4, p3, act=act)
            top, mid = (p4, p3) if self.is_old else (channels, p4)
            self.up4, self.up3 = block(top + outs[2], p4, n, False), block(mid + outs[1], p3, n, False)
            self.d3, self.d4 = conv_block(p3, p3, 3, 2, act=act), conv_block(p4, p4, 3, 2, act=act)
            self.n4 = block(p3 + (p3 if self.is_old else p4), p4, n, False)
            self.n5 = block(p4 + (p4 if self.is_old else channels), p5, n, False, c3k=True)
            self.head = Head((p3, p4, p5))

        def forward(self, x: Any) -> Any:
            levels = []
            x = self.stem(x)
            for stage in self.stages:
                x = stage(x)
                levels.append(x)
            top = self.psa(self.pool(levels[3]))
            top = self.r5(top) if self.is_old else top
            mid = self.up4(torch.cat((nn.functional.interpolate(top, scale_factor=2), levels[2]), 1))
            mid = self.r4(mid) if self.is_old else mid
            p3 = self.up3(torch.cat((nn.functional.interpolate(mid, scale_factor=2), levels[1]), 1))
            p4 = self.n4(torch.cat((self.d3(p3), mid), 1))
            p5 = self.n5(torch.cat((self.d4(p4), top), 1))
            return self.head((p3, p4, p5))

    return Net()


def yolox_s() -> Any:
    """Return YOLOX-S. Source: Ge et al. 2021, arXiv:2107.08430; Megvii-BaseDetection/YOLOX, yolox/models."""
    import torch
    from torch import nn

    act = "leaky"

    class Csp(nn.Module):
        def __init__(self, c1: int, c2: int, n: int, add: bool = True) -> None:
            super().__init__()
            inner = c2 // 2
            self.a, self.b, self.c = (
                conv_block(c1, inner, act=act),
                conv_block(c1, inner, act=act),
                conv_block(2 * inner, c2, act=act),
            )
            self.m = nn.ModuleList(
                nn.Sequential(conv_block(inner, inner, act=act), conv_block(inner, inner, 3, act=act)) for _ in range(n)
            )
            self.add = add

        def forward(self, x: Any) -> Any:
            y = self.a(x)
            for block in self.m:
                y = y + block(y) if self.add else block(y)
            return self.c(torch.cat((y, self.b(x)), 1))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = conv_block(12, 32, 3, act=act)
            self.s2 = nn.Sequential(conv_block(32, 64, 3, 2, act=act), Csp(64, 64, 1))
            self.s3 = nn.Sequential(conv_block(64, 128, 3, 2, act=act), Csp(128, 128, 3))
            self.s4 = nn.Sequential(conv_block(128, 256, 3, 2, act=act), Csp(256, 256, 3))
            self.s5, self.spp, self.c5 = (
                conv_block(256, 512, 3, 2, act=act),
                conv_block(512, 256, act=act),
                conv_block(1024, 512, act=act),
            )
            self.e5 = Csp(512, 512, 1, False)
            self.l0, self.p4, self.l1 = (
                conv_block(512, 256, act=act),
                Csp(512, 256, 1, False),
                conv_block(256, 128, act=act),
            )
            self.p3, self.d3 = Csp(256, 128, 1, False), conv_block(128, 128, 3, 2, act=act)
            self.n3, self.d4, self.n4 = (
                Csp(256, 256, 1, False),
                conv_block(256, 256, 3, 2, act=act),
                Csp(512, 512, 1, False),
            )
            self.stems = nn.ModuleList(conv_block(c, 128, act=act) for c in (128, 256, 512))
            self.towers = nn.ModuleList(
                nn.Sequential(conv_block(128, 128, 3, act=act), conv_block(128, 128, 3, act=act)) for _ in range(6)
            )
            self.ends = nn.ModuleList(nn.Conv2d(128, out, 1) for out in (80, 4, 1) * 3)

        def forward(self, x: Any) -> Any:
            x = torch.cat((x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]), 1)
            c3 = self.s3(self.s2(self.stem(x)))
            c4 = self.s4(c3)
            y = self.spp(self.s5(c4))
            c5 = self.e5(self.c5(torch.cat([y, *(nn.functional.max_pool2d(y, k, 1, k // 2) for k in (5, 9, 13))], 1)))
            f0 = self.l0(c5)
            f1 = self.l1(self.p4(torch.cat((nn.functional.interpolate(f0, scale_factor=2), c4), 1)))
            p3 = self.p3(torch.cat((nn.functional.interpolate(f1, scale_factor=2), c3), 1))
            p4 = self.n3(torch.cat((self.d3(p3), f1), 1))
            p5 = self.n4(torch.cat((self.d4(p4), f0), 1))
            outs = []
            for place, level in enumerate((p3, p4, p5)):
                stem = self.stems[place](level)
                classes, boxes = self.towers[2 * place](stem), self.towers[2 * place + 1](stem)
                ends = self.ends[3 * place : 3 * place + 3]
                outs.append(
                    torch.cat((ends[1](boxes), ends[2](boxes).sigmoid(), ends[0](classes).sigmoid()), 1).flatten(2)
                )
            return torch.cat(outs, 2)

    return Net()
