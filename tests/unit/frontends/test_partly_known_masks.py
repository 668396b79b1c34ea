"""Attention masks that data decide in part: what the program itself hides is dead, what data decide counts as live."""

import itertools
import json
import zlib

import numpy as np
import pytest
from tests.sampling import sampled

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.files.saved_workload import save_text  # noqa: E402
from nearpeak.frontends.known_values import live_masks, program_facts  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.ops import work_of  # noqa: E402

BATCH, HEADS, S = 3, 2, 12
CAUSAL = BATCH * HEADS * S * (S + 1) // 2
LEAST = torch.finfo(torch.float32).min


def attended(mask, *data):
    """The workload and record of an attention over the mask that the function makes of the data."""

    def run(q, *data):
        return functional.scaled_dot_product_attention(q, q, q + 1, attn_mask=mask(*data))

    workload = capture_torch(lambda: run, lambda: ((torch.rand(BATCH, HEADS, S, 4), *data), {}), name="masked")
    (call,) = [call for call in workload.calls if call.case and call.case.op == "attention"]
    return workload, call.case


def causal():
    return torch.ones(S, S, dtype=torch.bool).tril()


def forms():
    """Names of ways to join causality and padding, and the joins."""

    def slice_of_causal(padding):
        mask = torch.full((S, S), LEAST).triu(1)[None, None].expand(BATCH, 1, S, S).clone()
        mask[:, :, :, :S] = mask[:, :, :, :S].masked_fill(padding[:, None, None, :] == 0, LEAST)
        return mask

    def multiplied(padding):
        both = causal().float()[None, None] * padding[:, None, None, :].float()
        return (1.0 - both) * LEAST

    def added(padding):
        return (1.0 - padding[:, None, None, :].float()) * LEAST + torch.full((S, S), LEAST).triu(1)

    def gathered(padding):
        rows, keys = torch.arange(BATCH)[:, None, None, None], torch.arange(S)[None, None, None, :]
        return (torch.arange(S)[None, None, :, None] >= keys) & padding.bool()[rows, keys]

    return {
        "and": lambda p: causal() & p[:, None, None, :].bool(),
        "not-or": lambda p: ~(~causal() | (p[:, None, None, :] == 0)),
        "where": lambda p: torch.where(causal(), p[:, None, None, :].bool(), torch.zeros((), dtype=torch.bool)),
        "minimum": lambda p: torch.minimum(torch.full((S, S), LEAST).triu(1), p[:, None, None, :].float()),
        "slice": slice_of_causal, "multiplied": multiplied, "added": added, "gathered": gathered,
    }  # fmt: skip


@pytest.mark.parametrize("form", forms())
def test_causality_and_padding_leave_the_causal_pairs_however_they_are_joined(form):
    workload, case = attended(forms()[form], torch.ones(BATCH, S, dtype=torch.int64))
    found = case.record()
    assert (found["mask"], found["live_pairs"], found["live_queries"]) == ("known", CAUSAL, BATCH * HEADS * S)
    assert "in part" in workload.assumptions[0]


@pytest.mark.parametrize("hide", [float("-inf"), LEAST, -1e9])
def test_a_learned_bias_does_not_show_what_causality_hides(hide):
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Embedding(8, HEADS)

        def forward(self, q):
            apart = (torch.arange(S)[:, None] - torch.arange(S)[None, :]).clamp(0, 7)
            bias = self.bias(apart).permute(2, 0, 1)[None] + torch.full((S, S), hide).triu(1)
            return functional.scaled_dot_product_attention(q, q, q, attn_mask=bias)

    workload = capture_torch(
        Biased, lambda: ((torch.rand(BATCH, HEADS, S, 4),), {}), CaptureOptions(step="train"), name="biased"
    )
    found = [call.case.record() for call in workload.calls if call.case and call.case.op == "attention"]
    assert [one["live_pairs"] for one in found] == [CAUSAL, CAUSAL]


def test_an_unknown_mask_filled_where_a_known_one_says_so_is_dead_there():
    def mask(scores):
        return scores.masked_fill(~causal(), float("-inf"))

    assert attended(mask, torch.rand(BATCH, HEADS, S, S))[1].record()["live_pairs"] == CAUSAL


def test_a_condition_that_data_decide_hides_nothing_that_one_side_shows():
    def mask(flag):
        return torch.where(flag > 0, causal(), causal().T)

    # Each pair is alive for one answer: nothing is known to be dead.
    assert attended(mask, torch.ones(S, S))[1].record()["mask"] == "bool"


JOINS = (
    lambda found, leaf, _: found & leaf,
    lambda found, leaf, other: found | (leaf & other),
    lambda found, leaf, other: torch.where(other, found, leaf),
    lambda found, *_: ~found,
    lambda found, _, other: found.logical_and(other),
    lambda found, leaf, _: found.float().masked_fill(leaf, 2.0) > 1,
)


def random_mask(seed):
    """A random expression over a padding row, a score plane and known planes; its leaves are told apart."""
    draw = np.random.default_rng(seed)
    known = [torch.as_tensor(draw.random((S, S)) < 0.7) for _ in range(3)]
    plan = draw.integers(0, 6, 5).tolist()

    def mask(row, plane):
        found, leaves = known[0], [row > 0, plane > 0.5, ~(plane < -0.5), known[1], row != 1]
        for step, (kind, leaf) in enumerate(zip(plan, leaves, strict=True)):
            other = known[(step + seed) % 3]
            found = JOINS[kind](found, leaf, other)
        return found

    return mask


@pytest.mark.parametrize("seed", sampled(range(40), 12))
def test_no_data_show_a_pair_that_counts_as_dead(seed):
    draw = np.random.default_rng(seed + 1000)
    mask, alive = random_mask(seed), np.zeros((S, S), dtype=bool)
    for _ in range(60):
        row, plane = draw.integers(0, 3, S), draw.integers(-1, 2, (S, S))
        alive |= mask(torch.as_tensor(row), torch.as_tensor(plane)).numpy()
    found = attended(mask, torch.ones(S, dtype=torch.int64), torch.ones(S, S))[1].record()
    most = found["live_pairs"] if found["mask"] == "known" else BATCH * HEADS * S * S
    assert most >= BATCH * HEADS * alive.sum()


@pytest.mark.parametrize("seed", sampled(range(10), 4))
def test_work_never_rises_when_more_of_a_mask_is_known(seed):
    draw = np.random.default_rng(seed)
    row, plane = torch.as_tensor(draw.integers(0, 3, S)), torch.as_tensor(draw.integers(-1, 2, (S, S))).float()
    mask = random_mask(seed)
    works = [
        work_of(attended(made, *data)[1])
        for made, data in (
            (lambda stored: stored, [mask(row, plane)]),
            (mask, [row, plane]),
            (lambda row: mask(row, torch.tensor(plane.tolist())), [row]),
            (lambda: mask(torch.tensor(row.tolist()), torch.tensor(plane.tolist())), []),
        )
    ]
    for less, more in itertools.pairwise(works):
        assert more.read_bytes <= less.read_bytes
        assert sum(more.flop.values()) <= sum(less.flop.values())


def test_a_plane_that_all_sequences_share_is_looked_at_once(monkeypatch):
    looked = []
    plane = live_masks._plane
    monkeypatch.setattr(live_masks, "_plane", lambda *args: looked.append(args) or plane(*args))
    attended(forms()["and"], torch.ones(BATCH, S, dtype=torch.int64))
    assert len(looked) == 1


def test_a_padded_batch_of_transformers_keeps_its_window():
    transformers = pytest.importorskip("transformers")
    config = transformers.MistralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=24, attn_implementation="sdpa",
    )  # fmt: skip
    padding = torch.ones(2, 100, dtype=torch.int64)
    padding[0, :9] = 0
    workload = capture_torch(
        lambda: transformers.MistralForCausalLM(config),
        lambda: ((torch.zeros(2, 100, dtype=torch.int64),), {"use_cache": False, "attention_mask": padding}),
        name="padded",
    )
    (found,) = [c.case.record() for c in workload.calls if c.case and c.case.op == "attention"]
    assert found["live_pairs"] == 2 * 4 * (24 * 25 // 2 + 76 * 24)


def test_attention_written_out_states_which_scores_the_program_hides():
    def run(q):
        scores = (q @ q.transpose(1, 2)).masked_fill(~causal(), float("-inf"))
        return scores.softmax(-1) @ q, q.softmax(-1)

    workload = capture_torch(lambda: run, lambda: ((torch.rand(BATCH, S, 4),), {}), name="eager")
    hidden = [one for one in workload.known if one.says == "hidden"]
    assert [workload.calls[one.call].operator for one in hidden] == ["aten._softmax.default"]
    pattern = workload.patterns[hidden[0].pattern]
    packed = np.frombuffer(zlib.decompress(pattern.packed), dtype=np.uint8)
    assert pattern.shape == (1, S, S)
    assert (np.unpackbits(packed, count=S * S).reshape(S, S) == ~causal().numpy()).all()
    assert not workload.assumptions


def test_layers_that_mask_alike_share_a_pattern():
    def run(q):
        for _ in range(3):
            q = (q @ q.mT + torch.full((S, S), float("-inf")).triu(1)).softmax(-1) @ q
        return q

    workload = capture_torch(lambda: run, lambda: ((torch.rand(BATCH, S, 4),), {}), name="layers")
    assert (len(workload.known), len(workload.patterns)) == (3, 1)
    assert [row[:2] for row in json.loads(save_text(workload))["known"]] == [[one.call, 0] for one in workload.known]


def test_an_operand_too_large_to_look_at_is_stated(monkeypatch):
    def run(q):
        return (q @ q.mT).masked_fill(~causal(), -1e9).softmax(-1)

    monkeypatch.setattr(program_facts, "LARGEST_ELEMENTS", S)
    workload = capture_torch(lambda: run, lambda: ((torch.rand(S, 4),), {}), name="large")
    assert workload.assumptions == ("2 known operands are too large to look at: all of them counts",)


def test_memory_that_nobody_filled_has_no_known_values():
    def run(x):
        table = torch.arange(16).reshape(8, 2)
        drawn = table[torch.multinomial(torch.ones(8), 1)]  # which rows these are is not known
        return x[drawn[:, 0]]

    found = [capture_torch(lambda: run, lambda: ((torch.rand(16, 3),), {}), name="drawn") for _ in range(20)]
    assert all(save_text(one) == save_text(found[0]) for one in found)
