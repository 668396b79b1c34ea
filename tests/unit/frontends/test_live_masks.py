"""Attention masks that the program makes are counted pair by pair; those of inputs or weights stay dense."""

import numpy as np
import pytest
from tests.sampling import sampled

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.known_values.live_masks import Scores, counted  # noqa: E402
from nearpeak.frontends.known_values.tensor_pieces import Given, Part  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.ops import OPS, work_of  # noqa: E402

S = 320
"""So many squared are more than a tensor that is made whole without being asked piece by piece."""


def cases(build, *inputs, step="forward"):
    workload = capture_torch(build, lambda: (inputs, {}), CaptureOptions(step=step), name="masked")
    found = [(c.case, [u.bytes for u in c.reads]) for c in workload.calls if c.case and c.case.op == "attention"]
    return workload, [case.record() for case, _ in found], [reads for _, reads in found]


def attended(mask, heads=2, extent=S, **options):
    """The record of an attention over the mask that the function makes."""

    def run(q):
        return functional.scaled_dot_product_attention(q, q, q + 1, attn_mask=mask(), **options)

    return cases(lambda: run, torch.rand(1, heads, extent, 4))[1][0]


def counts(live):
    """Pairs, keys and queries of a mask [batch, heads, q, kv] where each head has its own keys."""
    return int(live.sum()), int(live.any(axis=2).sum()), int(live.any(axis=3).sum())


def positions():
    return torch.arange(S)[:, None], torch.arange(S)[None, :]


def window():
    q, kv = positions()
    return (q >= kv) & (q - kv < 50)


def additive():
    return torch.full((S, S), float("-inf")).triu(1)


def least_number():
    return torch.zeros(1, 1, S, S).masked_fill(~window(), torch.finfo(torch.float32).min)


def alibi():
    q, kv = positions()
    slopes = torch.tensor([0.5, 0.25])
    return (slopes[:, None, None] * (kv - q) + additive())[None]


def written_in_place():
    mask = torch.zeros(S, S, dtype=torch.bool)
    for first in range(0, S, 64):
        mask[first : first + 64, : first + 32] = True
    mask[5] = False
    return mask


def documents():
    number = torch.arange(S) // 37
    return (number[:, None] == number[None]).reshape(1, 1, S, S).expand(1, 2, S, S)


def overwritten():
    return torch.empty(S, S, dtype=torch.bool).fill_(True).tril_(-3)


def transposed():
    return torch.ones(S, S).tril().bool().T.contiguous()


def joined():
    return torch.cat([torch.ones(S, S // 2, dtype=torch.bool), torch.zeros(S, S // 2, dtype=torch.bool)], dim=1)


def last_rows():
    return torch.ones(2 * S, S, dtype=torch.bool).tril()[S // 2 : S // 2 + S]


@pytest.mark.parametrize("mask", [
    window, additive, least_number, alibi, written_in_place, documents, overwritten, transposed, joined, last_rows,
])  # fmt: skip
def test_a_mask_that_the_program_makes_is_counted_exactly(mask):
    found, real = attended(mask), mask()
    hidden = real if real.dtype == torch.bool else real > -1e9
    live = np.broadcast_to(hidden.numpy(), (1, 2, S, S))
    assert found["mask"] == "known"
    assert (found["live_pairs"], found["live_keys"], found["live_queries"]) == counts(live)


def test_causality_is_counted_into_a_mask():
    q, kv = positions()
    live = (torch.ones(S, S).tril().bool() & (q - kv < 50)).expand(1, 2, S, S).numpy()
    found = attended(lambda: positions()[0] - positions()[1] < 50, is_causal=True)
    assert (found["live_pairs"], found["causal"]) == (counts(live)[0], False)


@pytest.mark.parametrize("seed", sampled(range(40), 12))
def test_counts_of_random_masks_equal_a_count_of_every_pair(seed):
    random = np.random.default_rng(seed)
    batch, groups, share, q, kv = (int(n) for n in random.integers(1, 5, 5) * (1, 1, 1, 7, 6))
    shape = [int(random.choice([1, n])) for n in (batch, groups * share, q, kv)]
    live, causal = random.random(shape) < random.random(), bool(random.integers(2))
    real = torch.as_tensor(live)
    part = Part(Given(real), tuple(real.shape), real.stride(), 0)
    every = np.broadcast_to(live, (batch, groups * share, q, kv)) & (np.tri(q, kv, dtype=bool) | (not causal))
    keys = every.reshape(batch, groups, share * q, kv).any(axis=2).sum()
    wanted = (every.sum(), keys, every.any(axis=3).sum())
    assert counted(part, Scores(batch, groups * share, groups, q, kv, causal)) == tuple(int(n) for n in wanted)


def test_a_known_mask_is_not_read_forward_or_backward():
    def run(q):
        return functional.scaled_dot_product_attention(q, q * 2, q + 1, attn_mask=window())

    _, found, reads = cases(lambda: run, torch.rand(1, 2, S, 4), step="train")
    size = 2 * S * 4 * 4
    assert [record["live_pairs"] for record in found] == [2 * (50 * 51 // 2 + (S - 50) * 50)] * 2
    assert reads == [[size] * 3 + [0], [size] * 4 + [0, 0]]


def test_registered_masks_are_known_whether_the_module_exists_or_is_built():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(2 * S, 2 * S, dtype=torch.bool).tril())

        def forward(self, q):
            return functional.scaled_dot_product_attention(q, q, q, attn_mask=self.mask[:S, :S])

    for build in (Masked, Masked()):
        assert cases(build, torch.rand(1, 2, S, 4))[1][0]["live_pairs"] == 2 * (S * (S + 1) // 2)


def test_masks_that_inputs_decide_stay_dense_and_are_stated():
    def run(q, padding):
        return functional.scaled_dot_product_attention(q, q, q, attn_mask=padding[None, :].bool())

    workload, (found,), _ = cases(lambda: run, torch.rand(1, 2, S, 4), torch.ones(S).long())
    assert (found["mask"], found["mask_elements"], found["live_pairs"]) == ("bool", S, 0)
    assert workload.assumptions == (
        "values of 1 attention mask depend on inputs or weights: every pair counts as live",
    )


def test_what_a_parameter_starts_with_is_no_part_of_the_program():
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(S, S))

        def forward(self, q):
            return functional.scaled_dot_product_attention(q, q, q, attn_mask=self.bias)

    _, (forward, backward), _ = cases(Biased, torch.rand(1, 2, S, 4), step="train")
    assert (forward["mask"], backward["mask"], backward["grad_mask"]) == ("float", "float", True)


def test_a_large_mask_is_counted_in_pieces():
    def run(q):
        at = torch.arange(4096)
        apart = at[:, None] - at[None, :]
        mask = (apart >= 0) & (apart < 1024)
        return functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        _, (found,), _ = cases(lambda: run, torch.rand(1, 1, 4096, 1))
    assert found["live_pairs"] == 1024 * 1025 // 2 + 3072 * 1024
    largest = max(event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]")
    assert largest <= 2**23


def test_a_window_of_transformers_leaves_the_pairs_of_the_closed_form():
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 24, "attn_implementation": "sdpa",
    }  # fmt: skip
    mistral = transformers.MistralConfig(**sizes)
    layers = ["sliding_attention", "full_attention"]
    gemma = transformers.Gemma3TextConfig(**sizes, head_dim=8, layer_types=layers)
    ids = torch.zeros(2, 100, dtype=torch.int64)
    closed = {
        left: work_of(OPS["attention"].case(
            batch=2, heads=4, q=100, kv=100, dim=8, causal=True, left=left, dtype="fp32"
        )).flop for left in (24, 0)
    }  # fmt: skip
    for build, windows in (
        (lambda: transformers.MistralForCausalLM(mistral), (24, 24)),
        (lambda: transformers.Gemma3ForCausalLM(gemma), (24, 0)),
    ):
        workload = capture_torch(build, lambda: ((ids,), {"use_cache": False}), name="window")
        found = [work_of(c.case).flop for c in workload.calls if c.case and c.case.op == "attention"]
        assert found == [closed[left] for left in windows]
