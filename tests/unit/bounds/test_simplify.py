"""The simplified engine: each rewrite fires where it holds, not beside it, and changes no value."""

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.sampling import sampled
from tests.unit.bounds.evaluate import captured, close, results
from tests.unit.bounds.random_networks import Drawn
from torch import nn

import nearpeak
from nearpeak.bounds.simplify.rewrites import REWRITES
from nearpeak.bounds.step.step_bound import least_work
from nearpeak.core.work.capture_options import CaptureOptions


class Net(nn.Module):
    """A function with layers."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def network(function, training=False, **layers):
    torch.manual_seed(0)
    net = Net(function, **layers).double().train(training)
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    for name, buffer in net.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 2.0)
    return net


def drawn(*shapes):
    torch.manual_seed(1)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def simplified(workload):
    """Return products and bytes before and after, and the names of the rewrites."""
    _, both = least_work(workload)
    step, least, lines = both.as_written, both.simplified, both.rewrites

    def products(work):
        return sum(flop for kind, flop in work.flop.items() if kind.startswith("matrix.")) // 2

    return products(step), products(least), step.read_bytes, least.read_bytes, {line.name for line in lines}


def masked_and_whole(rows, mask, w):
    return torch.cat((rows, (rows * mask) @ w), 1)


def part_and_whole(rows):
    return rows.tanh() + rows[:1].relu()


def last_logits(net, x):
    return net.a(net.n(x))[:, -1]


def zero_from_maximum(net, x):  # the largest of each row, minus the mean of that one number
    x = torch.max(net.a(x), 1, keepdim=True).values
    return F.gelu(x - x.mean(1, keepdim=True))


def zero_from_limits(net, x):
    return F.dropout(torch.clamp(torch.min(net.a(x), torch.tensor(0.0, dtype=x.dtype)), 0.0, 1.0), 0.2, net.training)


def attended(_net, q, k, v):
    return F.scaled_dot_product_attention(q, k, v)[:, :, :1]


def written_in_part(net, x):
    y = torch.zeros(5, 30, dtype=x.dtype)
    y[:, :20] = net.a(x)
    y[:, 20:] = 1.0
    return y[:, :20].sum(1)


def overwritten(net, x):
    y = torch.zeros(5, 30, dtype=x.dtype)
    y[:, :20] = net.a(x)
    y[:, 10:] = x.relu().sum()
    return y[:, :20].sum(1)


def whole_and_sum(net, x):
    y = net.a(x)
    return y, y.sum(1)


def gated(net, x):
    left, right = net.a(x).chunk(2, 1)
    return left.relu() * right


def polynomial(_net, x):
    square = x @ x.T
    return square * 2 + square @ square


def halved_and_whole(_net, x, y):
    whole = x @ y
    return whole, whole.tril()


def enlarged(**options):
    return lambda net, x: net.c(F.interpolate(x, **options))


def attended_by_hand(_net, q, k, v):
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    return ((q @ k.transpose(1, 2)) / 2).masked_fill(later, float("-inf")).softmax(-1) @ v


LINEAR = {"a": nn.Linear(8, 20)}
# name, function, layers, training, input shapes, rewrite that must fire, products before, products after.
# Products by hand: 5 rows of 8 through 20 outputs are 800; a row sum leaves 5 x 8 = 40; one of five rows is 160.
FIRES = (
    ("row sum of a linear map", lambda n, x: (n.a(x) / 2).sum(1, keepdim=True) * 1.5, LINEAR, False, [(5, 8)],
     "sum_through_product", 800, 40),
    ("part of a storage read back", written_in_part, LINEAR, False, [(5, 8)], "sum_through_product", 800, 40),
    ("a padded sum", lambda n, x, y: F.pad(x, (0, 3)) @ y, {}, False, [(5, 8), (11, 4)], "zero_padding", 220, 160),
    ("zeros beside a factor", lambda n, x, y: torch.cat((torch.zeros(5, 3, dtype=torch.float64), x), 1) @ y, {}, False,
     [(5, 8), (11, 4)], "zero_padding", 220, 160),
    ("mean of a matrix product", lambda n, x, y: (x @ y).mean(0), {}, False, [(5, 8), (8, 20)],
     "sum_through_product", 800, 160),
    ("channel sum of a convolution", lambda n, x: n.c(x).sum(1), {"c": nn.Conv2d(4, 6, 3)}, False, [(2, 4, 9, 8)],
     "sum_through_product", 2 * 6 * 4 * 42 * 9, 2 * 4 * 42 * 9),
    ("mean of a padded convolution", lambda n, x: n.c(x).mean((2, 3)), {"c": nn.Conv2d(4, 6, 3, padding=1, stride=2)},
     False, [(2, 4, 9, 8)], "sum_through_product", 2 * 6 * 4 * 13 * 11, 2 * 6 * 4 * 9),
    ("mean of a transposed convolution", lambda n, x: (n.c(x) * 2).mean((2, 3)),
     {"c": nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)}, False, [(2, 4, 6, 5)],
     "sum_through_product", 2 * 6 * 4 * 17 * 14, 2 * 6 * 4 * 9),
    ("mean over average pooling", lambda n, x: F.avg_pool2d(n.c(x), 2).mean((2, 3)), {"c": nn.Conv2d(4, 6, 3)}, False,
     [(2, 4, 10, 8)], "sum_through_product", 2 * 6 * 4 * 48 * 9, 2 * 6 * 4 * 9),
    ("batch normalisation in evaluation", lambda n, x: n.n(n.c(x)).mean((2, 3)),
     {"c": nn.Conv2d(4, 6, 3), "n": nn.BatchNorm2d(6)}, False, [(2, 4, 9, 8)],
     "sum_through_product", 2 * 6 * 4 * 42 * 9, 2 * 6 * 4 * 9),
    ("two linear maps", lambda n, x: n.b(n.a(x)), {"a": nn.Linear(16, 32), "b": nn.Linear(32, 2)}, False, [(4, 16)],
     "product_order", 4 * 32 * 16 + 4 * 2 * 32, 2 * 16 * 32 + 2 * 32 + 4 * 2 * 16),
    ("low-rank update", lambda n, x, a, b: x @ (a @ b), {}, False, [(4, 16), (16, 2), (2, 16)],
     "product_order", 16 * 2 * 16 + 4 * 16 * 16, 4 * 16 * 2 + 4 * 2 * 16),
    ("linear attention", lambda n, q, k, v: (q @ k.transpose(1, 2)) @ v, {}, False, [(2, 50, 4)] * 3,
     "product_order", 4 * 50 * 50 * 4, 4 * 50 * 16),
    ("last position of the logits", last_logits, {**LINEAR, "n": nn.LayerNorm(8)}, False, [(2, 5, 8)],
     "slice_through_product", 2 * 5 * 160, 2 * 160),
    ("rows of a normalisation", last_logits, {**LINEAR, "n": nn.LayerNorm(8)}, False, [(2, 5, 8)],
     "slice_of_rows", 2 * 5 * 160, 2 * 160),
    ("query rows of an attention", attended, {}, False, [(1, 2, 6, 4)] * 3,
     "slice_of_rows", 2 * 2 * 36 * 4, 2 * 2 * 6 * 4),
    ("slice through a sum", lambda n, x: (n.a(x) + 1).relu()[:2], LINEAR, False, [(5, 8)],
     "slice_of_pointwise", 800, 320),
    ("cropped convolution", lambda n, x: n.c(x)[:, :, :2, 1:2], {"c": nn.Conv2d(4, 6, 3)}, False, [(2, 4, 9, 8)],
     "slice_through_product", 2 * 6 * 4 * 42 * 9, 2 * 6 * 4 * 2 * 9),
    ("number minus itself", zero_from_maximum, LINEAR, False, [(5, 8)], "like_terms", 800, 0),
    ("range of one point", zero_from_limits, LINEAR, False, [(5, 8)], "constant_range", 800, 0),
    ("softmax over one element", lambda n, x: n.a(x).sum(1, keepdim=True).softmax(1), LINEAR, False, [(5, 8)],
     "single_element", 800, 0),
    ("low-rank update beside a map", lambda n, x, a, b: n.a(x) - (x @ a) @ b, LINEAR, False, [(50, 8), (8, 4), (4, 20)],
     "shared_operand", 8000 + 1600 + 4000, 640 + 8000),
    ("one factor of several products", lambda n, x, y: sum(part @ y for part in x.chunk(4)), {}, False,
     [(20, 8), (8, 6)], "shared_operand", 20 * 48, 5 * 48),
    ("sums of pairs of rows", lambda n, x, y: n.a(x[:, None] + y[None]), LINEAR, False, [(5, 8), (6, 8)],
     "repeated_operand", 30 * 160, 11 * 160),
    ("pairs of rows side by side",
     lambda n, x, y: n.b(torch.cat((x[:, None].expand(5, 6, 8), y[None].expand(5, 6, 8)), -1)),
     {"b": nn.Linear(16, 4)}, False, [(5, 8), (6, 8)], "repeated_operand", 30 * 64, 11 * 32),
    ("columns many times", lambda n, x, y: x.repeat(1, 3) @ y, {}, False, [(5, 8), (24, 4)],
     "repeated_operand", 5 * 96, 5 * 32),
    ("attention to one key", lambda n, q, k, v: F.scaled_dot_product_attention(n.a(q), k, v), {"a": nn.Linear(4, 4)},
     False, [(1, 2, 6, 4), (1, 2, 1, 4), (1, 2, 1, 4)], "single_element", 12 * 16 + 2 * 12 * 4, 0),
    ("normalised groups of one", lambda n, x: n.n(n.a(x)), {"a": nn.Linear(8, 6), "n": nn.GroupNorm(6, 6)}, False,
     [(5, 8)], "single_element", 240, 0),
    ("mask of a sum of repeats that is also needed",
     lambda n, x, y, z, w: masked_and_whole((x @ y).repeat(3, 1) + 1, w, z), {}, False,
     [(5, 8), (8, 6), (6, 4), (6,)], "repeated_operand", 600, 360),
    ("part and whole of products of one factor", lambda n, x, y, z: part_and_whole(x @ y - x @ z), {}, False,
     [(5, 8), (8, 6), (8, 6)], "shared_operand", 480, 240),
    ("more rows by position than computed", lambda n, x, y, z: x.tanh()[z.argmax(1)] @ y, {}, False,
     [(5, 8), (8, 6), (20, 5)], "product_order", 960, 240),
    ("rows by position of repeated ones", lambda n, x, y, z: x.repeat(3, 1).tanh()[z.argmax(1)] @ y, {}, False,
     [(5, 8), (8, 6), (60, 15)], "product_order", 2880, 240),
    ("masked rows that are all alike",
     lambda n, x, y, z, w: masked_and_whole((x[:, None].expand(-1, 8) * w) @ y, torch.ones(()), z), {}, False,
     [(16,), (8, 6), (6, 4), (8,)], "repeated_operand", 1152, 72),
    ("parts of work on repeated columns",
     lambda n, x, y: sum(part @ y for part in x[:, :1].tanh().expand(-1, 8).chunk(4)), {}, False, [(20, 8), (8, 6)],
     "slice_of_pointwise", 960, 0),
    ("same rows through two layers", lambda n, x, y, z: torch.relu(torch.cat((x, x)) @ y) @ z, {}, False,
     [(5, 8), (8, 6), (6, 4)], "repeated_operand", 720, 360),
    ("rows masked by what is known", lambda n, x, y: (x @ y) * (torch.arange(6) < 2)[:, None], {}, False,
     [(6, 8), (8, 4)], "masked_product", 192, 64),
    ("interpolation that takes one end", lambda n, x, y: torch.lerp(n.a(x).sum(1, keepdim=True), x @ y, 0.0), LINEAR,
     False, [(5, 8), (8, 6)], "sum_through_product", 800 + 240, 40),
    ("attention of queries all alike",
     lambda n, q, k, v: F.scaled_dot_product_attention(q.expand(1, 2, 6, 4), k, v), {}, False,
     [(1, 2, 1, 4), (1, 2, 5, 4), (1, 2, 5, 4)], "single_element", 2 * 2 * 6 * 5 * 4, 2 * 2 * 5 * 4),
    ("sum of a softmax", lambda n, x, y: n.a(x).sum(1, keepdim=True) + (x @ y).softmax(1).sum(1, keepdim=True), LINEAR,
     False, [(5, 8), (8, 6)], "sum_through_product", 800 + 240, 40),
    ("last of a running sum", lambda n, x: n.a(x).cumsum(1)[:, -1], LINEAR, False, [(2, 5, 8)],
     "last_of_scan", 1600, 320),
    ("slice of one part", lambda n, x: torch.cat([n.a(x), n.b(x)], 1)[:, :20],
     {**LINEAR, "b": nn.Linear(8, 30)}, False, [(5, 8)], "slice_of_join", 2000, 800),
    ("parts joined again", lambda n, x: torch.cat(n.a(x).chunk(2, 1), 1).sum(1),
     {"a": nn.Linear(8, 20, bias=False)}, False, [(5, 8)],
     "join_of_slices", 800, 40),
    ("same call twice", lambda n, x: n.a(x).relu() * torch.sigmoid(n.a(x)), LINEAR, False, [(5, 8)],
     "computed_once", 1600, 800),
    ("one row many times", lambda n, x, y: x.expand(7, 5, 8).reshape(35, 8) @ y, {}, False, [(5, 8), (8, 4)],
     "repeated_operand", 35 * 32, 5 * 32),
    ("each row three times", lambda n, x, y: (x.repeat_interleave(3, 0) @ y).relu(), {}, False, [(5, 8), (8, 4)],
     "repeated_operand", 15 * 32, 5 * 32),
    ("lower half of a product", lambda n, x, y: (x @ y).tril(-1), {}, False, [(5, 8), (8, 6)],
     "known_zeros", 240, 10 * 8),
    ("product with an upper triangle", lambda n, x, y: y @ x.triu(), {}, False, [(6, 5), (3, 6)],
     "known_zeros", 90, 3 * 15),
    ("triangle turned", lambda n, x, y: y @ x.tril().T, {}, False, [(6, 5), (3, 5)], "known_zeros", 90, 3 * 20),
    ("a polynomial of rows by rows", polynomial, {}, False, [(5, 8)],
     "symmetric_product", 15 * 8 + 125, 15 * 8 + 15 * 5),
    ("causal attention written out", attended_by_hand, {}, False, [(2, 6, 4)] * 3,
     "masked_product", 2 * 2 * 36 * 4, 2 * 2 * 21 * 4),
    ("covariance of what a nonlinearity gives", lambda n, x: x.relu().t().matmul(x.relu()) / 5, {}, False, [(5, 8)],
     "symmetric_product", 320, 36 * 5),
    ("taps that meet repeats of one element", enlarged(scale_factor=2.0), {"c": nn.Conv2d(1, 1, 5, padding=2)}, False,
     [(1, 1, 8, 8)], "product_order", 74**2, 38**2),
    ("taps that meet repeats in the middle", enlarged(size=16, mode="nearest-exact"),
     {"c": nn.Conv1d(2, 3, 5, padding=2)}, False, [(1, 2, 8)], "product_order", 6 * 74, 6 * 38),
    ("an image enlarged by a fraction", enlarged(scale_factor=1.6), {"c": nn.Conv2d(2, 3, 1)}, False,
     [(1, 2, 5, 5)], "product_order", 6 * 64, 6 * 25),
    ("a number picked from one number", lambda n, x: n.a(x).sum().index_select(0, torch.zeros(1, dtype=torch.int64)),
     LINEAR, False, [(5, 8)], "sum_through_product", 800, 8),
    ("a number scaled to a sum of 1", lambda n, x: n.a(x).sum().softmax(0), LINEAR, False,
     [(5, 8)], "single_element", 800, 0),
    ("part of products of which one lies across", lambda n, x, a, b, c: (x @ a + (x @ b).T)[:8] @ c, {}, False,
     [(16, 16), (16, 16), (16, 16), (16, 1)], "slice_through_product", 8320, 768),
    ("the second query of a causal mask",
     lambda n, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, :, 1:2], {}, False,
     [(1, 2, 6, 4)] * 3, "masked_product", 336, 32),
    ("a column of causal attention",
     lambda n, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)[..., :1], {}, False,
     [(1, 2, 6, 4)] * 3, "masked_product", 336, 210),
    ("part of a storage overwritten", overwritten, LINEAR, False, [(5, 8)], "masked_product", 800, 400),
    ("a shift of rows beside them", lambda n, x: n.a(x).tanh() + n.a(x.roll(1, 0)).relu(), LINEAR, False, [(5, 8)],
     "computed_once", 1600, 800),
    ("rows in reverse beside them", lambda n, x: n.a(x).tanh() + n.a(x.flip(0)).tanh().flip(0), LINEAR, False, [(5, 8)],
     "computed_once", 1600, 800),
    ("a shift into padding beside the rows", lambda n, x: n.a(x).tanh() + F.pad(x, (0, 0, 1, -1)) @ n.a.weight.t(),
     LINEAR, False, [(2, 5, 8)], "computed_once", 3200, 1600),
    ("rows that stand several times", lambda n, x, y: n.a(x.expand(5, 8)).softmax(-1) @ y, LINEAR, False,
     [(1, 8), (20, 3)], "repeated_rows", 5 * 8 * 20 + 5 * 20 * 3, 8 * 20 + 20 * 3),
    ("two columns of attention with a mask",
     lambda n, q, k, v, m: sum(F.scaled_dot_product_attention(q, k, v, m)[..., :2].chunk(2, -1)), {}, False,
     [(1, 2, 6, 4)] * 3 + [(6, 6)], "masked_product", 576, 432),
    ("rows of largest elements", lambda n, x, y: (x @ y).amax(1)[1::2], {}, False,
     [(6, 8), (8, 5)], "slice_of_rows", 240, 120),
    ("rows in reverse order", lambda n, x, y: (x @ y).flip(0)[:2], {}, False,
     [(6, 8), (8, 5)], "masked_product", 240, 80),
    ("a choice that is known", lambda n, x, y, z: torch.where(torch.ones((), dtype=torch.bool), x @ y, x @ z)[:, :1],
     {}, False, [(6, 8), (8, 5), (8, 5)], "known_choice", 480, 48),
    ("a diagonal", lambda n, x, y: (x @ y).tanh().diagonal(), {}, False, [(6, 8), (8, 6)], "masked_product", 288, 48),
    ("a trace", lambda n, x, y: (x @ y).trace(), {}, False, [(6, 8), (8, 6)], "masked_product", 288, 48),
    ("rows of an integer result", lambda n, x, y: (x @ y).argmax(1).float()[:2], {}, False,
     [(6, 8), (8, 5)], "slice_of_pointwise", 240, 80),
    ("positions in two dimensions of which one repeats",
     lambda n, x, y, z: x.tanh()[:, None].expand(5, 10, 8)[z.argmax(1), z.argmin(1)] @ y, {}, False,
     [(5, 8), (8, 6), (40, 5)], "product_order", 1920, 240),
)  # fmt: skip
# The near twins: something stands between, something else needs the whole, or the values are not known.
STAYS = (
    ("padded rows", lambda n, x, y: torch.cat((x, x + 1), 1) @ y, {}, False, [(5, 8), (16, 4)]),
    ("a nonlinearity before the sum", lambda n, x: n.a(x).relu().sum(1), LINEAR, False, [(5, 8)]),
    ("a largest element is no sum", lambda n, x: n.a(x).amax(1), LINEAR, False, [(5, 8)]),
    ("the sum of squares", lambda n, x: n.a(x).square().sum(1), LINEAR, False, [(5, 8)]),
    ("a nonlinearity between two maps", lambda n, x: n.b(n.a(x).relu()),
     {"a": nn.Linear(16, 32), "b": nn.Linear(32, 2)}, False, [(4, 16)]),
    ("two maps that widen", lambda n, x: n.b(n.a(x)), {"a": nn.Linear(2, 2), "b": nn.Linear(2, 32)}, False, [(4, 2)]),
    ("softmax between two products", lambda n, q, k, v: (q @ k.transpose(1, 2)).softmax(-1) @ v, {}, False,
     [(2, 50, 4)] * 3),
    ("the whole is returned as well", whole_and_sum, LINEAR, False, [(5, 8)]),
    ("all parts are used", gated, LINEAR, False, [(5, 8)]),
    ("statistics of the batch", lambda n, x: n.n(n.c(x)).mean((2, 3)),
     {"c": nn.Conv2d(4, 6, 3), "n": nn.BatchNorm2d(6)}, True,
     [(2, 4, 9, 8)]),
    ("normalised groups, parameters unknown", lambda n, x: n.n(n.c(x)).mean((1, 2, 3)),
     {"c": nn.Conv2d(4, 6, 3), "n": nn.GroupNorm(2, 6)}, False, [(2, 4, 9, 8)]),
    ("normalised rows, parameters unknown", lambda n, x: n.n(n.a(x)).mean(1), {**LINEAR, "n": nn.LayerNorm(20)}, False,
     [(5, 8)]),
    ("minus the mean of many", lambda n, x: F.gelu(n.a(x) - n.a(x).mean(1, keepdim=True)), LINEAR, False, [(5, 8)]),
    ("limits with room between", lambda n, x: torch.clamp(torch.clamp(n.a(x), max=0.1), 0.0, 1.0), LINEAR, False,
     [(5, 8)]),
    ("the first of a running sum of activations", lambda n, x: n.a(x).relu().cumsum(1)[:, -1], LINEAR, False,
     [(2, 5, 8)]),
    ("lower half and the whole", halved_and_whole, {}, False, [(5, 8), (8, 6)]),
    ("rows by other rows", lambda n, x, y: x @ y.T, {}, False, [(5, 8), (5, 8)]),
    ("a square is not symmetric", lambda n, x: x @ x, {}, False, [(8, 8)]),
    ("rows scaled on one side", lambda n, x, s: (x * s) @ x.T, {}, False, [(5, 8), (5, 1)]),
    ("a batch by its neighbour", lambda n, x: x[:1] @ x[1:].transpose(1, 2), {}, False, [(2, 5, 8)]),
    ("another dimension of the softmax", lambda n, x: n.a(x).softmax(0)[:2], LINEAR, False, [(5, 8)]),
)  # fmt: skip


@pytest.mark.parametrize(("function", "layers", "training", "shapes", "name", "before", "after"),
                         [row[1:] for row in FIRES], ids=[row[0] for row in FIRES])  # fmt: skip
def test_a_rewrite_fires_and_changes_no_value(function, layers, training, shapes, name, before, after):
    net, inputs = network(function, training, **layers), drawn(*shapes)
    workload = captured(net, *inputs)
    found = simplified(workload)
    assert name in found[4]
    assert found[:2] == (before, after)
    assert found[3] <= found[2]
    agrees(workload, net, inputs)


@pytest.mark.parametrize(("function", "layers", "training", "shapes"), [row[1:] for row in STAYS],
                         ids=[row[0] for row in STAYS])  # fmt: skip
def test_its_near_twin_keeps_every_product(function, layers, training, shapes):
    net, inputs = network(function, training, **layers), drawn(*shapes)
    workload = captured(net, *inputs)
    before, after, *_, names = simplified(workload)
    assert before == after > 0 or names == {"computed_once"}
    agrees(workload, net, inputs)


def agrees(workload, net, inputs):
    with torch.no_grad():
        y = copy.deepcopy(net)(*[tensor.clone() for tensor in inputs])
    wanted = list(y) if isinstance(y, tuple) else [y]
    assert close(results(workload, net, inputs, rewritten=False), wanted)
    assert close(results(workload, net, inputs, rewritten=True), wanted)


def test_every_rewrite_that_reports_name_has_a_case_where_it_fires():
    by_values = {"narrow_format", "zero_state", "zero_factor", "selected_rows", "guessed_size"}  # test_value_facts.py
    elsewhere = {"unread_elements", "unused_steps"} | by_values  # the second in test_recurring_work.py
    assert {row[5] for row in FIRES} | elsewhere == {name for name in REWRITES if REWRITES[name].shown}


@pytest.mark.parametrize("seed", sampled(range(60), 20))
def test_a_random_network_keeps_its_values(seed):
    shape = ((4, 6), (2, 4, 6), (2, 2, 4, 6))[seed % 3]
    net, inputs = Drawn(seed), drawn(shape)
    with torch.no_grad():
        wanted = net(*inputs)
    try:
        workload = captured(net, *inputs)
    except nearpeak.NearpeakError:
        pytest.skip("the network only moves its input")
    for rewritten in (False, True):
        found = results(workload, net, inputs, rewritten=rewritten)
        assert not found or close(found, [wanted])  # no result where a part of the input is returned as it is
    before, after, read, less, _ = simplified(workload)
    assert after <= before
    assert less <= read


def test_the_bound_is_the_smaller_one_and_says_why():
    net = network(lambda n, x: n.a(x).sum(1), a=nn.Linear(8192, 8192, bias=False))
    workload = captured(net, torch.zeros(1024, 8192, dtype=torch.float64))
    bound = nearpeak.bound(workload, "h100_sxm")
    assert bound.time_s < bound.as_written_s
    assert [line.name for line in bound.rewrites] == ["sum_through_product"]
    assert {"A8", "A18"} <= set(bound.assumptions)
    assert bound.rewrites[0].before_flop > 900 * bound.rewrites[0].after_flop


def test_a_step_that_nothing_simplifies_stands_as_written():
    bound = nearpeak.bound(captured(network(lambda n, x: n.a(x).relu(), **LINEAR), *drawn((5, 8))), "h100_sxm")
    assert (bound.as_written_s, bound.rewrites) == (None, ())
    assert "A18" not in bound.assumptions


def test_nothing_is_concluded_from_the_loss_that_stands_in():
    from nearpeak.frontends.torch.module_capture import capture_torch

    workload = capture_torch(
        network(lambda n, x: n.a(x), **LINEAR), (drawn((5, 8)), {}), CaptureOptions(step="train"), name="test"
    )
    assert simplified(workload)[:2] == (1600, 1600)


def test_a_saved_step_is_simplified_alike_and_an_older_one_stands_as_written():
    import json

    from nearpeak.frontends.files.saved_workload import load_text, save_text

    net = network(zero_from_limits, **LINEAR)
    workload = captured(net, *drawn((5, 8)))
    text = save_text(workload)
    assert load_text(text, "w.json") == workload
    assert save_text(load_text(text, "w.json")) == text
    assert simplified(load_text(text, "w.json"))[1] == 0
    old = json.loads(text)
    for key in ("forms", "returned", "values"):
        del old[key]
    old["calls"] = [{key: value for key, value in call.items() if key != "form"} for call in old["calls"]]
    assert simplified(load_text(json.dumps(old), "w.json"))[:2] == (800, 800)
