"""Products under masks of the program: counted exactly, and what is left out changes no result."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.sampling import in_turn, sampled
from tests.unit.bounds.evaluate import captured, evaluated

import nearpeak
from nearpeak.bounds.simplify.element_patterns import Bits, Patterns, count
from nearpeak.bounds.simplify.graph_builder import read_step
from nearpeak.bounds.simplify.linear_algebra import LIFTS
from nearpeak.bounds.simplify.live_elements import alive
from nearpeak.bounds.simplify.product_sums import contracts
from nearpeak.bounds.simplify.rewrites import rules
from nearpeak.bounds.simplify.value_graph import Graph
from nearpeak.bounds.step.step_bound import least_work
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.frontends.files.saved_workload import load_text, save_text
from nearpeak.frontends.torch.module_capture import capture_torch

S, D = 6, 4
CAUSAL = S * (S + 1) // 2


def least(function, *inputs, step="forward"):
    """Multiply-adds of the simplified step, and as written."""
    workload = capture_torch(lambda: function, lambda: (inputs, {}), CaptureOptions(step=step), name="masked")
    workload = load_text(save_text(workload), "w.json")
    _, step = least_work(workload)
    return tuple(
        sum(n for kind, n in work.flop.items() if kind.startswith("matrix.")) // 2
        for work in (step.simplified, step.as_written)
    )


def lower(extent=S):
    return torch.ones(extent, extent, dtype=torch.bool).tril()


def filled(scores):
    return scores.masked_fill(~lower(), float("-inf"))


def in_place(scores):
    scores = scores.clone()
    scores.masked_fill_(~lower(), torch.finfo(torch.float32).min)
    return scores


def added(scores):
    return scores / D**0.5 + torch.full((S, S), float("-inf")).triu(1)


def chosen(scores):
    return torch.where(lower(), scores, torch.tensor(-1e9))


def shifted(scores):
    return scores + (1.0 - lower().float()) * -10000.0 * 1e6


MASKS = (filled, in_place, added, chosen, shifted)


def written_out(mask, drop=0.0):
    def run(q, k, v):
        weights = F.dropout(mask(q @ k.transpose(-1, -2)).softmax(-1, dtype=torch.float32), drop, training=True)
        return weights @ v

    return run


@pytest.mark.parametrize(("mask", "drop"), in_turn(MASKS, [0.0, 0.1]))
def test_causal_attention_written_out_takes_the_products_of_live_pairs(mask, drop):
    qkv = [torch.rand(2, 3, S, D) for _ in range(3)]
    pairs = 2 * 3 * CAUSAL * D
    assert least(written_out(mask, drop), *qkv)[0] == 2 * pairs
    assert least(written_out(mask, drop), *qkv, step="train")[0] == 6 * pairs


def test_the_products_are_those_of_the_attention_operator():
    qkv = [torch.rand(2, 3, S, D) for _ in range(3)]
    whole = least(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=lower()), *qkv)
    assert least(written_out(filled), *qkv)[0] == whole[0]


def test_a_mask_of_the_inputs_leaves_every_product():
    qkv = [torch.rand(2, 3, S, D) for _ in range(3)]
    found = least(lambda q, k, v, m: (q @ k.mT).masked_fill(m, float("-inf")).softmax(-1) @ v, *qkv, lower())
    assert found == (2 * 2 * 3 * S * S * D,) * 2


def test_scores_that_something_else_reads_are_all_formed():
    def run(q, k, v):
        scores = q @ k.mT
        return filled(scores).softmax(-1) @ v, scores

    dense, live = 6 * S * S * D, 6 * CAUSAL * D
    assert least(run, *[torch.rand(2, 3, S, D) for _ in range(3)])[0] == dense + live


def test_a_softmax_over_another_dimension_hides_what_that_says():
    def run(q, k, v):  # each key spreads itself over the queries that see it
        return filled(q @ k.mT).softmax(-2).mT @ v

    assert least(run, *[torch.rand(S, D) for _ in range(3)])[0] == 2 * CAUSAL * D


A, B, C = torch.rand(S, S), torch.rand(S, S), torch.rand(S, S)
TRIPLES = S * (S + 1) * (S + 2) // 6  # i >= k >= j
# What a person would count by hand: name, function, inputs, products.
KNOWN = (
    ("triangle by triangle", lambda a, b: a.tril() @ b.tril(), (A, B), TRIPLES),
    ("three triangles", lambda a, b, c: a.tril() @ b.tril() @ c.tril(), (A, B, C), 2 * TRIPLES),
    ("triangle by the turned one", lambda a, b: a.tril() @ b.tril().T, (A, B), S * (S + 1) * (2 * S + 1) // 6),
    ("identity", lambda a: torch.eye(S) @ a, (A,), 0),
    ("mean of the tokens so far", lambda a: (lower().float() / torch.arange(1, S + 1)[:, None]) @ a, (A,), 0),
    ("diagonal times two", lambda a: a @ (2 * torch.eye(S)), (A,), 0),
    ("one hot of known classes", lambda a: F.one_hot(torch.arange(S) % 3, 3).float().T @ a, (A,), 0),
    ("products kept by a mask of ones", lambda a, b: ((a @ b.T) * lower()) @ b, (A, B), 2 * CAUSAL * S),
    ("zeros in place of some", lambda a, b: torch.where(lower(), a @ b, 0.0) @ b, (A, B), 2 * CAUSAL * S),
    ("a diagonal of data", lambda a: torch.diag(a[0]) @ a, (A,), 0),
    ("one hot of data", lambda a: F.one_hot(a[0].long(), 3).to(a.dtype) @ a[:3], (A,), 0),
    ("rows added up by class", lambda a: (a[0].long()[:, None] == torch.arange(3)).to(a.dtype).T @ a, (A,), 0),
    ("signs without order", lambda a: torch.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0], [1.0, 1.0, -1.0]]) @ a[:3],
     (A,), 9 * S),
    ("a triangle from its end", lambda a, b: a.tril().flip(0) @ b, (A, B), CAUSAL * S),
    ("two blocks", lambda a, b: torch.block_diag(a, b) @ torch.cat([a, b]), (A, B), 2 * S**3),
    ("own keys under a window", lambda a: (a @ a.T + torch.full((S, S), -1e9).triu(1)).softmax(-1) @ a, (A,),
     2 * CAUSAL * S),
    ("keys of the first causal queries",
     lambda a, b: F.scaled_dot_product_attention(a, a @ b, b, is_causal=True)[:, :, :2],
     (A[None, None], B[None, None]), 3 * 2 * S + 2 * S * S),
    ("first rows of running sums and maxima", lambda a, b: (a @ b).cumsum(0).cummax(0).values[:2], (A, B), 2 * S * S),
    ("first columns of a running product", lambda a, b: (a @ b).cumprod(1).logcumsumexp(1)[1:, :3], (A, B),
     3 * S * (S - 1)),
    ("own keys, each its own", lambda a: (a @ a.T).masked_fill(~torch.eye(S).bool(), -1e9).softmax(-1) @ a, (A,),
     S * S),
)  # fmt: skip


@pytest.mark.parametrize(("function", "inputs", "wanted"), [row[1:] for row in KNOWN], ids=[row[0] for row in KNOWN])
def test_what_is_known_to_be_zero_takes_no_product(function, inputs, wanted):
    assert least(function, *inputs)[0] == wanted


# name, function, bytes of one 4-byte input that are read where the known half is all that matters.
READ = (
    ("picked by a condition", lambda a, b: torch.where(lower(), a, b), S * S),
    ("filled where a mask says so", lambda a, b: a.masked_fill(lower(), 0.0) + 0 * b.sum(), S * S - CAUSAL),
    ("cut and turned", lambda a, b: a.tril().T.flip(1), CAUSAL),
    ("multiplied by a mask", lambda a, b: b * lower(), CAUSAL),
)


@pytest.mark.parametrize(("function", "elements"), [row[1:] for row in READ], ids=[row[0] for row in READ])
def test_what_no_condition_picks_is_not_read(function, elements):
    workload = captured(Net(function).eval(), A, B)
    found = nearpeak.analyze(workload, ["h100_sxm"]).targets[0]
    step = least_work(workload)[1]
    assert step.simplified.read_bytes == 4 * elements
    if step.as_written.read_bytes > 4 * elements:
        assert [line.name for line in found.rewrites if line.name == "unread_elements"]


def test_scores_of_own_keys_are_formed_once_for_both_sides():
    q = torch.rand(1, 2, S, D)
    for causal, pairs in ((False, S * (S + 1) // 2 + S * S), (True, 2 * CAUSAL)):
        found = least(lambda q, c=causal: F.scaled_dot_product_attention(q, q, q + 1, is_causal=c), q)
        assert found == (2 * pairs * D,) * 2
    assert least(lambda q: F.scaled_dot_product_attention(q, q * 2, q + 1), q)[1] == 2 * 2 * S * S * D


def test_a_dropout_of_everything_leaves_nothing_to_form():
    assert least(lambda a, b: F.dropout(a @ b, 1.0, training=True) + a, A, B)[0] == 0


@pytest.mark.parametrize("seed", sampled(range(30), 10))
def test_counts_of_meeting_sets_are_those_of_every_choice(seed):
    draw = np.random.default_rng(seed)
    sizes = {label: int(draw.integers(1, 6)) for label in range(4)}
    parts, every = [], np.ones(tuple(sizes.values()), dtype=bool)
    for _ in range(int(draw.integers(1, 4))):
        labels = tuple(sorted(draw.permutation(4)[: draw.integers(1, 4)].tolist()))
        array = draw.random([int(draw.choice([1, sizes[label]])) for label in labels]) < 0.6
        parts.append((labels, Bits(array)))
        every &= array.reshape([array.shape[labels.index(label)] if label in labels else 1 for label in sizes])
    assert count(parts, sizes) == every.sum()


def known_plane(factor):
    """Some of the elements beside the diagonal, so that no row is hidden whole."""
    return (((torch.arange(S * S) * factor) % 7 < 4) & (torch.arange(S * S) % (S + 1) > 0)).reshape(S, S)


STEPS = (
    lambda a, b, known: a @ b,
    lambda a, b, known: a.masked_fill(known, 0.0),
    lambda a, b, known: a.masked_fill(known, -1e9).softmax(-1),
    lambda a, b, known: a * known,
    lambda a, b, known: torch.where(known, a, b),
    lambda a, b, known: a.tril(),
    lambda a, b, known: b.T.triu(1),
    lambda a, b, known: torch.relu(a) + b,
    lambda a, b, known: torch.cat([a[:3], torch.zeros(3, S, dtype=a.dtype)]),
    lambda a, b, known: (a + known * -1e9).softmax(0),
    lambda a, b, known: a.T @ b,
    lambda a, b, known: a.flip(1) @ known.to(a.dtype),
)


def random_step(seed):
    """A step of random operators with known and unknown operands."""
    draw = np.random.default_rng(seed)
    factors, plan = draw.integers(1, 40, 3).tolist(), draw.integers(0, len(STEPS), 7).tolist()

    def run(x, y, z):
        values = [x, y, z]
        for step, kind in enumerate(plan):
            other = values[(step * 2 + seed) % len(values)]
            values.append(STEPS[kind](values[-1], other, known_plane(factors[step % 3])))
        return values[-1], values[-2].sum()

    return run


class Net(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


@pytest.mark.parametrize("seed", sampled(range(60), 20))
def test_what_counts_as_zero_is_and_what_counts_as_unneeded_changes_nothing(seed):
    torch.manual_seed(seed)
    inputs = [torch.randn(S, S, dtype=torch.float64) for _ in range(3)]
    workload = captured(Net(random_step(seed)).eval(), *inputs)
    patterns = Patterns(workload.patterns)
    graph = Graph(rules())
    roots = read_step(workload, graph, LIFTS, patterns)
    live = graph.live(roots)
    known = alive(graph, live, roots, patterns)
    held = {f"input_{place}": tensor for place, tensor in enumerate(inputs)}
    given = {number: held.get(buffer.name) for number, buffer in enumerate(workload.buffers)}
    plain, noisy = {}, {}
    for number in live:
        node = graph[number]
        plain[number] = evaluated(node, [plain[one] for one in node.inputs], given)
        noisy[number] = evaluated(node, [noisy[one] for one in node.inputs], given)
        if number in known.filled:
            assert not plain[number][~torch.as_tensor(known.filled[number].array).expand(node.shape)].any()
        if number in known.needed and contracts(node):
            unneeded = ~torch.as_tensor(known.needed[number].array).expand(node.shape)
            unneeded &= noisy[number] != 0  # what is surely 0 stays it
            noisy[number] = torch.where(unneeded, torch.randn(node.shape, dtype=torch.float64), noisy[number])
    for root in roots:
        assert torch.allclose(plain[root].double(), noisy[root].double(), rtol=1e-9, atol=1e-9)


def test_random_steps_hold_masks_that_matter():
    spared = 0
    for seed in range(15):
        torch.manual_seed(seed)
        found, written = least(random_step(seed), *[torch.randn(S, S) for _ in range(3)])
        assert found <= written
        spared += found < written
    assert spared > 5
