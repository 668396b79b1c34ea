"""Kinds of pairs in which factors are shared, rows are picked by data, images repeat elements, or groups have one."""

import random

import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks._equivalent_programs import Pair, drawn, extent, kind


@kind
def low_rank_update(draw: random.Random, rows: int, columns: int) -> Pair:
    width, rank = extent(draw), draw.choice((2, 8, 64))
    w, a, b = drawn(draw, columns, width), drawn(draw, columns, rank), drawn(draw, rank, width)
    first = draw.choice((
        lambda x, w, a, b: x @ w + x @ a @ b, lambda x, w, a, b: torch.addmm(b[0], x, w) + 2 * ((x @ a) @ b),
        lambda x, w, a, b: F.linear(x, w.t()) - F.linear(F.linear(x, a.t()), b.t()),
    ))  # fmt: skip
    return Pair(first, lambda x, w, a, b: x @ (w + a @ b), (w, a, b), exact=False)


@kind
def factor_of_several_sums(draw: random.Random, rows: int, columns: int) -> Pair:
    width, parts = extent(draw), draw.choice((2, 4))
    w, v = drawn(draw, columns, width), drawn(draw, columns, width)
    if draw.random() < 0.5 and not rows % parts:
        return Pair(
            lambda x, w, v: sum(part @ w for part in x.chunk(parts)), lambda x, w, v: sum(x.chunk(parts)) @ w, (w, v)
        )
    return Pair(lambda x, w, v: x @ w - x @ v, lambda x, w, v: x @ (w - v), (w, v))


@kind
def rows_in_pairs(draw: random.Random, rows: int, columns: int) -> Pair:
    other, width = drawn(draw, 16, columns), extent(draw)
    if draw.random() < 0.5:
        return Pair(lambda x, y, w: (x[:, None] + y[None]) @ w, lambda x, y, w: (x @ w)[:, None] + (y @ w)[None],
                    (other, drawn(draw, columns, width)))  # fmt: skip
    return Pair(
        lambda x, y, w: torch.cat((x[:, None].expand(-1, 16, -1), y[None].expand(rows, -1, -1)), -1) @ w,
        lambda x, y, w: (x @ w[:columns])[:, None] + (y @ w[columns:])[None], (other, drawn(draw, 2 * columns, width)),
    )  # fmt: skip


@kind
def rows_by_position(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    count = draw.choice((max(1, rows // 4), 4 * rows))
    index = torch.tensor([draw.randrange(rows) for _ in range(count)])
    first, second = (lambda x, i, w: (x @ w)[i], lambda x, i, w: F.embedding(i, x) @ w)
    if draw.random() < 0.5:
        second = lambda x, i, w: x.index_select(0, i) @ w  # noqa: E731
    return Pair(first, second, (index, w)) if count < rows else Pair(second, first, (index, w))


@kind
def position_of_each_sequence(draw: random.Random, rows: int, columns: int) -> Pair:
    w, length = drawn(draw, columns, extent(draw)), rows // 4
    last = torch.tensor([draw.randrange(length) for _ in range(4)])
    return Pair(
        lambda x, i, w: (x.view(4, length, columns) @ w)[torch.arange(4), i],
        lambda x, i, w: x.view(4, length, columns)[torch.arange(4), i] @ w, (last, w),
    )  # fmt: skip


@kind
def enlarged_image(draw: random.Random, rows: int, columns: int) -> Pair:
    x, w = drawn(draw, 2, 8, 12, 12), drawn(draw, 16, 8, 1, 1)
    if draw.random() < 0.5:
        return Pair(lambda _, x, w: torch.conv2d(F.interpolate(x, scale_factor=2.0), w),
                    lambda _, x, w: F.interpolate(torch.conv2d(x, w), scale_factor=2.0), (x, w))  # fmt: skip
    w, phases = drawn(draw, 16, 8, 3, 3), drawn(draw, 64, 8, 2, 2)  # taps of each phase that meet one element, added up
    return Pair(lambda _, x, w, p: torch.conv2d(F.interpolate(x, scale_factor=2.0), w, padding=1),
                lambda _, x, w, p: F.pixel_shuffle(torch.conv2d(F.pad(x, (1, 0, 1, 0)), p), 2), (x, w, phases),
                exact=False)  # fmt: skip


@kind
def attention_to_one_key(draw: random.Random, rows: int, columns: int) -> Pair:
    weights = tuple(drawn(draw, columns, columns) for _ in range(3))
    return Pair(
        lambda x, *w: F.scaled_dot_product_attention(*((x @ part)[:, None, None] for part in w))[:, 0, 0],
        lambda x, *w: x @ w[2], weights,
    )  # fmt: skip


@kind
def groups_of_one(draw: random.Random, rows: int, columns: int) -> Pair:
    w, width = drawn(draw, columns, 32), 32
    first = draw.choice((
        lambda x, w: F.layer_norm((x @ w)[..., None], (1,))[..., 0], lambda x, w: F.group_norm(x @ w, width),
    ))  # fmt: skip
    return Pair(lambda x, w: first(x, w) + x[:, :1], lambda x, w: x[:, :1].expand(-1, width).clone(), (w,))


@kind
def several_ones(draw: random.Random, rows: int, columns: int) -> Pair:
    index = torch.tensor([[draw.randrange(columns) for _ in range(4)] for _ in range(32)])
    w = drawn(draw, columns, extent(draw))
    first = draw.choice((
        lambda x, i, w: F.one_hot(i, columns).sum(1).float() @ w,
        lambda x, i, w: sum(F.one_hot(i[:, place], columns) for place in range(4)).float() @ w,
    ))  # fmt: skip
    return Pair(first, lambda x, i, w: w[i].sum(1), (index, w))


@kind
def repeated_columns(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, 4 * columns, extent(draw))
    if draw.random() < 0.5:
        return Pair(lambda x, w: x.repeat(1, 4) @ w, lambda x, w: x @ w.view(4, columns, -1).sum(0), (w,))
    return Pair(lambda x, w: x.repeat_interleave(4, 1) @ w, lambda x, w: x @ w.view(columns, 4, -1).sum(1), (w,))
