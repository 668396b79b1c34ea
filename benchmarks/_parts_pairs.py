"""Kinds of pairs in which tensors are read in parts, cut, overwritten, or lengthened."""

import random

import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks._equivalent_programs import Pair, drawn, extent, kind


@kind
def parts_beside_each_other(draw: random.Random, rows: int, columns: int) -> Pair:
    """A tensor read whole, or as columns that several operators take."""
    w, half = drawn(draw, columns, 2 * extent(draw)), columns // 2
    first, second = draw.choice((
        (lambda x, w: (lambda y: torch.relu(y.chunk(2, 1)[0]) * torch.sigmoid(y.chunk(2, 1)[1]))(x @ w),
         lambda x, w: torch.relu(x @ w.chunk(2, 1)[0]) * torch.sigmoid(x @ w.chunk(2, 1)[1])),
        (lambda x, w: F.glu(x @ w, 1),
         lambda x, w: (x @ w[:, : w.shape[1] // 2]) * torch.sigmoid(x @ w[:, w.shape[1] // 2 :])),
        (lambda x, w: F.glu(x, 1), lambda x, w: x[:, :half] * torch.sigmoid(x[:, half:])),
        (lambda x, w: (lambda y: y[:, ::2] - y[:, 1::2])(torch.sigmoid(x)),
         lambda x, w: torch.sigmoid(x[:, ::2]) - torch.sigmoid(x[:, 1::2])),
        (lambda x, w: torch.cat((-torch.tanh(x)[:, half:], torch.tanh(x)[:, :half]), 1),
         lambda x, w: torch.cat((-torch.tanh(x[:, half:]), torch.tanh(x[:, :half])), 1)),
    ))  # fmt: skip
    return Pair(first, second, (w,))


@kind
def groups_of_channels(draw: random.Random, rows: int, columns: int) -> Pair:
    groups, taps, stride = draw.choice((2, 4)), draw.choice((1, 3)), draw.choice((1, 2))
    x, w = drawn(draw, 2, 16, 12, 12), drawn(draw, 16, 16 // groups, taps, taps)

    def apart(_: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        parts = zip(x.chunk(groups, 1), w.chunk(groups), strict=True)
        return torch.cat([torch.conv2d(a, b, stride=stride) for a, b in parts], 1)

    return Pair(lambda _, x, w: torch.conv2d(x, w, groups=groups, stride=stride), apart, (x, w))


@kind
def elements_cut_off_or_overwritten(draw: random.Random, rows: int, columns: int) -> Pair:
    """Elements of a product that padding cuts off, that zeros overwrite, or that a known condition leaves out."""
    width, half = extent(draw), rows // 2
    w = drawn(draw, columns, 2 * width)

    def overwritten(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        y[:, :width] = 0.0
        return y

    def masked(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        y[torch.arange(rows) < half] = 0.0
        return y

    lower = lambda x, w: F.pad(x[half:] @ w, (0, 0, half, 0))  # noqa: E731
    first, second = draw.choice((
        (lambda x, w: F.pad(x @ w, (-width // 2, -width // 2)), lambda x, w: x @ w[:, width // 2 : -(width // 2)]),
        (overwritten, lambda x, w: F.pad(x @ w[:, width:], (width, 0))),
        (masked, lower),
        (lambda x, w: torch.tanh(x @ w)[torch.arange(rows) >= half], lambda x, w: torch.tanh(x[half:] @ w)),
        (lambda x, w: torch.relu(x @ w)[:, torch.arange(2 * width) % 2 == 0], lambda x, w: torch.relu(x @ w[:, ::2])),
    ))  # fmt: skip
    return Pair(first, second, (w,))


@kind
def losses_of_few_rows(draw: random.Random, rows: int, columns: int) -> Pair:
    classes, kept = extent(draw), max(1, rows // 8)
    w, labels = drawn(draw, columns, classes), torch.tensor([draw.randrange(classes) for _ in range(rows)])
    second = lambda x, w, i: F.cross_entropy(x[-kept:] @ w, i[-kept:], reduction="none")[None]  # noqa: E731
    last = lambda: (torch.arange(rows) >= rows - kept).float()  # noqa: E731
    return Pair(*draw.choice((
        (lambda x, w, i: F.cross_entropy(x @ w, i, reduction="none")[None, -kept:], second),
        (lambda x, w, i: (F.cross_entropy(x @ w, i, reduction="none") * last()).sum()[None, None],
         lambda x, w, i: second(x, w, i).sum()[None, None]),
        (lambda x, w, i: F.log_softmax(x @ w, -1)[-kept:], lambda x, w, i: F.log_softmax(x[-kept:] @ w, -1)),
    )), (w, labels))  # fmt: skip


@kind
def rows_that_recur_behind_a_norm(draw: random.Random, rows: int, columns: int) -> Pair:
    """Rows that stand several times, as those of beams or of a guidance without condition, go through a whole block."""
    w, v = drawn(draw, columns, extent(draw)), drawn(draw, 32, 24)
    u = drawn(draw, w.shape[1], 32)
    block = draw.choice((
        lambda x: F.gelu(F.layer_norm(x, (columns,)) @ w @ u) @ v, lambda x: (x @ w).softmax(-1) @ u,
        lambda x: F.group_norm(x @ w, 4) @ u, lambda x: (x @ w).cumsum(1) @ u,
        lambda x: F.glu(x @ w, 1) @ u[: len(u) // 2],
    ))  # fmt: skip
    again = draw.choice((
        lambda x: torch.cat((x, x)), lambda x: x.repeat_interleave(4, 0), lambda x: x[:1].expand(rows, -1),
        lambda x: x[None].expand(3, -1, -1).flatten(0, 1),
    ))  # fmt: skip
    return Pair(lambda x, w, v, u: block(again(x)), lambda x, w, v, u: again(block(x)), (w, v, u))


@kind
def attention_of_equal_sequences(draw: random.Random, rows: int, columns: int) -> Pair:
    q, k, v = (drawn(draw, 1, 2, 24, 16) for _ in range(3))
    by_hand = lambda q, k, v: (q @ k.transpose(2, 3) / 4).softmax(-1) @ v  # noqa: E731
    attend = draw.choice((F.scaled_dot_product_attention, by_hand))
    again = draw.choice((lambda t: t.expand(4, -1, -1, -1), lambda t: t.repeat(4, 1, 1, 1)))
    return Pair(lambda _, *t: attend(*map(again, t)), lambda _, *t: again(attend(*t)).clone(), (q, k, v))


@kind
def mean_of_several_maps(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, 4, columns, extent(draw))
    first = draw.choice((
        lambda x, w: torch.stack([x @ part for part in w]).mean(0),
        lambda x, w: torch.stack([x @ p for p in w], 1).sum(1) / 4,
        lambda x, w: torch.bmm(x[None].expand(4, -1, -1), w).mean(0), lambda x, w: sum(x @ part for part in w) / 4,
    ))  # fmt: skip
    return Pair(first, lambda x, w: x @ w.mean(0), (w,))


@kind
def positions_beside_features(draw: random.Random, rows: int, columns: int) -> Pair:
    """One-hot codes, or a column of ones, that are joined to features before a map."""
    count = draw.choice((4, 32))
    w, index = drawn(draw, columns + count, extent(draw)), torch.tensor([draw.randrange(count) for _ in range(rows)])
    if draw.random() < 0.5:
        return Pair(lambda x, w, i: torch.cat((x, F.one_hot(i, count).float()), 1) @ w,
                    lambda x, w, i: x @ w[:columns] + w[columns:][i], (w, index))  # fmt: skip
    ones = draw.choice(
        (lambda x: F.pad(x, (0, count), value=1.0), lambda x: torch.cat((x, torch.ones(rows, count)), 1))
    )
    return Pair(lambda x, w, i: ones(x) @ w, lambda x, w, i: x @ w[:columns] + w[columns:].sum(0), (w, index))


@kind
def pooled_maps(draw: random.Random, rows: int, columns: int) -> Pair:
    x, w, size = drawn(draw, 2, 8, 16, 16), drawn(draw, 16, 8, 1, 1), draw.choice((1, 4, 8))
    pool = draw.choice((lambda x: F.adaptive_avg_pool2d(x, size), lambda x: F.avg_pool2d(x, 16 // size)))
    return Pair(lambda _, x, w: pool(torch.conv2d(x, w)), lambda _, x, w: torch.conv2d(pool(x), w), (x, w))


@kind
def structured_factors(draw: random.Random, rows: int, columns: int) -> Pair:
    """Reflections and rank-one changes of the identity; kernels that are outer products."""
    v, u = drawn(draw, columns) / columns**0.5, drawn(draw, columns)
    a, b, image = drawn(draw, 7), drawn(draw, 7), drawn(draw, 2, 1, 24, 24)
    first, second = draw.choice((
        (lambda x, v, u, *_: x @ (torch.eye(columns) - 2 * torch.outer(v, v)),
         lambda x, v, u, *_: x - 2 * torch.outer(x @ v, v)),
        (lambda x, v, u, *_: x @ (torch.eye(columns) + v[:, None] * u), lambda x, v, u, *_: x + torch.outer(x @ v, u)),
        (lambda _, v, u, a, b, i: torch.conv2d(i, torch.outer(a, b)[None, None]),
         lambda _, v, u, a, b, i: torch.conv2d(torch.conv2d(i, a[None, None, :, None]), b[None, None, None])),
    ))  # fmt: skip
    return Pair(first, second, (v, u, a, b, image))


@kind
def overlapping_windows(draw: random.Random, rows: int, columns: int) -> Pair:
    w, length = drawn(draw, columns, extent(draw)), min(rows, draw.choice((2, 4)))
    return Pair(lambda x, w: x.unfold(0, length, 1).transpose(1, 2) @ w,
                lambda x, w: (x @ w).unfold(0, length, 1).transpose(1, 2).contiguous(), (w,))  # fmt: skip


@kind
def experts_by_masks(draw: random.Random, rows: int, columns: int) -> Pair:
    """Experts that all tokens pass under masks, of which each token keeps one, and experts whose weights it picks."""
    count, w = 4, drawn(draw, 4, columns, 24)
    v, index = drawn(draw, 4, 24, 16), torch.tensor([draw.randrange(4) for _ in range(rows)])
    layer = draw.choice((lambda x, w, v: x @ w, lambda x, w, v: torch.relu(x @ w) @ v))

    def chosen(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(())
        for expert in range(count):
            y = torch.where((i == expert)[:, None], layer(x, w[expert], v[expert]), y)
        return y

    def masked(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return sum((i == expert).float()[:, None] * layer(x, w[expert], v[expert]) for expert in range(count))

    return Pair(draw.choice((chosen, masked)), lambda x, w, v, i: layer(x[:, None], w[i], v[i])[:, 0], (w, v, index))


@kind
def edges_of_images(draw: random.Random, rows: int, columns: int) -> Pair:
    """Patches written out, of padded images."""
    x, w = drawn(draw, 2, 8, 12, 12), drawn(draw, 16, 8, 3, 3)
    return Pair(lambda _, x, w: torch.conv2d(F.pad(x, (2, -1, 2, -1)), w),
                lambda _, x, w: torch.conv2d(F.pad(x[:, :, :11, :11], (2, 0, 2, 0)), w), (x, w))  # fmt: skip


@kind
def rows_moved_and_as_they_were(draw: random.Random, rows: int, columns: int) -> Pair:
    """The same rows before and after a move: shifts in time, reversed rows, a few of them again."""
    w, v = drawn(draw, columns, extent(draw)), draw.choice((torch.tanh, torch.relu, lambda y: y * 2))
    there, back = draw.choice((
        (lambda x: x.roll(1, 0), lambda x: x.roll(1, 0)), (lambda x: x.flip(0), lambda x: x.flip(0)),
        (lambda x: torch.cat((x[-1:], x[:-1])), lambda x: torch.cat((x[-1:], x[:-1]))),
        (lambda x: F.pad(x, (0, 0, 1, -1)), lambda x: F.pad(x, (0, 0, 1, -1))),
    ))  # fmt: skip
    first, second = draw.choice((
        (lambda x, w: v(x @ w) + torch.sigmoid(there(x) @ w),
         lambda x, w: (lambda y: v(y) + torch.sigmoid(back(y)))(x @ w)),
        (lambda x, w: there(x) @ w, lambda x, w: back(x @ w)),
        (lambda x, w: torch.cat((x, x.flip(0))) @ w, lambda x, w: (lambda y: torch.cat((y, y.flip(0))))(x @ w)),
        (lambda x, w: torch.cat((x, x[: rows // 3])) @ w,
         lambda x, w: (lambda y: torch.cat((y, y[: rows // 3])))(x @ w)),
        (lambda x, w: v(x @ w) + v(x.flip(0) @ w).flip(0), lambda x, w: 2 * v(x @ w)),
        (lambda x, w: v(x @ w) + (x.view(2, -1, columns).transpose(0, 1) @ w).transpose(0, 1).reshape(rows, -1),
         lambda x, w: (lambda y: v(y) + y)(x @ w)),
    ))  # fmt: skip
    return Pair(first, second, (w,))


@kind
def diagonal_factors(draw: random.Random, rows: int, columns: int) -> Pair:
    w, s = drawn(draw, columns, extent(draw)), drawn(draw, columns)
    return Pair(*draw.choice((
        (lambda x, w, s: x @ torch.diag(s), lambda x, w, s: x * s),
        (lambda x, w, s: x @ torch.diag(s) @ w, lambda x, w, s: (x * s) @ w),
        (lambda x, w, s: x @ (torch.diag_embed(s) @ w), lambda x, w, s: x @ (w * s[:, None])),
        (lambda x, w, s: x.t() @ torch.diag(x[:, 0]) @ x, lambda x, w, s: (x * x[:, :1]).t() @ x),
    )), (w, s))  # fmt: skip


@kind
def comparisons_that_always_hold(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, 32)
    holds = draw.choice((
        lambda y: torch.sigmoid(y) < 2, lambda y: torch.relu(y) >= 0, lambda y: y.softmax(1) <= 1,
        lambda y: y.tanh() > -2,
    ))  # fmt: skip
    return Pair(lambda x, w: holds(x @ w).float() + x[:, :1], lambda x, w: 1 + x[:, :1].expand(-1, 32), (w,))
