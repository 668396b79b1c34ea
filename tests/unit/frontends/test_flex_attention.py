"""flex_attention and packed attention are one call, with the pairs that their functions and lengths leave."""

import pytest

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402

S, WINDOW = 300, 50
Q, K = (2, 4, S, 16), (2, 2, S, 16)
LIVE = WINDOW * (WINDOW + 1) // 2 + (S - WINDOW) * WINDOW


def attentions(run, *inputs, step="forward"):
    workload = capture_torch(lambda: run, lambda: (inputs, {}), CaptureOptions(step=step), name="flex")
    found = [c for c in workload.calls if c.case and c.case.op.endswith("attention")]
    assert workload.uncovered_counts() == {}
    return workload, [call.case.record() for call in found], [[use.bytes for use in call.reads] for call in found]


def blocks(function):
    return flex.create_block_mask(function, None, None, S, S, device="cpu")


def near(_b, _h, q, kv):
    return (q >= kv) & (q - kv < WINDOW)


def test_a_mask_function_leaves_its_pairs_forward_and_backward():
    def run(q, k):
        return flex.flex_attention(q, k, k + 1, block_mask=blocks(near), enable_gqa=True)

    workload, records, reads = attentions(run, torch.rand(Q), torch.rand(K), step="train")
    assert [(r["phase"], r["mask"], r["live_pairs"]) for r in records] == [
        ("forward", "known", 2 * 4 * LIVE), ("backward", "known", 2 * 4 * LIVE),
    ]  # fmt: skip
    assert reads[0] == [4 * 2 * 4 * S * 16, 4 * 2 * 2 * S * 16, 4 * 2 * 2 * S * 16, 0]
    assert [b.name for b in workload.buffers if b.kind == "weight"] == []


def test_without_functions_every_pair_lives_and_compiling_changes_nothing():
    run = lambda q, k: torch.compile(flex.flex_attention)(q, k, k + 1, enable_gqa=True)  # noqa: E731
    _, (record,), _ = attentions(run, torch.rand(Q), torch.rand(K))
    assert (record["mask"], record["causal"]) == ("none", False)


def test_a_score_function_of_any_parameters_leaves_all_pairs_that_it_does_not_hide():
    def run(q, k):
        return flex.flex_attention(q, k, k, score_mod=lambda s, *_: s * 2, enable_gqa=True)

    _, (record,), _ = attentions(run, torch.rand(Q), torch.rand(K))
    assert record["mask"] == "none" or record["live_pairs"] == 2 * 4 * S * S


def test_a_score_function_hides_pairs_too():
    def score(value, _b, head, q, kv):
        return torch.where((q >= kv) | (head == 0), value * 2, float("-inf"))

    run = lambda q, k: flex.flex_attention(q, k, k + 1, score_mod=score, enable_gqa=True)  # noqa: E731
    _, (record,), _ = attentions(run, torch.rand(Q), torch.rand(K))
    assert record["live_pairs"] == 2 * (S * S + 3 * (S * (S + 1) // 2))


def test_functions_of_inputs_stay_dense_and_are_stated():
    def run(q, k, document):
        mask = blocks(lambda _b, _h, i, j: document[i] == document[j])
        return flex.flex_attention(q, k, k + 1, block_mask=mask, enable_gqa=True)

    workload, (record,), _ = attentions(run, torch.rand(Q), torch.rand(K), torch.arange(S) // 64)
    assert (record["mask"], record["live_pairs"]) == ("none", 0)
    assert workload.assumptions == (
        "values of 1 attention mask depend on inputs or weights: every pair counts as live",
    )


def test_documents_of_the_program_are_known():
    def run(q, k):
        document = torch.arange(S) // 64
        mask = blocks(lambda _b, _h, i, j: document[i] == document[j])
        return flex.flex_attention(q, k, k + 1, block_mask=mask, enable_gqa=True)

    _, (record,), _ = attentions(run, torch.rand(Q), torch.rand(K))
    assert record["live_pairs"] == 2 * 4 * (4 * 64 * 64 + 44 * 44)


def packed(offsets, **options):
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    q = torch.rand(1000, 4, 32, dtype=torch.bfloat16)

    def run(q, offsets):
        return varlen.varlen_attn(q, q * 2, q + 1, offsets, offsets, 512, 512, **options)

    return attentions(run, q, offsets, step="train")[1]


def test_packed_sequences_leave_the_pairs_of_their_lengths():
    forward, backward = packed(torch.tensor([0, 100, 488, 1000], dtype=torch.int32), window_size=(-1, 0))
    pairs = sum(n * (n + 1) // 2 for n in (100, 388, 512))
    assert (forward["lengths"], forward["sequences"], forward["live_pairs"]) == ("known", 3, pairs)
    assert (backward["phase"], backward["live_pairs"]) == ("backward", pairs)


def test_lengths_that_nobody_knows_count_as_equal():
    def run(q, offsets):
        varlen = pytest.importorskip("torch.nn.attention.varlen")
        offsets = (offsets * 1.0).int()
        return varlen.varlen_attn(q, q * 2, q + 1, offsets, offsets, 512, 512)

    _, (record,), _ = attentions(run, torch.rand(1000, 4, 32, dtype=torch.bfloat16), torch.rand(4))
    assert (record["lengths"], record["sequences"], record["live_pairs"]) == ("data", 3, 0)


def test_keys_in_pages_are_paged_attention():
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    pages = torch.rand(40, 16, 2, 32, dtype=torch.bfloat16)
    lengths, table = torch.tensor([100, 17, 64], dtype=torch.int32), torch.zeros(3, 8, dtype=torch.int32)

    def run(q, pages, table, lengths):
        offsets = torch.arange(4, dtype=torch.int32)
        return varlen.varlen_attn(
            q, pages, pages * 2, offsets, None, 1, 128, enable_gqa=True, block_table=table, seqused_k=lengths
        )

    _, (record,), _ = attentions(run, torch.rand(3, 4, 32, dtype=torch.bfloat16), pages, table, lengths)
    assert (record["op"], record["tokens"], record["pages"], record["page"]) == ("paged_attention", 181, 7 + 2 + 4, 16)
