"""Values that repeat or are outer products keep that structure where they are moved, masked, joined or fed to cells."""

import pytest
import torch
from tests.unit.bounds.evaluate import captured, close, results
from torch import nn

from nearpeak.bounds.simplify import element_patterns
from nearpeak.bounds.step.step_bound import least_work

ROWS, COLUMNS, OUT = 6, 8, 5
ORDER = torch.tensor([3, 1, 0, 2, 7, 6, 5, 4])


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def matrix_products(work):
    return sum(n for kind, n in work.flop.items() if kind.startswith("matrix.")) // 2


def wide(x):
    """A matrix whose rows hold one number each."""
    return (1 + x[:, :1]).expand(-1, COLUMNS).clone()


def outer(x):
    return x[:, :1] * x[:1]


def rows_and_first(y):
    return y[:2] + y[:2, :1].tanh()


def one_part_twice(y, w):
    return (y[:, :3] @ w[:3]).relu() + (w[:3].T @ y.T[:3]).T.tanh()


# name, function of a matrix, of weights and of an order, products that are left
CASES = (
    ("repeats reversed", lambda x, w, _: wide(x).flip(1) @ w.flip(0), 0),
    ("repeats picked", lambda x, w, i: wide(x).index_select(1, i) @ w, 0),
    ("repeats indexed", lambda x, w, i: wide(x)[:, i] @ w, 0),
    ("outer product reversed", lambda x, w, _: outer(x).flip(1) @ w, COLUMNS * OUT),
    ("outer product reversed both ways", lambda x, w, _: outer(x).flip(0, 1) @ w, COLUMNS * OUT),
    ("outer product picked", lambda x, w, i: outer(x)[:, i] @ w, OUT),  # all columns may be the same one
    ("rows of an outer product picked", lambda x, w, i: outer(x).index_select(0, i % ROWS) @ w, COLUMNS * OUT),
    ("outer product turned", lambda x, w, _: (x[:1].T * x[:, :1].T).T @ w, COLUMNS * OUT),
    ("rows and an element of each", lambda x, w, _: rows_and_first(x @ w), 2 * COLUMNS * OUT),
    ("some columns of repeated rows", lambda x, w, _: (x.repeat(5, 1) @ w)[:, :1], ROWS * COLUMNS),
    ("a matrix reversed", lambda x, w, _: x.flip(1) @ w, ROWS * COLUMNS * OUT),
    ("weights with scales of picked rows", lambda x, w, i: x @ (w * w[:2][i % 2]), ROWS * COLUMNS * OUT),
    ("rows with picked scales", lambda x, w, i: x @ (w * w[:2, :1].index_select(0, i % 2)), ROWS * COLUMNS * OUT),
    ("difference of outer products", lambda x, w, _: (wide(x) @ w - wide(x) @ w.flip(0)) @ w.T, OUT * COLUMNS),
    ("sum of outer products", lambda x, w, _: sum(wide(part) @ w for part in x.chunk(2)) @ w.T, OUT * COLUMNS),
    ("a part in two orders", lambda x, w, _: one_part_twice(x * 3 + 1, w), ROWS * 3 * OUT),
    ("columns picked behind a chain", lambda x, w, i: (x @ w @ w.T).tanh()[:, i[:2]], COLUMNS * OUT + ROWS * COLUMNS),
    ("rows picked twice", lambda x, w, i: (x[:2][i % 2].tanh()[i.flip(0)] @ w).relu() @ w.T, 2 * 2 * COLUMNS * OUT),
    (
        "an identity and repeated rows",
        lambda x, w, _: torch.eye(3 * ROWS).to(x) @ x.repeat(3, 1) @ w,
        ROWS * COLUMNS * OUT,
    ),
    ("a scaled identity", lambda x, w, _: x @ torch.diag(torch.full((COLUMNS,), 2.0)).to(x) @ w, ROWS * COLUMNS * OUT),
    (
        "an identity between triangles",
        lambda x, w, _: x @ torch.ones(COLUMNS, COLUMNS).tril().triu().to(x) @ w,
        ROWS * COLUMNS * OUT,
    ),
    ("a triangle", lambda x, w, _: x @ (torch.ones(COLUMNS, COLUMNS).to(x).triu() @ w), ROWS * COLUMNS * OUT),
    ("blocks of an identity", lambda x, w, _: torch.kron(torch.eye(2).to(x), x[:, :4]) @ w, ROWS * COLUMNS * OUT),
    ("a matrix picked", lambda x, w, i: x[:, i] @ w, ROWS * COLUMNS * OUT),
)
MASKED = (
    ("repeats under a mask", lambda x, w: (wide(x) * (torch.arange(COLUMNS) < 3)) @ w, 0),
    ("outer product under a mask", lambda x, w: (outer(x) * (torch.arange(COLUMNS) < 3)) @ w, 3 * OUT),
    ("one column under a mask", lambda x, w: (x * (torch.arange(COLUMNS) < 1)) @ w, 0),
    ("a matrix under a mask", lambda x, w: (x * (torch.arange(COLUMNS) < 3)) @ w, ROWS * 3 * OUT),
)


@pytest.mark.parametrize(("function", "wanted"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_moved_factors_keep_their_structure_and_values(function, wanted):
    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in ((ROWS, COLUMNS), (COLUMNS, OUT))]
    inputs.append(ORDER)
    workload = captured(Net(function), *inputs)
    assert matrix_products(least_work(workload)[1].simplified) == wanted
    assert close(results(workload, Net(function), inputs, rewritten=True), [function(*inputs)])


@pytest.mark.parametrize(("function", "wanted"), [row[1:] for row in MASKED], ids=[row[0] for row in MASKED])
def test_masked_factors_keep_their_structure(function, wanted):
    workload = captured(Net(function), torch.empty(ROWS, COLUMNS), torch.empty(COLUMNS, OUT))
    assert matrix_products(least_work(workload)[1].simplified) == wanted


@pytest.mark.parametrize("join", [
    lambda x, y: torch.cat((x, y)), lambda x, y: torch.stack((x, y)).flatten(0, 1), torch.block_diag,
])  # fmt: skip
def test_a_join_after_a_wider_format_is_still_a_join(join):
    def run(x, y, w):
        return (join((x.double() @ x.double().T).float(), y) @ w)[:ROWS]

    inputs = torch.empty(ROWS, ROWS), torch.empty(ROWS, ROWS), torch.empty(12 if join is torch.block_diag else ROWS, 4)
    work = least_work(captured(Net(run), *inputs))[1].simplified
    assert work.read_bytes == 4 * (ROWS * ROWS + ROWS * 4)


@pytest.mark.parametrize("layer", [
    nn.LSTM(8, 16), nn.LSTM(8, 16, 2, proj_size=4), nn.GRU(8, 16, bidirectional=True), nn.GRU(8, 16, bias=False),
    nn.RNN(8, 16, batch_first=True), nn.RNN(8, 16, nonlinearity="relu"),
])  # fmt: skip
def test_inputs_of_recurrent_layers_that_repeat_take_no_products(layer):
    def products(x):
        return matrix_products(least_work(captured(Repeating(layer), x))[1].simplified)

    idle = layer.hidden_size * 8 if layer.mode == "LSTM" or (layer.mode == "GRU" and not layer.bias) else 0
    inputs = (3 * 4 * layer.weight_ih_l0.numel() - 4 * idle) * (1 + layer.bidirectional)
    assert products(torch.empty(3, 4, 8)) - products(torch.empty(3, 4, 1)) == inputs


class Repeating(nn.Module):
    """A recurrent layer whose inputs may hold one number for all features."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.tanh().expand(3, 4, 8))[0]


def test_one_step_from_zero_with_inputs_that_repeat_takes_no_products():
    def run(x, w, u):
        zeros = x.new_zeros(1, 4, 16)
        return torch.gru(x.tanh().expand(1, 4, 8), zeros, [w, u], False, 1, 0.0, False, False, False)[0]

    work = least_work(captured(Net(run), torch.empty(1, 4, 1), torch.empty(48, 8), torch.empty(48, 16)))[1].simplified
    assert matrix_products(work) == 0
    assert work.read_bytes == 4 * (4 + 32 * 8)


def test_elements_picked_of_a_product_too_large_to_write_down_raise_no_bound(monkeypatch):
    def run(x, w, ids):
        return (x @ w).gather(-1, ids)

    workload = captured(Net(run), torch.empty(64, 8), torch.empty(8, 128), torch.empty(64, 1).long())
    monkeypatch.setattr(element_patterns, "_MOST_WRITTEN", 64 * 128 - 1)
    assert matrix_products(least_work(workload)[1].simplified) == 0
