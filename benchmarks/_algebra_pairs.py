"""Kinds of pairs in which factors recur, parts of results are used, rows are picked, images resized, sums repeated."""

import random
from math import gcd

import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks._equivalent_programs import Pair, drawn, extent, kind


@kind
def powers(draw: random.Random, rows: int, columns: int) -> Pair:
    a, count = drawn(draw, columns, columns) / columns**0.5, draw.choice((3, 4, 6, 12))

    def repeated(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = x @ a
        return x

    first = draw.choice((repeated, lambda x, a: x @ repeated(a, a), lambda x, a: (repeated(a.t(), a.t()) @ x.t()).t()))
    more = int(first is not repeated)
    return Pair(first, lambda x, a: x @ torch.linalg.matrix_power(a, count + more), (a,))


@kind
def several_by_powers(draw: random.Random, rows: int, columns: int) -> Pair:
    """Several tensors multiplied by the same matrices: the product of these is formed once."""
    a, count = drawn(draw, columns, columns) / columns**0.5, draw.choice((2, 4, 8))
    b, y = drawn(draw, columns, columns) / columns**0.5, drawn(draw, draw.choice((8, 64, 4 * columns)), columns)
    squarings, two = count.bit_length() - 1, draw.random() < 0.5
    end = draw.choice((torch.relu, torch.tanh, lambda t: t))

    def apart(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x, y = (x @ a @ b, y @ a @ b) if two else (x @ a, y @ a)
        return torch.cat((end(x), end(y * 2), x.sum(0, keepdim=True).tanh()))

    def shared(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        power = a @ b if two else a
        for _ in range(squarings):
            power = power @ power
        x, y = x @ power, y @ power
        return torch.cat((end(x), end(y * 2), x.sum(0, keepdim=True).tanh()))

    return Pair(apart, shared, (y, a, b))


@kind
def parts_of_recurrence(draw: random.Random, rows: int, columns: int) -> Pair:
    hidden, steps, (name, gates) = 32, 6, draw.choice((("lstm", 4), ("gru", 3), ("rnn_tanh", 1)))
    layers, both, count = draw.choice((1, 2)), draw.random() < 0.4, draw.choice((1, 2, 4))
    params = []
    for layer in range(layers):
        inputs = columns if not layer else hidden * (1 + both)
        for _ in range(1 + both):
            shapes = (gates * hidden, inputs), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)
            params += [drawn(draw, *shape) for shape in shapes]
    x = drawn(draw, steps, rows, columns)

    def run(x: torch.Tensor, *p: torch.Tensor, layers: int = layers, both: bool = both) -> tuple[torch.Tensor, ...]:
        zeros = x.new_zeros(layers * (1 + both), x.shape[1], hidden)
        state = (zeros, zeros) if name == "lstm" else zeros
        return getattr(torch, name)(x, state, list(p), True, layers, 0.0, False, both, False)

    ways = [
        (lambda x, *p: run(x, *p)[0][:, : rows // 2], lambda x, *p: run(x[:, : rows // 2], *p)[0]),
        (lambda x, *p: run(x[:, :1].expand(-1, rows, -1), *p)[0],
         lambda x, *p: run(x[:, :1], *p)[0].expand(-1, rows, -1).clone()),
    ]  # fmt: skip
    if not both:
        ways.append((lambda x, *p: run(x, *p)[0][:count], lambda x, *p: run(x[:count], *p)[0]))
    if layers == 2 and not both:
        ways.append((lambda x, *p: run(x, *p)[1][0], lambda x, *p: run(x, *p[:4], layers=1)[1][0]))
    if layers == 1 and both:
        ways.append((lambda x, *p: run(x, *p)[0][..., :hidden], lambda x, *p: run(x, *p[:4], both=False)[0]))
    first, second = draw.choice(ways)
    return Pair(lambda _, x, *p: first(x, *p), lambda _, x, *p: second(x, *p), (x, *params))


@kind
def units_of_one_step(draw: random.Random, rows: int, columns: int) -> Pair:
    hidden, used = 64, draw.choice((1, 16, 48))
    w, u, h, c = (
        drawn(draw, *shape) for shape in ((256, columns), (256, hidden), (1, rows, hidden), (1, rows, hidden))
    )

    def first(x: torch.Tensor, w: torch.Tensor, u: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.lstm(x[None], (h, c), [w, u], False, 1, 0.0, False, False, False)[0][0][:, :used]

    def second(x: torch.Tensor, w: torch.Tensor, u: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        gates = [slice(begin, begin + used) for begin in range(0, 256, hidden)]
        i, f, g, o = (x @ w[part].t() + h[0] @ u[part].t() for part in gates)
        cell = torch.sigmoid(f) * c[0][:, :used] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(cell)

    return Pair(first, second, (w, u, h, c))


@kind
def layers_of_picked_rows(draw: random.Random, rows: int, columns: int) -> Pair:
    a, b = drawn(draw, columns, extent(draw)), drawn(draw, columns, extent(draw))
    index = torch.tensor([draw.randrange(rows) for _ in range(4 * rows)])
    layer = draw.choice((
        lambda x, a, b: torch.relu(x @ a), lambda x, a, b: torch.tanh(x) @ a,
        lambda x, a, b: F.layer_norm(x, (columns,)) @ a,
        lambda x, a, b: F.gelu(F.layer_norm(x + torch.tanh(x) * b.sum(), (columns,)) @ a),
        lambda x, a, b: torch.relu(x @ a) @ a.t() @ b,
    ))  # fmt: skip
    pick = draw.choice((lambda x, i: F.embedding(i, x), lambda x, i: F.embedding(i.view(4, -1), x).flatten(0, 1)))
    return Pair(lambda x, i, a, b: layer(pick(x, i), a, b), lambda x, i, a, b: layer(x, a, b)[i], (index, a, b))


@kind
def picked_elements(draw: random.Random, rows: int, columns: int) -> Pair:
    w, index = drawn(draw, columns, 48), torch.tensor([draw.randrange(48) for _ in range(rows)])
    first = draw.choice((
        lambda x, w, i: (x @ w).gather(1, i[:, None]), lambda x, w, i: (x @ w)[torch.arange(rows), i][:, None],
        lambda x, w, i: (x @ w).double()[torch.arange(rows), i].float()[:, None],
        lambda x, w, i: (x @ w).take_along_dim(i[:, None], 1),
    ))  # fmt: skip
    return Pair(first, lambda x, w, i: torch.bmm(x[:, None], w.t()[i][:, :, None])[:, 0], (w, index))


@kind
def picked_and_converted(draw: random.Random, rows: int, columns: int) -> Pair:
    w, index = (
        drawn(draw, columns, extent(draw)),
        torch.tensor([draw.randrange(rows) for _ in range(max(1, rows // 4))]),
    )
    wide = draw.choice((torch.float64, torch.float32))
    return Pair(lambda x, w, i: (x @ w).to(wide)[i].float(), lambda x, w, i: x[i] @ w, (w, index))


@kind
def resized_image(draw: random.Random, rows: int, columns: int) -> Pair:
    x, size, taps = (
        drawn(draw, 2, 8, 12, 12),
        draw.choice(((18, 18), (20, 30), (24, 36), (12, 23))),
        draw.choice((1, 3)),
    )
    w, mode = drawn(draw, 16, 8, taps, taps), draw.choice(("nearest", "nearest-exact", "bilinear", "bicubic"))

    def second(_: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        each = torch.conv2d(x, w.permute(2, 3, 0, 1).reshape(-1, 8, 1, 1))
        each = F.pad(F.interpolate(each, size, mode=mode), (taps // 2,) * 4).unflatten(1, (taps, taps, 16))
        places = [(i, j) for i in range(taps) for j in range(taps)]
        return sum(each[:, i, j, :, i : i + size[0], j : j + size[1]] for i, j in places)

    return Pair(lambda _, x, w: torch.conv2d(F.interpolate(x, size, mode=mode), w, padding=taps // 2), second, (x, w))


@kind
def gradients_over_resized_image(draw: random.Random, rows: int, columns: int) -> Pair:
    taps, mode = draw.choice((1, 3)), draw.choice(("nearest2d", "bilinear2d"))
    size, sides, outs = draw.choice(((24, 24), (36, 24))), draw.choice(((True, True), (False, True))), 16
    x, w, g = drawn(draw, 2, 8, 12, 12), drawn(draw, outs, 8, taps, taps), drawn(draw, 2, outs, *size)
    corners, back = ((False,) if mode == "bilinear2d" else ()), getattr(torch.ops.aten, f"upsample_{mode}_backward")

    def smaller(t: torch.Tensor) -> torch.Tensor:
        return back(t, size, (*t.shape[:2], 12, 12), *corners, None, None)

    def first(_: torch.Tensor, x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        wide = F.interpolate(x, size, mode=mode[:-2])
        of_x, of_w, _ = torch.ops.aten.convolution_backward(
            g, wide, w, None, (1, 1), (taps // 2,) * 2, (1, 1), False, (0, 0), 1, (*sides, False)
        )
        return torch.cat((of_w.flatten(), smaller(of_x).flatten()))[None] if sides[0] else of_w

    def second(_: torch.Tensor, x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        padded, places = F.pad(g, (taps // 2,) * 4), [(i, j) for i in range(taps) for j in range(taps)]
        parts = [padded[:, :, taps - 1 - i :, taps - 1 - j :][:, :, : size[0], : size[1]] for i, j in places]
        each = torch.stack([smaller(part.contiguous()) for part in parts], 1)
        of_w = torch.einsum("btohw,bchw->oct", each, x).unflatten(2, (taps, taps))
        of_x = torch.einsum("btohw,oct->bchw", each, w.flatten(2))
        return torch.cat((of_w.flatten(), of_x.flatten()))[None] if sides[0] else of_w

    return Pair(first, second, (x, w, g))


@kind
def windows_of_attention(draw: random.Random, rows: int, columns: int) -> Pair:
    q, k, v = (drawn(draw, 8, 16, 8) for _ in range(3))
    ago = torch.arange(16)[:, None] + 16 - torch.arange(32)[None]
    seen = (ago >= 0) & (ago < 16)
    hidden = draw.choice((
        lambda s: s.masked_fill(~seen, float("-inf")), lambda s: torch.where(seen, s, torch.tensor(float("-inf"))),
        lambda s: s + torch.zeros(16, 32).masked_fill(~seen, float("-inf")),
    ))  # fmt: skip

    def first(_: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        both = (torch.cat((F.pad(t, (0, 0, 0, 0, 1, 0))[:-1], t), 1) for t in (k, v))
        keys, values = both
        return hidden(q @ keys.transpose(1, 2)).softmax(-1) @ values

    def second(_: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        keys, values = (F.pad(t.flatten(0, 1), (0, 0, 15, 0)).unfold(0, 16, 1) for t in (k, v))
        scores = (q.flatten(0, 1)[:, None] @ keys).softmax(-1)
        return (scores @ values.transpose(1, 2)).view(8, 16, 8)

    return Pair(first, second, (q, k, v))


@kind
def written_twice(draw: random.Random, rows: int, columns: int) -> Pair:
    w = drawn(draw, columns, extent(draw))
    again = draw.choice((
        lambda x, w: (w.t() @ x.t()).t(), lambda x, w: torch.einsum("ij,jk->ki", x, w).t(),
        lambda x, w: F.conv1d(x.t()[None], w.t()[:, :, None])[0].t(),
        lambda x, w: F.conv1d(x[:, :, None], w.t()[:, :, None])[..., 0],
        lambda x, w: (x.view(gcd(rows, 2), -1, columns) @ w).flatten(0, 1), lambda x, w: (x @ w * 2) / 2,
    ))  # fmt: skip
    return Pair(lambda x, w: torch.relu(x @ w) + torch.tanh(again(x, w)),
                lambda x, w: (lambda y: torch.relu(y) + torch.tanh(y))(x @ w), (w,))  # fmt: skip


@kind
def inverse_times(draw: random.Random, rows: int, columns: int) -> Pair:
    a = drawn(draw, columns, columns) / columns + 2 * torch.eye(columns)
    b = drawn(draw, columns, draw.choice((1, 8, columns)))
    return Pair(lambda _, a, b: torch.linalg.inv(a) @ b, lambda _, a, b: torch.linalg.solve(a, b), (a, b))


@kind
def kronecker(draw: random.Random, rows: int, columns: int) -> Pair:
    a, b = drawn(draw, 8, 4), drawn(draw, extent(draw), 8)
    y = drawn(draw, 32, draw.choice((4, 32, 96)))
    first = draw.choice(
        (lambda _, a, b, y: torch.kron(a, b) @ y, lambda _, a, b, y: (y.t() @ torch.kron(a, b).t()).t())
    )

    def second(_: torch.Tensor, a: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        inner = torch.einsum("ijn,bj->ibn", y.view(4, 8, -1), b)
        return torch.einsum("ibn,ai->abn", inner, a).flatten(0, 1)

    return Pair(first, second, (a, b, y))
