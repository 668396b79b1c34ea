"""Fusions: a product or convolution and a chain of operators behind it, drawn with a fixed seed."""

import random

COUNT = 100

_HEADS = (
    ("Conv2d({c}, {d}, {k})", 4, "x"),
    ("Conv2d({c}, {d}, {k}, stride=2, padding=1, bias=False)", 4, "x"),
    ("Conv3d({c}, {d}, {k})", 5, "x"),
    ("ConvTranspose2d({c}, {d}, {k}, stride=2, padding=1, output_padding=1)", 4, "x"),
    ("ConvTranspose3d({c}, {d}, {k}, stride=2)", 5, "x"),
    ("Linear({c}, {d})", 2, "x"),
    ("Linear({c}, {d}, bias=False)", 2, "x"),
)
"""Constructor, dimensions of the input, expression of the input."""

_ANY = (
    "torch.relu({0})", "F.gelu({0})", "torch.tanh({0})", "F.mish({0})", "F.hardswish({0})", "F.leaky_relu({0}, 0.1)",
    "torch.sigmoid({0})", "F.silu({0})", "F.softplus({0})", "F.hardtanh({0}, -1.0, 1.0)", "{0} * 0.5", "{0} + 1.25",
    "{0} - 0.75", "{0} / 2.0", "torch.clamp({0}, -0.5, 0.5)", "torch.clamp({0}, min=0.0)",
    "torch.min({0}, torch.tensor(0.25))", "({0}) + ({0})", "{0} * self.scale", "F.dropout({0}, 0.2, self.training)",
    "torch.abs({0})", "torch.exp(-{0})", "F.elu({0})", "({0}) * torch.sigmoid({0})",
)  # fmt: skip
_CHANNELS = (
    "self.group({0})", "torch.softmax({0}, dim=1)", "torch.logsumexp({0}, dim=1, keepdim=True)",
    "torch.max({0}, dim=1, keepdim=True)[0]", "torch.min({0}, dim=1, keepdim=True)[0]",
    "torch.mean({0}, dim=1, keepdim=True)", "torch.sum({0}, dim=1, keepdim=True)", "{0} + self.bias",
    "{0} - torch.mean({0}, dim=1, keepdim=True)",
)  # fmt: skip
_IMAGES = (
    "self.batch({0})", "self.instance({0})", "self.pool({0})", "self.mean_pool({0})",
    "torch.mean({0}, dim=tuple(range(2, {0}.dim())), keepdim=True)",
)  # fmt: skip
_LAST = ("{0}", "torch.sum({0})", "torch.mean({0}, dim=0)", "torch.argmax({0}, dim=1)", "torch.flatten({0}, 1)")
_CHANNEL_ENDING = ("logsumexp", "max(", "min(", "mean(", "sum(")


def _row(number: int, draw: random.Random) -> str:
    constructor, dimensions, given = draw.choice(_HEADS)
    c, d, k = draw.choice((8, 16, 64)), draw.choice((16, 32, 64)), draw.choice((2, 3, 4))
    kind = f"{dimensions - 2}d"
    layers = [f"op=nn.{constructor.format(c=c, d=d, k=k)}", f"group=nn.GroupNorm({draw.choice((2, 4, 8))}, {d})"]
    layers += ["scale=nn.Parameter(torch.ones(1))",
               f"bias=nn.Parameter(torch.randn({', '.join([str(d), *['1'] * (dimensions - 2)])}))"]  # fmt: skip
    if dimensions > 2:
        layers += [f"batch=nn.BatchNorm{kind}({d})", f"instance=nn.InstanceNorm{kind}({d})"]
        layers += [f"pool=nn.MaxPool{kind}(2)", f"mean_pool=nn.AvgPool{kind}(2)"]
    result = _chain(draw, dimensions)
    extents = {2: (), 4: (draw.choice((32, 64)),) * 2, 5: (draw.choice((16, 24)),) * 3}[dimensions]
    shape = "x".join(map(str, (draw.choice((16, 128)), c, *extents)))
    return f"fusion_{number:03d} | {'; '.join(layers)} | {result.format(f'self.op({given})')} | {shape}"


def _chain(draw: random.Random, dimensions: int) -> str:
    """Return an expression over `{0}`; what needs all channels, or an image, comes before they are reduced."""
    result, whole, images = "{0}", True, dimensions > 2
    for _ in range(draw.randint(2, 5)):
        choices = [*_ANY, *(_CHANNELS if whole else ()), *(_IMAGES if whole and images else ())]
        step = draw.choice(choices)
        images = images and "pool" not in step and "tuple(range" not in step
        whole = whole and not any(
            name in step for name in _CHANNEL_ENDING if "{0} - " not in step and "clamp" not in step
        )
        result = step.replace("{0}", result)
    return draw.choice(_LAST).replace("{0}", result)


def _rows() -> str:
    draw = random.Random(20)
    return "\n".join(_row(number, draw) for number in range(1, COUNT + 1))


ROWS = _rows()
