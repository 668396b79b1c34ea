"""The networks of level 3; each problem file carries this text."""

import math

import torch
import torch.nn.functional as F
from torch import nn

# --- networks ---


def block(into, out, kernel, stride=1, groups=1, act=nn.ReLU):
    return nn.Sequential(
        nn.Conv2d(into, out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(out), act()
    )


class PerceptronNet(nn.Sequential):
    def __init__(self, into, hidden, out):
        sizes = (into, *hidden)
        layers = [part for pair in zip(sizes, sizes[1:]) for part in (nn.Linear(*pair), nn.ReLU())]
        super().__init__(*layers, nn.Linear(sizes[-1], out))


class LeNetNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.a, self.b, self.c = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x)), 2, 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2, 2).view(-1, 400)
        return self.c(F.relu(self.b(F.relu(self.a(x)))))


class AlexNetNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        pool = nn.MaxPool2d(3, 2)
        self.body = nn.Sequential(
            nn.Conv2d(3, 96, 11, 4, 2), nn.ReLU(True), pool, nn.Conv2d(96, 256, 5, 1, 2), nn.ReLU(True), pool,
            nn.Conv2d(256, 384, 3, 1, 1), nn.ReLU(True), nn.Conv2d(384, 384, 3, 1, 1), nn.ReLU(True),
            nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU(True), pool, nn.Flatten(), nn.Linear(9216, 4096), nn.ReLU(),
            nn.Dropout(0.0), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(0.0), nn.Linear(4096, classes),
        )  # fmt: skip

    def forward(self, x):
        return self.body(x)


class InceptionNet(nn.Module):
    def __init__(self, into, one, three_in, three, five_in, five, pool):
        super().__init__()
        self.one = nn.Conv2d(into, one, 1)
        self.three = nn.Sequential(nn.Conv2d(into, three_in, 1), nn.Conv2d(three_in, three, 3, padding=1))
        self.five = nn.Sequential(nn.Conv2d(into, five_in, 1), nn.Conv2d(five_in, five, 5, padding=2))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(into, pool, 1))

    def forward(self, x):
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


class GoogLeNetNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        pool = nn.MaxPool2d(3, 2, padding=1)
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), pool, nn.Conv2d(64, 64, 1), nn.Conv2d(64, 192, 3, padding=1), pool,
            InceptionNet(192, 64, 96, 128, 16, 32, 32), InceptionNet(256, 128, 128, 192, 32, 96, 64), pool,
            InceptionNet(480, 192, 96, 208, 16, 48, 64), InceptionNet(512, 256, 160, 320, 32, 128, 128), pool,
            InceptionNet(832, 384, 192, 384, 48, 128, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4),
            nn.Linear(1024, classes),
        )  # fmt: skip

    def forward(self, x):
        return self.body(x)


class ResidualNet(nn.Module):
    def __init__(self, into, out, stride=1):
        super().__init__()
        self.body = nn.Sequential(block(into, out, 3, stride), nn.Conv2d(out, out, 3, 1, 1), nn.BatchNorm2d(out))
        self.side = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.body(x) + self.side(x))


class BasicNet(ResidualNet):
    growth = 1


class BottleneckNet(nn.Module):
    growth = 4

    def __init__(self, into, out, stride=1):
        super().__init__()
        self.body = nn.Sequential(
            block(into, out, 1), block(out, out, 3, stride), nn.Conv2d(out, 4 * out, 1), nn.BatchNorm2d(4 * out)
        )
        self.side = nn.Identity() if into == 4 * out else block(into, 4 * out, 1, stride, act=nn.Identity)

    def forward(self, x):
        out = self.body(x)
        out += self.side(x)
        return F.relu(out)


class ResNetNet(nn.Module):
    def __init__(self, part, counts):
        super().__init__()
        layers, into = [block(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
        for stage, count in enumerate(counts):
            for number in range(count):
                layers.append(part(into, 64 << stage, 2 if stage and not number else 1))
                into = (64 << stage) * part.growth
        self.body, self.last = nn.Sequential(*layers), nn.Linear(into, 1000)

    def forward(self, x):
        return self.last(torch.flatten(F.adaptive_avg_pool2d(self.body(x), 1), 1))


class VggNet(nn.Module):
    def __init__(self, counts):
        super().__init__()
        layers, into = [], 3
        for stage, count in enumerate(counts):
            out = min(64 << stage, 512)
            for _ in range(count):
                layers += [nn.Conv2d(into, out, 3, padding=1), nn.ReLU(inplace=True)]
                into = out
            layers.append(nn.MaxPool2d(2, 2))
        self.body = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(25088, 4096), nn.ReLU(True), nn.Dropout(0.0), nn.Linear(4096, 1000))

    def forward(self, x):
        return self.head(torch.flatten(self.body(x), 1))


class FireNet(nn.Module):
    def __init__(self, into, squeeze, one, three):
        super().__init__()
        self.squeeze = nn.Conv2d(into, squeeze, 1)
        self.one, self.three = nn.Conv2d(squeeze, one, 1), nn.Conv2d(squeeze, three, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)


class SqueezeNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.body = nn.Sequential(
            nn.Conv2d(3, 96, 7, 2), nn.ReLU(True), pool, FireNet(96, 16, 64, 64), FireNet(128, 32, 128, 128), pool,
            FireNet(256, 64, 256, 256), pool, FireNet(512, 64, 256, 256), nn.Dropout(0.0), nn.Conv2d(512, classes, 1),
            nn.ReLU(True), nn.AdaptiveAvgPool2d((1, 1)),
        )  # fmt: skip

    def forward(self, x):
        return torch.flatten(self.body(x), 1)


class MobileNet1Net(nn.Sequential):
    def __init__(self, classes):
        layers, into = [block(3, 32, 3, 2)], 32
        for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2), (512, 1), (1024, 2)):
            layers += [block(into, into, 3, stride, groups=into), block(into, out, 1)]
            into = out
        super().__init__(*layers, nn.AvgPool2d(7), nn.Flatten(), nn.Linear(into, classes))


class InvertedNet(nn.Module):
    def __init__(self, into, out, kernel, stride, growth, squeeze=False, act=nn.ReLU6):
        super().__init__()
        wide = into * growth
        self.same = stride == 1 and into == out
        self.grow = block(into, wide, 1, act=act) if growth > 1 else nn.Identity()
        self.deep = block(wide, wide, kernel, stride, groups=wide, act=act)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, max(1, into // 4), 1), nn.SiLU(),
            nn.Conv2d(max(1, into // 4), wide, 1), nn.Sigmoid(),
        ) if squeeze else None  # fmt: skip
        self.shrink = block(wide, out, 1, act=nn.Identity)

    def forward(self, x):
        y = self.deep(self.grow(x))
        y = self.shrink(y if self.gate is None else y * self.gate(y))
        return x + y if self.same else y


class MobileNet2Net(nn.Sequential):
    def __init__(self, classes):
        layers, into = [block(3, 32, 3, 2, act=nn.ReLU6)], 32
        for growth, out, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 96, 3, 2), (6, 320, 1, 2)):
            for number in range(count):
                layers.append(InvertedNet(into, out, 3, 1 if number else stride, growth))
                into = out
        head = (nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Dropout(0.0), nn.Linear(1280, classes))
        super().__init__(*layers, block(into, 1280, 1), *head)


class EfficientNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        wide = lambda count: int(8 * math.ceil(count * width / 8))  # noqa: E731
        layers, into = [block(3, wide(32), 3, 2, act=nn.SiLU)], wide(32)
        stages = (
            (1, 16, 1, 1, 3),
            (6, 24, 2, 2, 3),
            (6, 40, 2, 2, 5),
            (6, 80, 3, 2, 3),
            (6, 192, 4, 2, 5),
            (6, 320, 1, 1, 3),
        )
        for growth, out, count, stride, kernel in stages:
            for number in range(math.ceil(count * depth)):
                layers.append(InvertedNet(into, wide(out), kernel, 1 if number else stride, growth, True, nn.SiLU))
                into = wide(out)
        self.body, self.top, self.last = nn.Sequential(*layers), block(into, wide(1280), 1), nn.Linear(wide(1280), 1000)

    def forward(self, x):
        return self.last(F.adaptive_avg_pool2d(self.top(self.body(x)), 1).flatten(1))


class DenseBlockNet(nn.Module):
    def __init__(self, count, into, growth):
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(into + n * growth), nn.ReLU(inplace=True),
                          nn.Conv2d(into + n * growth, growth, 3, padding=1, bias=False), nn.Dropout(0.0))
            for n in range(count)
        )  # fmt: skip

    def forward(self, x):
        found = [x]
        for part in self.parts:
            found.append(part(x))
            x = torch.cat(found, 1)
        return x


class TransitionNet(nn.Sequential):
    def __init__(self, into, out):
        super().__init__(nn.BatchNorm2d(into), nn.ReLU(True), nn.Conv2d(into, out, 1, bias=False), nn.AvgPool2d(2, 2))


class DenseNet(nn.Module):
    def __init__(self, counts):
        super().__init__()
        layers, into = [block(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
        for number, count in enumerate(counts):
            layers.append(DenseBlockNet(count, into, 32))
            into += 32 * count
            if number + 1 < len(counts):
                layers.append(TransitionNet(into, into // 2))
                into //= 2
        self.body, self.norm, self.last = nn.Sequential(*layers), nn.BatchNorm2d(into), nn.Linear(into, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.body(x)), inplace=True)
        return self.last(F.adaptive_avg_pool2d(x, (1, 1)).view(x.size(0), -1))


class ShuffleUnitNet(nn.Module):
    def __init__(self, into, out, groups):
        super().__init__()
        middle = out // 4
        self.groups, self.first = groups, block(into, middle, 1, groups=groups)
        self.deep = block(middle, middle, 3, groups=middle, act=nn.Identity)
        self.last = block(middle, out, 1, groups=groups)
        self.side = nn.Identity() if into == out else block(into, out, 1, act=nn.Identity)

    def forward(self, x):
        y = self.first(x)
        b, c, h, w = y.shape
        y = y.view(b, self.groups, c // self.groups, h, w).transpose(1, 2).contiguous().view(b, c, h, w)
        return self.last(self.deep(y)) + self.side(x)


class ShuffleNet(nn.Sequential):
    def __init__(self, classes):
        units = [ShuffleUnitNet(a, b, 3) for a, b in ((24, 240), (240, 240), (240, 480), (480, 960))]
        head = (block(960, 1024, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, classes))
        super().__init__(block(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1), *units, *head)


class RegNet(nn.Module):
    def __init__(self, widths):
        super().__init__()
        pairs = zip((3, *widths), widths)
        self.body = nn.Sequential(
            *(nn.Sequential(block(a, b, 3), block(b, b, 3), nn.MaxPool2d(2, 2)) for a, b in pairs)
        )
        self.last = nn.Linear(widths[-1], 10)

    def forward(self, x):
        return self.last(torch.mean(self.body(x), dim=[2, 3]))


class UNet(nn.Module):
    def __init__(self, into, out, width):
        super().__init__()
        twice = lambda a, b: nn.Sequential(  # noqa: E731
            nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.Softmax(dim=-1),
            nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.Softmax(dim=-1),
        )  # fmt: skip
        sizes = [width << n for n in range(4)]
        self.down = nn.ModuleList(twice(a, b) for a, b in zip((into, *sizes), sizes))
        self.middle = twice(sizes[-1], 2 * sizes[-1])
        self.lift = nn.ModuleList(nn.ConvTranspose2d(2 * s, s, 2, stride=2) for s in reversed(sizes))
        self.up = nn.ModuleList(twice(2 * s, s) for s in reversed(sizes))
        self.last = nn.Conv2d(width, out, 1)

    def forward(self, x):
        kept = []
        for part in self.down:
            x = part(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for lift, part in zip(self.lift, self.up):
            x = part(torch.cat((lift(x), kept.pop()), dim=1))
        return self.last(x)


class VladNet(nn.Module):
    def __init__(self, clusters, size, ghosts):
        super().__init__()
        self.size, self.count = size, clusters
        scale = 1 / math.sqrt(size)
        self.weights = nn.Parameter(scale * torch.randn(size, clusters + ghosts))
        self.centres = nn.Parameter(scale * torch.randn(1, size, clusters))
        self.norm = nn.BatchNorm1d(clusters + ghosts)

    def forward(self, x):
        shares = F.softmax(self.norm(torch.matmul(x.reshape(-1, self.size), self.weights)), dim=1)[:, : self.count]
        shares = shares.view(-1, x.size(1), self.count)
        moved = torch.sum(shares, dim=1, keepdim=True) * self.centres
        vlad = torch.matmul(shares.transpose(1, 2), x).transpose(1, 2) - moved
        return F.normalize(F.normalize(vlad).reshape(-1, self.count * self.size))


class VisionTransformerNet(nn.Module):
    def __init__(self, image, patch, size, depth, heads):
        super().__init__()
        self.patch = patch
        self.place = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, size))
        self.embed, self.token = nn.Linear(3 * patch * patch, size), nn.Parameter(torch.randn(1, 1, size))
        layer = nn.TransformerEncoderLayer(size, heads, 2048, dropout=0.0)
        self.body, self.last = nn.TransformerEncoder(layer, depth), nn.Sequential(nn.Linear(size, 2048), nn.GELU())

    def forward(self, x):
        p = self.patch
        x = x.unfold(2, p, p).unfold(3, p, p).reshape(x.shape[0], -1, p * p * x.shape[1])
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), self.embed(x)), dim=1) + self.place
        return self.last(self.body(x)[:, 0])


class ConvTransformerNet(nn.Module):
    def __init__(self, size, depth, heads):
        super().__init__()
        self.cut, self.flat = nn.Conv2d(3, size, 4, stride=4), nn.Linear(size * 64, size)
        self.token = nn.Parameter(torch.zeros(1, 1, size))
        self.body = nn.ModuleList(
            nn.TransformerEncoderLayer(size, heads, size * 4, 0.0, batch_first=True) for _ in range(depth)
        )
        self.last = nn.Linear(size, 1000)

    def forward(self, x):
        x = self.flat(self.cut(x).flatten(1)).unsqueeze(1)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        for part in self.body:
            x = part(x)
        return self.last(x[:, 0])


class WindowNet(nn.Module):
    def __init__(self, size, window, attention):
        super().__init__()
        self.window, self.heads, self.attention = window, 3, attention
        self.norm, self.qkv = nn.LayerNorm(size), nn.Linear(size, 3 * size)
        self.mixed = nn.Conv1d(3 * window**2, 3 * window**2, 1, groups=3)
        self.scale = nn.Parameter(torch.log(10 * torch.ones(3, 1, 1)))

    def forward(self, x):
        b, h, w, c = x.shape
        n = self.window
        moved = torch.roll(self.norm(x), shifts=(-(n // 2), -(n // 2)), dims=(1, 2))
        parts = moved.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, n * n, c)
        if self.attention:
            q, k, v = self.qkv(parts).reshape(-1, n * n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
            shares = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
            shares = shares * torch.clamp(self.scale, max=math.log(100.0)).exp()
            parts = (shares.softmax(-1) @ v).transpose(1, 2).reshape(-1, n * n, c)
        else:
            heads = parts.view(-1, n * n, self.heads, c // self.heads).transpose(1, 2)
            mixed = self.mixed(heads.reshape(-1, self.heads * n * n, c // self.heads))
            parts = mixed.view(-1, self.heads, n * n, c // self.heads).transpose(1, 2).reshape(-1, n * n, c)
        whole = parts.view(b, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, c)
        return x + torch.roll(whole, shifts=(n // 2, n // 2), dims=(1, 2))


class VisionAttentionNet(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.mix, self.norm = nn.MultiheadAttention(size, heads), nn.LayerNorm(size)

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.view(b, c, h * w).permute(2, 0, 1)
        return self.norm(self.mix(x, x, x)[0] + x).permute(1, 2, 0).view(b, c, h, w)


class CausalAttentionNet(nn.Module):
    def __init__(self, size, heads, longest, weigh=None):
        super().__init__()
        self.heads, self.weigh = heads, weigh
        self.qkv, self.out, self.drop = nn.Linear(size, 3 * size), nn.Linear(size, size), nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        shares = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        shares = shares.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        shares = F.softmax(shares, dim=-1) if self.weigh is None else self.weigh(shares)
        return self.out((self.drop(shares) @ v).transpose(1, 2).contiguous().view(b, t, c))


class GptBlockNet(nn.Module):
    def __init__(self, size, heads, longest):
        super().__init__()
        self.first, self.second = nn.LayerNorm(size), nn.LayerNorm(size)
        self.mix, self.wide = CausalAttentionNet(size, heads, longest), nn.Linear(size, 4 * size)
        self.narrow = nn.Linear(4 * size, size)

    def forward(self, x):
        x = x + self.mix(self.first(x))
        return x + self.narrow(F.gelu(self.wide(self.second(x)), approximate="tanh"))


class CellNet(nn.Module):
    def __init__(self, into, hidden, out):
        super().__init__()
        self.step, self.read = nn.Linear(into + hidden, hidden), nn.Linear(hidden, out)

    def forward(self, x, hidden):
        self.hidden = torch.tanh(self.step(torch.cat((x, hidden), dim=1)))
        return self.read(self.hidden)


class OverTimeNet(nn.Module):
    def __init__(self, into, hidden):
        super().__init__()
        self.cell = CellNet(into, hidden, 128)

    def forward(self, x, hidden):
        found = []
        for step in range(x.size(0)):
            found.append(self.cell(x[step], hidden))
            hidden = self.cell.hidden
        return torch.stack(found, dim=0)


class RecurrentNet(nn.Module):
    def __init__(self, kind, into, hidden, layers, both, wanted):
        super().__init__()
        self.net = kind(into, hidden, layers, batch_first=True, bidirectional=both, dropout=0.0)
        self.last, self.wanted = nn.Linear(hidden * (1 + both), 10), wanted

    def forward(self, x):
        out, state = self.net(x)
        if self.wanted == "last":
            return self.last(out[:, -1, :])
        hidden = state[0] if isinstance(state, tuple) else state
        return {"all": out, "hidden": hidden, "cell": state[-1]}[self.wanted]


class StateSpaceNet(nn.Module):
    def __init__(self, length, heads, state, chunk, final):
        super().__init__()
        self.chunk, self.final = chunk, final
        self.a, self.b = (
            nn.Parameter(torch.randn(16, length, heads)),
            nn.Parameter(torch.randn(16, length, heads, state)),
        )
        self.c = nn.Parameter(torch.randn(16, length, heads, state))

    def sums(self, x):
        total = torch.cumsum(x, dim=-1)
        found = total[..., :, None] - total[..., None, :]
        mask = torch.tril(torch.ones(x.size(-1), x.size(-1), dtype=torch.bool))
        return found.masked_fill(~mask, -torch.inf)

    def forward(self, x):
        cut = lambda t: t.reshape(t.shape[0], -1, self.chunk, *t.shape[2:])  # noqa: E731
        x, a, b, c = cut(x), cut(self.a).permute(0, 3, 1, 2), cut(self.b), cut(self.c)
        decay = torch.exp(self.sums(a))
        inner = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, decay, x)
        rest = torch.exp(torch.cumsum(a, -1)[..., -1:] - torch.cumsum(a, -1))
        states = torch.einsum("bclhn,bhcl,bclhp->bchpn", b, rest, x)
        states = torch.cat([torch.zeros_like(states[:, :1]), states], dim=1)
        between = torch.exp(self.sums(F.pad(torch.cumsum(a, -1)[..., -1], (1, 0))))
        states = torch.einsum("bhzc,bchpn->bzhpn", between, states)
        if self.final:
            return states[:, -1]
        outer = torch.einsum("bclhn,bchpn,bhcl->bclhp", c, states[:, :-1], torch.exp(torch.cumsum(a, -1)))
        return (inner + outer).flatten(1, 2)
