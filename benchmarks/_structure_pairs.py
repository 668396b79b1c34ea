"""Equivalent programs by structure: selections, zeros, repeats, moves, dead branches, states of zero, guessed sizes."""

import random
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks._equivalent_programs import Pair, drawn, extent, kind


def _one_hot(draw: random.Random, count: int) -> Any:
    """Return a function that makes one-hot rows of indices."""
    return draw.choice((
        lambda i: F.one_hot(i, count).float(),
        lambda i: torch.zeros(len(i), count).scatter_(1, i[:, None], 1.0),
        lambda i: torch.zeros(len(i), count).scatter(1, i[:, None], torch.ones(len(i), 1)),
        lambda i: (i[:, None] == torch.arange(count)).float(),
        lambda i: (torch.arange(count)[None] == i[:, None]).to(torch.bfloat16).float(),
        lambda i: torch.eye(count)[i],
        lambda i: F.embedding(i, torch.eye(count)),
        lambda i: torch.eye(count).index_select(0, i),
        lambda i: torch.zeros(len(i), count).index_put((torch.arange(len(i)), i), torch.ones(())),
        lambda i: torch.where(i[:, None] == torch.arange(count), 1.0, 0.0),
    ))  # fmt: skip


@kind
def one_hot_product(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, 4 * columns, extent(draw))
    index = torch.randint(len(w), (rows,), generator=torch.Generator().manual_seed(draw.randrange(2**31)))
    hot = _one_hot(draw, len(w))
    lookup = draw.choice((lambda i, w: F.embedding(i, w), lambda i, w: w[i], lambda i, w: w.index_select(0, i)))
    return Pair(lambda _, i, w: hot(i) @ w, lambda _, i, w: lookup(i, w), (index, w))


@kind
def transposed_one_hot(draw: random.Random, rows: int, columns: int) -> Pair:
    index = torch.randint(rows, (columns,), generator=torch.Generator().manual_seed(draw.randrange(2**31)))
    hot, table = _one_hot(draw, rows), drawn(draw, rows, extent(draw))
    return Pair(lambda _, i, y: (y.t() @ hot(i).t()).t(), lambda _, i, y: y[i], (index, table))


@kind
def scaled_selection(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, 2 * columns, extent(draw))
    index = torch.randint(len(w), (rows,), generator=torch.Generator().manual_seed(draw.randrange(2**31)))
    hot = _one_hot(draw, len(w))
    return Pair(lambda x, i, w: (hot(i) * x[:, :1]) @ w, lambda x, i, w: F.embedding(i, w) * x[:, :1], (index, w))


@kind
def identity_product(draw: random.Random, rows: int, columns: int) -> Pair:
    made = draw.choice((torch.eye, lambda n: torch.diag(torch.ones(n)), lambda n: torch.ones(n, n).tril().triu()))
    left = draw.random() < 0.5
    return Pair(lambda x: made(rows) @ x if left else x @ made(columns), lambda x: x.clone())


@kind
def permuted(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    order = torch.randperm(columns, generator=torch.Generator().manual_seed(draw.randrange(2**31)))
    way = draw.choice((lambda t, axis: t.flip(axis), lambda t, axis: t.index_select(axis, order)))
    return Pair(lambda x, w: way(x, 1) @ way(w, 0), lambda x, w: x @ w, (w,))


@kind
def zero_padded(draw: random.Random, rows: int, columns: int) -> Pair:
    more = extent(draw)
    w = drawn(draw, columns + more, extent(draw))
    pad = draw.choice((
        lambda x: F.pad(x, (0, more)), lambda x: torch.cat((x, torch.zeros(rows, more)), 1),
        lambda x: torch.cat((x, x.new_zeros(rows, more)), 1),
    ))  # fmt: skip
    return Pair(lambda x, w: pad(x) @ w, lambda x, w: x @ w[:columns], (w,))


@kind
def written_into_zeros(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))

    def first(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        buffer = torch.zeros(2 * rows, columns)
        buffer[:rows] = x
        return (buffer @ w)[:rows]

    return Pair(first, lambda x, w: x @ w, (w,))


@kind
def masked_columns(draw: random.Random, rows: int, columns: int) -> Pair:
    kept, w = max(1, columns // 2), drawn(draw, columns, extent(draw))
    mask = draw.choice((
        lambda: (torch.arange(columns) < kept).float(),
        lambda: torch.cat((torch.ones(kept), torch.zeros(columns - kept))),
    ))  # fmt: skip
    return Pair(lambda x, w: (x * mask()) @ w, lambda x, w: x[:, :kept] @ w[:kept], (w,))


@kind
def causal_attention(draw: random.Random, rows: int, columns: int) -> Pair:
    q, k, v = (drawn(draw, 1, 2, 48, 16) for _ in range(3))
    hidden = torch.ones(48, 48, dtype=torch.bool).triu(1)

    def first(_: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = (q @ k.transpose(-1, -2) / 4).masked_fill(hidden, float("-inf"))
        return scores.softmax(-1) @ v

    return Pair(first, lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v))


@kind
def sliced_after(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    kept, along = max(1, w.shape[1] // 3), draw.random() < 0.5
    then = draw.choice((lambda x: x, torch.relu, torch.sigmoid, lambda x: x * 3 + 1))
    if along:
        return Pair(lambda x, w: then(x @ w)[:, :kept], lambda x, w: then(x @ w[:, :kept]), (w,))
    return Pair(lambda x, w: then(x @ w)[: rows // 2], lambda x, w: then(x[: rows // 2] @ w), (w,))


@kind
def joined_and_split(draw: random.Random, rows: int, columns: int) -> Pair:
    w, other = drawn(draw, columns, extent(draw)), drawn(draw, rows, columns)
    return Pair(lambda x, w, o: (torch.cat((x, o)) @ w).split(rows)[0], lambda x, w, o: x @ w, (w, other))


@kind
def blocks_on_the_diagonal(draw: random.Random, rows: int, columns: int) -> Pair:
    wide = extent(draw)
    a, b, y = drawn(draw, columns, 16), drawn(draw, wide, 24), drawn(draw, rows, wide)

    def written(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        whole = torch.zeros(columns + wide, 40)
        whole[:columns, :16] = a
        whole[columns:, 16:] = b
        return whole

    made = draw.choice((lambda a, b: torch.block_diag(a, b), written))
    return Pair(lambda x, a, b, y: torch.cat((x, y), 1) @ made(a, b),
                lambda x, a, b, y: torch.cat((x @ a, y @ b), 1), (a, b, y))  # fmt: skip


@kind
def repeated_rows(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    repeat = draw.choice((
        lambda x: x.repeat(3, 1), lambda x: x[None].expand(3, -1, -1).reshape(3 * rows, -1),
        lambda x: torch.cat((x, x, x)),
    ))  # fmt: skip
    return Pair(lambda x, w: repeat(x) @ w, lambda x, w: repeat(x @ w), (w,))


@kind
def broadcast_materialised(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    return Pair(
        lambda x, w: torch.bmm(x[None].expand(4, -1, -1).contiguous(), w[None].expand(4, -1, -1).contiguous())[0],
        lambda x, w: x @ w, (w,),
    )  # fmt: skip


@kind
def transposed(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    first = draw.choice((
        lambda x, w: (w.t() @ x.t()).t(), lambda x, w: (w.t().contiguous() @ x.t().contiguous()).t(),
        lambda x, w: torch.einsum("nd,dm->nm", x, w), lambda x, w: F.linear(x, w.t().contiguous()),
        lambda x, w: F.conv1d(x.t()[None], w.t()[:, :, None].contiguous())[0].t(),
    ))  # fmt: skip
    return Pair(first, lambda x, w: x @ w, (w,))


@kind
def folded_constants(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    first = draw.choice((
        lambda x, w: (x * 2 * 0.5) @ (w + 0), lambda x, w: x @ w + torch.zeros(rows, w.shape[1]),
        lambda x, w: (x @ w) * torch.ones(w.shape[1]), lambda x, w: (x - x.mean() * 0) @ w,
        lambda x, w: x @ torch.where(torch.ones(columns, 1, dtype=torch.bool), w, -w),
    ))  # fmt: skip
    return Pair(first, lambda x, w: x @ w, (w,))


@kind
def dead_branch(draw: random.Random, rows: int, columns: int) -> Pair:
    w, other = drawn(draw, columns, 32), drawn(draw, columns, 32)
    first = draw.choice((
        lambda x, w, o: torch.where(torch.ones((), dtype=torch.bool), x @ w, x @ o),
        lambda x, w, o: x @ w + 0 * (x @ o), lambda x, w, o: (x @ w, (x @ o).sum())[0],
        lambda x, w, o: x @ w + (x @ o).clamp(0, 0), lambda x, w, o: torch.stack((x @ w, x @ o))[0],
        lambda x, w, o: (x @ w).masked_fill(torch.zeros(rows, 32, dtype=torch.bool), 1.0),
    ))  # fmt: skip
    return Pair(first, lambda x, w, o: x @ w, (w, other))


@kind
def chain_order(draw: random.Random, rows: int, columns: int) -> Pair:
    a, b = drawn(draw, columns, 256), drawn(draw, 256, 8)
    return Pair(lambda x, a, b: (x @ a) @ b, lambda x, a, b: x @ (a @ b), (a, b))


@kind
def summed_product(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    return Pair(lambda x, w: (x @ w).sum(0, keepdim=True), lambda x, w: x.sum(0, keepdim=True) @ w, (w,))


@kind
def split_sum(draw: random.Random, rows: int, columns: int) -> Pair:
    half, w = columns // 2, drawn(draw, columns, extent(draw))
    return Pair(lambda x, w: x[:, :half] @ w[:half] + x[:, half:] @ w[half:], lambda x, w: x @ w, (w,))


@kind
def same_product_twice(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    return Pair(lambda x, w: torch.relu(x @ w) + torch.tanh(x @ w),
                lambda x, w: (lambda y: torch.relu(y) + torch.tanh(y))(x @ w), (w,))  # fmt: skip


@kind
def gram(draw: random.Random, rows: int, columns: int) -> Pair:
    return Pair(lambda x: x @ x.t().contiguous(), lambda x: x @ x.t())


@kind
def zero_factor(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    zeros = draw.choice((
        lambda x: torch.zeros_like(x), lambda x: x * 0, lambda x: torch.relu(-x.abs()),
        lambda x: F.dropout(x * 0.0, 0.0),
        lambda x: torch.zeros(rows, 1).expand(rows, columns),
    ))  # fmt: skip
    return Pair(lambda x, w: x[:, :1] + zeros(x) @ w[:, :1], lambda x, w: x[:, :1].clone(), (w,))


@kind
def one_step_from_zero(draw: random.Random, rows: int, columns: int) -> Pair:
    hidden = draw.choice((16, 64))
    name, gates = draw.choice((("lstm", 4), ("gru", 3), ("rnn_tanh", 1)))
    weights = (drawn(draw, gates * hidden, columns), drawn(draw, gates * hidden, hidden))
    biases = (drawn(draw, gates * hidden), drawn(draw, gates * hidden)) if draw.random() < 0.6 else ()
    zeros = draw.choice((lambda x: x.new_zeros(1, rows, hidden), lambda x: torch.zeros(1, rows, hidden) * 2,
                         lambda x: torch.zeros(rows, hidden)[None].clone()))  # fmt: skip

    def first(x: torch.Tensor, *p: torch.Tensor) -> torch.Tensor:
        state = (zeros(x), zeros(x)) if name == "lstm" else zeros(x)
        return getattr(torch, name)(x[None], state, list(p), bool(biases), 1, 0.0, False, False, False)[0][0]

    return Pair(first, lambda x, *p: _first_step(name, x, p, hidden), (*weights, *biases))


def _first_step(name: str, x: torch.Tensor, p: tuple[torch.Tensor, ...], hidden: int) -> torch.Tensor:
    """Return the state after one step from zero, without what that multiplies."""

    def gate(number: int, *, recurrent: bool = True) -> torch.Tensor:
        part = slice(number * hidden, (number + 1) * hidden)
        value = x @ p[0][part].t()
        return value + p[2][part] + (p[3][part] if recurrent else 0) if len(p) > 2 else value

    if name == "rnn_tanh":
        return torch.tanh(gate(0))
    if name == "lstm":
        return torch.sigmoid(gate(3)) * torch.tanh(torch.sigmoid(gate(0)) * torch.tanh(gate(2)))
    new = gate(2, recurrent=False)
    new = new + torch.sigmoid(gate(0)) * p[3][2 * hidden :] if len(p) > 2 else new
    return (1 - torch.sigmoid(gate(1))) * torch.tanh(new)


@kind
def cells_from_zero(draw: random.Random, rows: int, columns: int) -> Pair:
    hidden, steps = 32, 3
    w, u = drawn(draw, hidden, columns), drawn(draw, hidden, hidden)
    x = drawn(draw, steps, rows, columns)

    def second(_: torch.Tensor, x: torch.Tensor, w: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(x[0] @ w.t())
        for t in range(1, steps):
            h = torch.tanh(x[t] @ w.t() + h @ u.t())
        return h

    def first(_: torch.Tensor, x: torch.Tensor, w: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return torch.rnn_tanh(x, x.new_zeros(1, rows, hidden), [w, u], False, 1, 0.0, False, False, False)[0][-1]

    return Pair(first, second, (x, w, u))


@kind
def guessed_rows(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    first = draw.choice((
        lambda x, w, m: x[m] @ w, lambda x, w, m: (x @ w)[m], lambda x, w, m: x[m.nonzero()[:, 0]] @ w,
        lambda x, w, m: torch.relu(x[m]) @ w, lambda x, w, m: x.masked_select(m[:, None]).reshape(-1, columns) @ w,
    ))  # fmt: skip
    return Pair(lambda x, w: first(x, w, x[:, 0] > 0), lambda x, w: (x[:1] @ w) * (x[:, :1] > 0), (w,), exact=False,
                guess_sizes=True)  # fmt: skip


@kind
def expanded_kernel(draw: random.Random, rows: int, columns: int) -> Pair:
    x, a, b = drawn(draw, 2, 8, 12, 12), drawn(draw, 8, 4, 3, 3), drawn(draw, 8, 4, 3, 3)

    def dense(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(8, 4, 3, 3)
        return torch.cat((torch.cat((a, zeros), 1), torch.cat((zeros, b), 1)))

    return Pair(lambda _, x, a, b: torch.conv2d(x, dense(a, b)),
                lambda _, x, a, b: torch.conv2d(x, torch.cat((a, b)), groups=2), (x, a, b))  # fmt: skip


@kind
def padded_kernel(draw: random.Random, rows: int, columns: int) -> Pair:
    x, w = drawn(draw, 2, 8, 12, 12), drawn(draw, 16, 8, 1, 1)
    return Pair(lambda _, x, w: torch.conv2d(x, F.pad(w, (1, 1, 1, 1)), padding=1),
                lambda _, x, w: torch.conv2d(x, w), (x, w))  # fmt: skip


@kind
def single_element_reductions(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    first = draw.choice((
        lambda x, w: (x @ w)[:, None].softmax(1)[:, 0] + x[:, :1], lambda x, w: 1 + x[:, :1] + 0 * (x @ w),
    ))  # fmt: skip
    return Pair(first, lambda x, w: (1 + x[:, :1]).expand(-1, w.shape[1]).clone(), (w,))


@kind
def constant_factor(draw: random.Random, rows: int, columns: int) -> Pair:
    """A product with a matrix that is one number everywhere is a sum of rows."""
    width, number = extent(draw), draw.choice((1.0, 2.0, -0.5))
    made = draw.choice((
        lambda *shape: torch.full(shape, number), lambda *shape: torch.ones(shape) * number,
        lambda *shape: torch.ones(1, 1).expand(shape) * number,
    ))  # fmt: skip
    return Pair(
        lambda x: x @ made(columns, width),
        lambda x: (x.sum(1, keepdim=True) * number).expand(rows, width).contiguous(),
    )
