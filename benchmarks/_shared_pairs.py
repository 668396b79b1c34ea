"""Kinds of pairs in which factors are shared, rows are picked by data, images repeat elements, or groups have one."""

import random
from math import gcd

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
    w, count = drawn(draw, columns, extent(draw)), gcd(rows, 4)
    last = torch.tensor([draw.randrange(rows // count) for _ in range(count)])
    return Pair(
        lambda x, i, w: (x.view(count, -1, columns) @ w)[torch.arange(count), i],
        lambda x, i, w: x.view(count, -1, columns)[torch.arange(count), i] @ w, (last, w),
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


@kind
def rows_of_what_takes_rows_together(draw: random.Random, rows: int, columns: int) -> Pair:
    """Rows picked of what is worked out row by row, by data or in steps."""
    w, index = (
        drawn(draw, columns, extent(draw)),
        torch.tensor([draw.randrange(rows) for _ in range(max(1, rows // 4))]),
    )
    layer = draw.choice((
        lambda y: y.amax(1, keepdim=True), lambda y: y.max(1, keepdim=True).values, lambda y: y.cumsum(1),
        lambda y: y.argmin(1, keepdim=True).float(), lambda y: y.softmax(1),
        lambda y: y.sort(1).values, lambda y: y.logsumexp(1, keepdim=True), lambda y: y.var(1, keepdim=True),
        lambda y: y.topk(4, 1).values, lambda y: F.layer_norm(y, y.shape[1:]).amax(1, keepdim=True),
    ))  # fmt: skip
    pick = draw.choice((
        lambda t, i: t[i], lambda t, i: t.index_select(0, i), lambda t, i: t[::3], lambda t, i: t[1 : rows // 2],
        lambda t, i: t.flip(0)[::4], lambda t, i: t[torch.arange(0, rows, 4)],
    ))  # fmt: skip
    return Pair(lambda x, i, w: pick(layer(x @ w), i), lambda x, i, w: layer(pick(x, i) @ w), (index, w))


@kind
def diagonal_of_product(draw: random.Random, rows: int, columns: int) -> Pair:
    w, way = drawn(draw, columns, rows), draw.choice((torch.relu, lambda t: t, lambda t: t * 2 + 1))
    first, end = draw.choice((
        (lambda x, w: way(x @ w).diagonal()[None], lambda t: t),
        (lambda x, w: way(x @ w).trace()[None, None], torch.sum),
        (lambda x, w: torch.diag(way(x @ w))[None], lambda t: t),
        (lambda x, w: way(x @ w)[torch.arange(rows), torch.arange(rows)][None], lambda t: t),
    ))  # fmt: skip
    return Pair(first, lambda x, w: end(way(torch.bmm(x[:, None], w.t()[:, :, None])[:, 0, 0])).view(1, -1), (w,))


@kind
def part_of_attention(draw: random.Random, rows: int, columns: int) -> Pair:
    """Heads, queries and value columns that something needs of an attention."""
    q, k, v = (drawn(draw, 2, 4, 24, 16) for _ in range(3))
    heads, queries, wide = slice(draw.choice((2, 4))), slice(None, 24, draw.choice((1, 3))), slice(draw.choice((6, 16)))
    attend = F.scaled_dot_product_attention
    return Pair(
        lambda _, q, k, v: attend(q, k, v)[:, heads, queries, wide],
        lambda _, q, k, v: attend(q[:, heads, queries], k[:, heads], v[:, heads, :, wide]), (q, k, v),
    )  # fmt: skip


@kind
def picked_queries(draw: random.Random, rows: int, columns: int) -> Pair:
    """Rows picked of an attention, by data, in steps, or the last one."""
    q, k, v = (drawn(draw, 2, 4, 24, 16) for _ in range(3))
    index = torch.tensor(sorted(draw.randrange(24) for _ in range(6)))
    pick = draw.choice((
        lambda t, i: t.index_select(2, i), lambda t, i: t[:, :, i], lambda t, i: t[:, :, ::5],
        lambda t, i: t[:, :, -1:], lambda t, i: t.flip(2)[:, :, :7],
    ))  # fmt: skip
    by_hand = lambda q, k, v: (q @ k.transpose(2, 3) / 4).softmax(-1) @ v  # noqa: E731
    attend = draw.choice((F.scaled_dot_product_attention, by_hand))
    if draw.random() < 0.3:
        return Pair(lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, :, -1:],
                    lambda _, q, k, v: F.scaled_dot_product_attention(q[:, :, -1:], k, v), (q, k, v))  # fmt: skip
    return Pair(lambda _, q, k, v, i: pick(attend(q, k, v), i), lambda _, q, k, v, i: attend(pick(q, i), k, v),
                (q, k, v, index))  # fmt: skip


@kind
def rows_picked_late(draw: random.Random, rows: int, columns: int) -> Pair:
    """Rows, columns or both picked behind several layers."""
    width, inner = extent(draw), extent(draw)
    w, v, u = drawn(draw, columns, inner), drawn(draw, inner, width), drawn(draw, columns, inner)
    i, j = (torch.tensor([draw.randrange(n) for _ in range(max(1, n // 4))]) for n in (rows, width))
    body = draw.choice((
        lambda x, w, u: torch.relu(x @ w), lambda x, w, u: torch.sigmoid(x @ w) * (x @ u),
        lambda x, w, u: F.gelu(x @ w + u[0]), lambda x, w, u: torch.cat((x @ w, x @ u), 1)[:, :inner],
        lambda x, w, u: torch.where(x[:, :1] > 0, x @ w, x @ u),
    ))  # fmt: skip
    ways = (
        (lambda x, i, j, w, v, u: (body(x, w, u) @ v)[i], lambda x, i, j, w, v, u: body(x[i], w, u) @ v),
        (lambda x, i, j, w, v, u: torch.relu(body(x, w, u) @ v)[i[:, None], j],
         lambda x, i, j, w, v, u: torch.relu(body(x[i], w, u) @ v[:, j])),
        (lambda x, i, j, w, v, u: torch.tanh(body(x, w, u) @ v).index_select(1, j),
         lambda x, i, j, w, v, u: torch.tanh(body(x, w, u) @ v[:, j])),
        (lambda x, i, j, w, v, u: torch.tanh(body(x, w, u) @ v)[::2, 1::3],
         lambda x, i, j, w, v, u: torch.tanh(body(x[::2], w, u) @ v[:, 1::3])),
        (lambda x, i, j, w, v, u: (body(x, w, u) @ v).gather(0, i[:, None].expand(-1, width)),
         lambda x, i, j, w, v, u: body(x[i], w, u) @ v),
    )  # fmt: skip
    return Pair(*draw.choice(ways), (i, j, w, v, u))
