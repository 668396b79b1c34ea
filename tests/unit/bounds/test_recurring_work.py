"""Work that recurs or is used in part: powers, products written twice, parts of layers, resized images."""

import pytest

torch = pytest.importorskip("torch")
from benchmarks import _algebra_pairs  # noqa: E402
from benchmarks._equivalent_programs import KINDS  # noqa: E402
from benchmarks.cheaper_programs import violations  # noqa: E402
from tests.unit.bounds.evaluate import captured, close, results  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from nearpeak.bounds.simplify import rewrite_search  # noqa: E402
from nearpeak.bounds.simplify.product_sums import product  # noqa: E402
from nearpeak.bounds.simplify.resampled_images import _nearest  # noqa: E402
from nearpeak.bounds.simplify.value_graph import Graph  # noqa: E402
from nearpeak.bounds.step.step_bound import least_work  # noqa: E402


class Net(nn.Module):
    def __init__(self, function, layer=None):
        super().__init__()
        self.function, self.layer = function, layer

    def forward(self, *inputs):
        return self.function(self.layer, *inputs) if self.layer else self.function(*inputs)


def products(function, *shapes, layer=None):
    work = least_work(captured(Net(function, layer), *(torch.empty(shape) for shape in shapes)))[1].simplified
    return sum(n for kind, n in work.flop.items() if kind.startswith("matrix.")) // 2


def power(x, a, count):
    for _ in range(count):
        x = x @ a
    return x


# name, function, shapes of inputs, products that are left
CASES = (
    ("fourth power", lambda a: a @ a @ a @ a, [(8, 8)], 2 * 8**3),
    ("many rows by a power", lambda x, a: power(x, a, 8), [(1000, 8), (8, 8)], 3 * 8**3 + 1000 * 8**2),
    ("one row by a power", lambda x, a: power(x, a, 3), [(1, 8), (8, 8)], 3 * 8**2),
    ("steps of a power that are all kept", lambda x, a: (x @ a, x @ a @ a), [(1000, 8), (8, 8)], 2 * 1000 * 8**2),
    ("two tensors by a power", lambda x, y, a: torch.cat((power(x, a, 8).relu(), power(y, a, 8).tanh())),
     [(1000, 8), (500, 8), (8, 8)], 3 * 8**3 + 1500 * 8**2),
    ("two tensors by the same factors", lambda x, y, a, b: torch.cat((x @ a @ b, y @ a @ b)),
     [(2, 8), (64, 8), (8, 8), (8, 8)], 2 * 2 * 8**2 + 64 * 8**2),
    ("two tensors by different parts of a factor",
     lambda x, y, a, b: torch.cat(((x @ a[:8] @ b).tanh(), (y @ a[8:] @ b).relu())),
     [(64, 8), (64, 8), (16, 8), (8, 8)], 2 * (8**3 + 64 * 8**2)),
    ("rows of a small table by a power", lambda e, i, a: power(e[i.long()[:, 0]], a, 3),
     [(5, 8), (40, 1), (8, 8)], 5 * 8**2),  # from below: each of the orders takes the fewest rows
    ("picked rows by an identity",
     lambda e, i, a, b: (torch.ones(40, 40).tril().triu() @ (e[i.long()[:, 0]] @ a)).relu() @ b,
     [(5, 8), (40, 1), (8, 6), (6, 4)], 5 * (48 + 24)),
    ("picked rows by a triangle",
     lambda e, i, a, b: (torch.ones(40, 40).tril() @ (e[i.long()[:, 0]] @ a)).relu() @ b,
     [(5, 8), (40, 1), (8, 6), (6, 4)], 5 * 48 + 40 * 24),
    ("a longer product that takes less",
     lambda a, b, c, d: (a @ b @ c, a @ (b @ (c @ d))), [(3, 8), (8, 8), (8, 30), (30, 1)],
     3 * 8 * 8 + 3 * 8 * 30 + 3 * 30),
    ("different factors", lambda x, a, b: x @ a @ b, [(8, 8)] * 3, 2 * 8**3),
    ("written twice, once transposed", lambda x, a: torch.relu(x @ a) + (a.T @ x.T).T.tanh(), [(6, 8), (8, 4)], 192),
    ("written twice, once as a convolution",
     lambda x, a: torch.relu(x @ a) + F.conv1d(x[..., None], a.T[..., None])[..., 0].tanh(), [(6, 8), (8, 4)], 192),
    ("a part written again",
     lambda x, a: torch.cat((torch.relu(x @ a), (x @ a[:, 1:3]).tanh()), 1), [(6, 8), (8, 4)], 192),
    ("queries and keys of different weights",
     lambda x, a, b: torch.softmax((x @ a) @ (x @ b).T, -1), [(32, 64), (64, 16), (64, 16)], (2 * 64 + 32) * 32 * 16),
    ("queries and keys of one weight",
     lambda x, a: torch.softmax((x @ a) @ (x @ a).T, -1), [(32, 64), (64, 16)], 32 * 64 * 16 + 32 * 33 // 2 * 16),
    ("two different products", lambda x, a, b: torch.relu(x @ a) + (x @ b).tanh(), [(6, 8), (8, 4), (8, 4)], 384),
    ("an inverse that multiplies", lambda a, b: torch.linalg.inv(a) @ b, [(9, 9), (9, 2)], 9 * 80 // 6 + 81 * 2 - 18),
    ("layers of picked rows",
     lambda e, i, a, b: torch.relu(e[i.long()[:, 0]] @ a) @ b, [(5, 8), (40, 1), (8, 6), (6, 4)], 5 * (48 + 24)),
    ("picked elements, which data may make one",
     lambda x, a, i: (x @ a).gather(1, i.long()), [(6, 8), (8, 40), (6, 1)], 8),
)  # fmt: skip


@pytest.mark.parametrize(("function", "shapes", "wanted"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_products_that_recur_count_once(function, shapes, wanted):
    assert products(function, *shapes) == wanted


STEP = 4 * 16 * (8 + 16)
LSTM, TWO, BOTH = nn.LSTM(8, 16), nn.LSTM(8, 16, 2), nn.LSTM(8, 16, bidirectional=True)
# name, layer, what is used of it, products: 3 rows and 7 steps, of which the first has no state and no forget gate
PARTS = (
    ("all", LSTM, lambda m, x: m(x)[0], 3 * (7 * STEP - 16 * 64 - 16 * 8)),
    ("first steps", LSTM, lambda m, x: m(x)[0][:2], 3 * (2 * 8 * 64 + 16 * 64)),
    ("one row", LSTM, lambda m, x: m(x)[0][:, 1], 7 * 8 * 64 + 6 * 16 * 64),
    ("last state alone", LSTM, lambda m, x: m(x)[1][0], 3 * (7 * STEP - 16 * 64 - 16 * 8)),
    ("lower layer alone", TWO, lambda m, x: m(x)[1][0][0], 3 * (7 * 8 * 64 + 6 * 16 * 64)),
    ("one direction", BOTH, lambda m, x: m(x)[0][..., :16], 3 * (7 * 8 * 64 + 6 * 16 * 64)),
    ("last step of the way back", BOTH, lambda m, x: m(x)[0][-1, :, 16:], 3 * 3 * 16 * 8),
    ("rows all alike", LSTM, lambda m, x: m(x[:, :1].expand(7, 3, 8))[0], 7 * 8 * 64 + 6 * 16 * 64),
    ("no input and no bias", nn.LSTM(8, 16, bias=False), lambda m, x: m(x * 0)[0] + x[..., :1], 0),
)


@pytest.mark.parametrize(("layer", "function", "wanted"), [row[1:] for row in PARTS], ids=[row[0] for row in PARTS])
def test_parts_of_a_recurrent_layer_that_are_not_used_count_nothing(layer, function, wanted):
    found = products(function, (7, 3, 8), layer=layer)
    assert wanted - 3 * 16 * 8 * 2 <= found <= wanted


# layers, directions, results used (input, then weights), what has a gradient, what a program forms without the rest
STEPS_BACK = (
    ("all", 1, 1, range(5), lambda y: y, 3 * 7 * 2 * (24 * 64) - 3 * 2 * (16 + 8) * 64 + 3 * 2 * 8 * 48),
    ("first steps", 1, 1, range(5), lambda y: y[:2], 3 * (2 * 2 * 24 * 64 - 2 * (16 * 64 + 8 * 16))),
    ("one row", 1, 1, range(5), lambda y: y[:, 1], 7 * 2 * 24 * 64 - 2 * (16 * 64 + 8 * 16)),
    ("input alone", 1, 1, (0,), lambda y: y, 3 * (7 * 24 - 16) * 64),
    ("weights of inputs alone", 1, 1, (1,), lambda y: y, 3 * (7 * 24 - 16) * 64),
    ("one direction", 1, 2, range(1, 5), lambda y: y[..., :16], 3 * (7 * (24 + 16) - 2 * 16) * 64),
    ("upper layer alone", 2, 1, range(5, 9), lambda y: y, 3 * (7 * (32 + 16) - 2 * 16) * 64),
)  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "ways", "used", "part", "most"), [row[1:] for row in STEPS_BACK], ids=[row[0] for row in STEPS_BACK]
)
def test_gradients_of_a_recurrent_layer_that_are_not_used_count_nothing(layers, ways, used, part, most):
    layer = nn.LSTM(8, 16, layers, bidirectional=ways == 2)

    def gradients(layer, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            given = [x, *layer.parameters()]
            return torch.autograd.grad(part(layer(x)[0]).tanh().sum(), [given[place] for place in used])

    forward = products(lambda layer, x: part(layer(x)[0]).tanh(), (7, 3, 8), layer=layer)
    assert 0 < products(gradients, (7, 3, 8), layer=layer) <= forward + most


def test_a_report_says_that_steps_are_not_used():
    step = least_work(captured(Net(lambda layer, x: layer(x)[0][:2], LSTM), torch.empty(7, 3, 8)))[1]
    assert "unused_steps" in {line.name for line in step.rewrites}


RESIZES = (
    ("by a fraction", {"size": 12}, (1, 2, 8, 8)), ("twice", {"scale_factor": 2.0}, (2, 2, 8, 8)),
    ("linear", {"size": (16, 11), "mode": "bilinear"}, (1, 2, 8, 8)),
    ("corners", {"size": (15, 11), "mode": "bilinear", "align_corners": True}, (2, 2, 8, 8)),
    ("cubic", {"scale_factor": 2.5, "mode": "bicubic"}, (2, 2, 8, 8)),
    ("smoothed", {"size": (5, 4), "mode": "bilinear", "antialias": True}, (2, 2, 8, 8)),
    ("smaller", {"size": (4, 3), "mode": "nearest"}, (2, 2, 8, 8)),
    ("a rounded scale", {"scale_factor": 41.0}, (1, 2, 2, 2)),
)  # fmt: skip


@pytest.mark.parametrize(("options", "shape"), [row[1:] for row in RESIZES], ids=[row[0] for row in RESIZES])
@pytest.mark.parametrize("taps", [1, 3])
def test_convolutions_over_resized_images_are_formed_on_the_smaller_one(options, shape, taps):
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, taps, padding=taps // 2, bias=False).double()
    net, x = Net(lambda layer, x: layer(F.interpolate(x, **options)), layer), torch.randn(shape, dtype=torch.float64)
    workload = captured(net, x)
    work = least_work(workload)[1].simplified
    found = sum(n for kind, n in work.flop.items() if kind.startswith("matrix.")) // 2
    assert 0 < found <= 6 * taps**2 * x[:, 0].numel()
    with torch.no_grad():
        assert close(results(workload, net, [x], rewritten=True), [net(x)])


# what is asked for, what is used of it, products of 2 images of 16 positions, elements that are read
GRADIENTS = (
    ("all", (True, True, True), (0, 1, 2), 2, 2 * 16 * (3 + 4) + 12),
    ("image alone", (True, True, True), (0,), 1, 2 * 16 * 4 + 12),
    ("weight alone", (True, True, False), (1,), 1, 2 * 16 * (3 + 4)),
    ("bias alone", (True, True, True), (2,), 0, 2 * 16 * 4),
    ("image asked for alone", (True, False, False), (0,), 1, 2 * 16 * 4 + 12),
    ("weight and bias asked for alone", (False, True, True), (1, 2), 1, 2 * 16 * (3 + 4)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("mask", "used", "times", "read"), [row[1:] for row in GRADIENTS], ids=[r[0] for r in GRADIENTS]
)
def test_gradients_of_a_convolution_that_are_not_used_count_nothing(mask, used, times, read):
    def gradients(g, x, w):
        conv = torch.ops.aten.convolution_backward
        made = conv(g, x.relu(), w, [4], (1, 1), (0, 0), (1, 1), False, (0, 0), 1, mask)
        return tuple(made[place] for place in used)

    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in ((2, 4, 4, 4), (2, 3, 4, 4), (4, 3, 1, 1))]
    workload = captured(Net(gradients), *inputs)
    work = least_work(workload)[1].simplified
    assert sum(n for kind, n in work.flop.items() if kind.startswith("matrix.")) // 2 == times * 2 * 16 * 12
    assert work.read_bytes == 8 * read
    assert close(results(workload, Net(gradients), inputs, rewritten=True), list(gradients(*inputs)))


def test_large_images_are_resized_without_writing_down_their_pairs():
    layer = nn.Conv2d(8, 8, 3, padding=1)
    left = products(lambda layer, x: layer(F.interpolate(x, size=(700, 600))), (1, 8, 300, 400), layer=layer)
    assert left == 64 * 3 * 300 * (3 * 400 - 1)  # the last column stands once, so that its first tap meets nothing


# how an image of 8 positions is resized, stride of 3 taps, pairs that a program forms at least along one dimension
ALONG = (
    ("taps that meet one element are added up", {"scale_factor": 2.0}, 2, 8 + 7),
    ("each tap meets each element", {"scale_factor": 2.0}, 1, 3 * 8),
    ("resized first, as it becomes smaller", {"size": 4}, 1, 3 * 4 - 2),
)  # fmt: skip


@pytest.mark.parametrize(("options", "stride", "pairs"), [row[1:] for row in ALONG], ids=[row[0] for row in ALONG])
def test_convolutions_over_resized_images_form_the_fewest_pairs(options, stride, pairs):
    layer = nn.Conv2d(2, 3, 3, stride=stride, padding=1)
    assert products(lambda layer, x: layer(F.interpolate(x, **options)), (1, 2, 8, 8), layer=layer) == 6 * pairs**2


def test_a_sweep_that_leaves_more_to_form_does_not_count(monkeypatch):
    graph = Graph({})
    x, a, b = (graph.add("given", (), (8, 8), "fp32", number) for number in range(3))
    first = product(graph, ((x, "mk"), (a, "kn")), "mn", "fp32")
    dear = product(graph, ((first, "mk"), (b, "kn")), "mn", "fp32")
    sweeps = iter([({first: dear}, [rewrite_search.Saving("product_order", -1, (2, 1))])])
    monkeypatch.setattr(rewrite_search, "_sweep", lambda *_: next(sweeps, ({}, [])))
    monkeypatch.setattr(rewrite_search, "_rebuilt", lambda graph, roots, instead: [instead[root] for root in roots])
    assert rewrite_search.search(graph, [first]) == ([first], graph.live([first]), [])


@pytest.mark.parametrize(("taps", "pairs"), [(1, 8**2), (3, 24**2)])
@pytest.mark.parametrize(("mask", "count"), [((True, True, False), 2), ((False, True, True), 1)])
def test_gradients_over_resized_images_form_no_more_pairs_than_the_convolution(taps, pairs, mask, count):
    def gradients(x, w, g):
        wide = F.interpolate(x, scale_factor=2.0)
        pads = (taps // 2,) * 2
        made = torch.ops.aten.convolution_backward(g, wide, w, [3], (1, 1), pads, (1, 1), False, (0, 0), 1, mask)
        return tuple(part for part in made if part is not None)

    assert products(gradients, (1, 2, 8, 8), (3, 2, taps, taps), (1, 3, 16, 16)) <= count * 6 * pairs


@pytest.mark.parametrize("times", [3, 7, 40, 41, 47, 55, 61, 82])
@pytest.mark.parametrize("name", ["nearest", "nearest-exact"])
def test_the_nearest_source_is_that_of_pytorch_but_where_its_scale_rounds_down(times, name):
    x = torch.arange(5, dtype=torch.float32)[None, None]
    operator = "_upsample_nearest_exact1d" if "exact" in name else "upsample_nearest1d"
    for scale in (0.0, float(times)):
        made = F.interpolate(x, **({"scale_factor": scale} if scale else {"size": 5 * times}), mode=name)[0, 0].long()
        before = torch.from_numpy(_nearest(5, 5 * times, (operator, scale, False))) - made
        assert set(before.nonzero()[:, 0].tolist()) <= set(range(times, 5 * times, times))
        assert set(before.tolist()) <= {0, 1}
        assert sorted(set(made.tolist())) == list(range(5))


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.__module__ == _algebra_pairs.__name__])
def test_no_bound_of_such_work_is_above_that_of_an_equivalent_program(name):
    assert [found for seed in range(100, 104) for found in violations(seed, (name,))] == []
