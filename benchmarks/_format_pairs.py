"""Equivalent programs on narrow numbers: casts, quantised products, comparisons, packed integers, signs."""

import random

import torch

from benchmarks._equivalent_programs import Pair, drawn, extent, kind

BF16, INT8, UINT8 = torch.bfloat16, torch.int8, torch.uint8


@kind
def cast_before_product(draw: random.Random, rows: int, columns: int) -> Pair:
    a, w = drawn(draw, rows, columns, dtype=BF16), drawn(draw, columns, extent(draw), dtype=BF16)
    wide = draw.choice((torch.float32, torch.float64))
    return Pair(lambda _, a, w: (a.to(wide) @ w.to(wide)).to(BF16), lambda _, a, w: a @ w, (a, w))


@kind
def cast_there_and_back(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    return Pair(
        lambda x, w: (x.to(BF16).float() @ w.to(BF16).float()).to(BF16), lambda x, w: x.to(BF16) @ w.to(BF16), (w,)
    )


@kind
def cast_of_one_factor(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw), dtype=draw.choice((BF16, torch.float16)))
    shift = draw.choice((0.0, 1.0))
    return Pair(lambda x, w: x.to(w.dtype).float() @ (w.float() * 2 + shift),
                lambda x, w: (x.to(w.dtype) @ w).float() * 2 + shift * x.to(w.dtype).float().sum(1, keepdim=True),
                (w,), exact=False)  # fmt: skip


@kind
def double_of_single(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    return Pair(lambda x, w: (x.double() @ w.double()).float(), lambda x, w: x @ w, (w,))


def _int8(draw: random.Random, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    return drawn(draw, rows, columns, dtype=INT8), drawn(draw, columns, extent(draw), dtype=INT8)


@kind
def dequantised(draw: random.Random, rows: int, columns: int) -> Pair:
    a, w = _int8(draw, max(rows, 24), columns)
    scale = drawn(draw, *draw.choice(((), (w.shape[1],), (1, w.shape[1])))).abs()
    return Pair(lambda _, a, w, s: (a.float() * 0.1) @ (w.float() * s),
                lambda _, a, w, s: torch._int_mm(a, w).float() * (0.1 * s), (a, w, scale))  # fmt: skip


@kind
def dequantised_with_zero_points(draw: random.Random, rows: int, columns: int) -> Pair:
    a, w = _int8(draw, max(rows, 24), columns)
    zero = drawn(draw, w.shape[1]).round()
    return Pair(lambda _, a, w, z: a.float() @ (w.float() - z),
                lambda _, a, w, z: torch._int_mm(a, w).float() - a.float().sum(1, keepdim=True) * z,
                (a, w, zero))  # fmt: skip


@kind
def rounded_and_clamped(draw: random.Random, rows: int, columns: int) -> Pair:
    rows, b = max(rows, 24), drawn(draw, columns, extent(draw))
    a = drawn(draw, rows, columns)

    def codes(x: torch.Tensor) -> torch.Tensor:
        return (x / 0.1).round().clamp(-128, 127)

    through = draw.random() < 0.5

    def grid(x: torch.Tensor) -> torch.Tensor:
        return x + (codes(x) * 0.1 - x).detach() if through else codes(x) * 0.1

    return Pair(lambda _, a, b: grid(a) @ grid(b),
                lambda _, a, b: torch._int_mm(codes(a).to(INT8), codes(b).to(INT8)).float() * 0.01, (a, b))  # fmt: skip


@kind
def fake_quantised(draw: random.Random, rows: int, columns: int) -> Pair:
    a, b = drawn(draw, max(rows, 24), columns), drawn(draw, columns, extent(draw))

    def fake(x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.125, 0, -128, 127)

    def codes(x: torch.Tensor) -> torch.Tensor:
        return (x * 8).round().clamp(-128, 127).to(INT8)

    return Pair(lambda _, a, b: fake(a) @ fake(b),
                lambda _, a, b: torch._int_mm(codes(a), codes(b)).float() / 64, (a, b))  # fmt: skip


@kind
def compared(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw), dtype=BF16)
    return Pair(lambda x, w: (x > 0).float() @ w.float(), lambda x, w: ((x > 0).to(BF16) @ w).float(), (w,),
                exact=False)  # fmt: skip


@kind
def compared_twice(draw: random.Random, rows: int, columns: int) -> Pair:
    a, w = drawn(draw, max(rows, 24), columns), drawn(draw, columns, extent(draw))
    return Pair(lambda _, a, w: (a > 0).float() @ (w > 0).float(),
                lambda _, a, w: torch._int_mm((a > 0).to(INT8), (w > 0).to(INT8)).float(), (a, w))  # fmt: skip


@kind
def signs(draw: random.Random, rows: int, columns: int) -> Pair:
    a, w = drawn(draw, max(rows, 24), columns), drawn(draw, columns, extent(draw))
    first = draw.choice((torch.sign, lambda x: torch.where(x > 0, 1.0, -1.0), lambda x: (x > 0).float() * 2 - 1))

    def codes(x: torch.Tensor) -> torch.Tensor:
        return first(x).to(INT8)

    return Pair(lambda _, a, w: first(a) @ first(w),
                lambda _, a, w: torch._int_mm(codes(a), codes(w)).float(), (a, w))  # fmt: skip


@kind
def unpacked_integers(draw: random.Random, rows: int, columns: int) -> Pair:
    a, packed = drawn(draw, max(rows, 24), columns, dtype=INT8), drawn(draw, columns, extent(draw), dtype=UINT8)
    shift = draw.choice((0, 4))

    def codes(packed: torch.Tensor) -> torch.Tensor:
        return ((packed >> shift) & 15).to(INT8) - 8

    return Pair(lambda _, a, p: a.float() @ (codes(p).float() * 0.25),
                lambda _, a, p: torch._int_mm(a, codes(p)).float() * 0.25, (a, packed))  # fmt: skip


@kind
def images(draw: random.Random, rows: int, columns: int) -> Pair:
    image, w = drawn(draw, rows, columns, dtype=UINT8), drawn(draw, columns, extent(draw), dtype=BF16)
    return Pair(lambda _, i, w: (i.float() / 255 - 0.5) @ w.float(),
                lambda _, i, w: (i.to(BF16) @ w).float() / 255 - 0.5 * w.float().sum(0), (image, w),
                exact=False)  # fmt: skip


@kind
def moved_codes(draw: random.Random, rows: int, columns: int) -> Pair:
    rows = max(rows, 24)
    a, w = _int8(draw, rows, columns)
    move = draw.choice((
        lambda a: torch.cat((a[rows // 2 :], a[: rows // 2])), lambda a: a.flip(0), lambda a: a.roll(1, 0),
        lambda a: torch.relu(a), lambda a: a.abs(), lambda a: torch.where(a > 0, a, torch.zeros_like(a)),
        lambda a: a.t().contiguous().t(), lambda a: torch.maximum(a, -a), lambda a: a.clamp(min=0, max=5),
    ))  # fmt: skip
    return Pair(lambda _, a, w: move(a.float()) @ w.float(),
                lambda _, a, w: torch._int_mm(move(a.float()).to(INT8), w).float(), (a, w))  # fmt: skip


@kind
def narrow_convolution(draw: random.Random, rows: int, columns: int) -> Pair:
    x, w = drawn(draw, 2, 8, 12, 12, dtype=BF16), drawn(draw, 16, 8, 3, 3, dtype=BF16)
    return Pair(lambda _, x, w: torch.conv2d(x.float(), w.float(), padding=1).to(BF16),
                lambda _, x, w: torch.conv2d(x, w, padding=1), (x, w), exact=False)  # fmt: skip


@kind
def narrow_attention(draw: random.Random, rows: int, columns: int) -> Pair:
    q, k, v = (drawn(draw, 1, 2, 64, 32, dtype=BF16) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    return Pair(lambda _, q, k, v: attend(q.float(), k.float(), v.float()).to(BF16),
                lambda _, q, k, v: attend(q, k, v), (q, k, v), exact=False)  # fmt: skip


@kind
def group_scales(draw: random.Random, rows: int, columns: int) -> Pair:
    rows, half = max(rows, 24), 8 * max(1, columns // 16)
    (a, w), (b, u) = _int8(draw, rows, half), _int8(draw, rows, half)
    u = drawn(draw, half, w.shape[1], dtype=INT8)
    scale = drawn(draw, 2, w.shape[1]).abs()
    spread = draw.choice((
        lambda s: s.repeat_interleave(half, 0), lambda s: s[torch.arange(2 * half) // half],
        lambda s: s[:, None].expand(2, half, -1).reshape(2 * half, -1),
    ))  # fmt: skip
    return Pair(lambda _, a, w, b, u, s: torch.cat((a, b), 1).float() @ (torch.cat((w, u)).float() * spread(s)),
                lambda _, a, w, b, u, s: torch._int_mm(a, w).float() * s[0] + torch._int_mm(b, u).float() * s[1],
                (a, w, b, u, scale))  # fmt: skip


@kind
def steps(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, 32, dtype=torch.int8)
    limits = torch.linspace(-1, 1, 9)
    first, second = draw.choice((
        (lambda x: torch.heaviside(x, torch.tensor(0.0)), lambda x: x > 0),
        (lambda x: torch.bucketize(x, limits).float(), lambda x: torch.bucketize(x, limits)),
    ))  # fmt: skip
    return Pair(lambda x, w: first(x) @ w.float(), lambda x, w: second(x).to(torch.int8).float() @ w.float(), (w,))


@kind
def copied_and_signed(draw: random.Random, rows: int, columns: int) -> Pair:
    x, w = drawn(draw, rows, columns, dtype=torch.bfloat16), drawn(draw, columns, 32, dtype=torch.bfloat16)
    first = draw.choice((
        lambda _, x, w: torch.empty(rows, columns).copy_(x) @ w.float(),
        lambda _, x, w: (x.float() * torch.sign(x.float())) @ w.float(),
        lambda _, x, w: torch.nn.functional.interpolate(x.float()[None], size=columns)[0] @ w.float(),
    ))  # fmt: skip
    return Pair(first, lambda _, x, w: x @ w, (x, w), exact=False)
