"""Facts of values: formats, states of zero, selections and guessed sizes lower the bound to what equivalents need."""

import random
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
from benchmarks._equivalent_programs import KINDS, program  # noqa: E402
from benchmarks.cheaper_programs import violations  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from nearpeak.bounds.step.step_bound import least_work  # noqa: E402
from nearpeak.bounds.value_facts.carriers import carrier_of, carrier_of_integers, level_of  # noqa: E402
from nearpeak.bounds.value_facts.step_facts import sites_of  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.core.work.dtype import DTYPES  # noqa: E402
from nearpeak.frontends.files.saved_workload import load_text, save_text  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402

BF16, INT8 = torch.bfloat16, torch.int8


def taken(function, *inputs, **options):
    return capture_torch(lambda: function, lambda: (inputs, {}), CaptureOptions(**options), name="step")


def kinds(function, *inputs, **options):
    """Matrix FLOP of the simplified step by format, and the names of what was rewritten."""
    step = least_work(taken(function, *inputs, **options))[1]
    flop = {kind.removeprefix("matrix."): n for kind, n in step.simplified.flop.items() if kind.startswith("matrix.")}
    return {kind: n for kind, n in flop.items() if n}, {line.name for line in step.rewrites}


def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype)


FORMATS = (
    ("upcast", lambda x, w: x.float() @ w.float(), BF16, BF16, {"bf16": 8192}),
    ("one side", lambda x, w: x.float() @ w, BF16, torch.float32, {"fp32": 4096, "bf16": 4096}),
    ("rounded", lambda x, w: x.to(BF16).float() @ w.to(BF16).float(), torch.float32, torch.float32, {"bf16": 8192}),
    ("scaled codes", lambda x, w: (x.float() * 0.1) @ (w.float() * torch.rand(16)), INT8, INT8, {"int8": 8192}),
    ("zero points", lambda x, w: x.float() @ (w.float() - 3), INT8, torch.uint8, {"int8": 8192}),
    ("comparison", lambda x, w: (x > 0).float() @ w.float(), torch.float32, BF16, {"bf16": 8192}),
    ("grid", lambda x, w: (x / 0.1).round().clamp(-8, 7) @ (w / 0.1).round().clamp(-7, 7), torch.float32, torch.float32,
     {"int4": 8192}),
    ("straight through", lambda x, w: (x + (x.round().clamp(-128, 127) - x).detach()) @ w.float(), torch.float32, INT8,
     {"int8": 8192}),
    ("fake quantised", lambda x, w: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127) @ w.float(),
     torch.float32, INT8, {"int8": 8192}),
    ("low bits", lambda x, w: x.float() @ ((w & 15).float() - 8), INT8, torch.uint8, {"int8": 8192}),
    ("repeated", lambda x, w: F.interpolate(x.float()[None], size=16, mode="nearest-exact")[0] @ w.float(), INT8, INT8,
     {"int8": 8192}),
    ("real", lambda x, w: x.softmax(-1) @ w, torch.float32, torch.float32, {"fp32": 8192}),
    ("sum", lambda x, w: (x.float() + x.float().tanh()) @ w.float(), BF16, BF16, {"fp32": 4096, "bf16": 4096}),
    ("elements of their own scale", lambda x, w: (x.float() * torch.rand(16, 16)) @ w, INT8, torch.float32,
     {"fp32": 8192}),
)  # fmt: skip


@pytest.mark.parametrize(("function", "left", "right", "wanted"), [row[1:] for row in FORMATS],
                         ids=[row[0] for row in FORMATS])  # fmt: skip
def test_products_count_in_the_narrowest_format_that_holds_both_factors(function, left, right, wanted):
    assert kinds(function, empty(16, 16, dtype=left), empty(16, 16, dtype=right))[0] == wanted


def test_every_format_has_a_carrier_that_holds_it_or_states_no_arithmetic():
    for name, dtype in DTYPES.items():
        carrier = carrier_of(name)
        assert dtype.scheme or dtype.kind == "opaque" or DTYPES[carrier].matrix_units
    assert [carrier_of_integers(width) for width in (1, 2, 15, 16, 255, 256)] == [
        "bool", "int4", "int4", "int8", "int8", "bf16",
    ]  # fmt: skip
    assert [level_of(name) for name in ("bool", "int4", "int8", "bf16", "fp32", "fp64")] == [0, 1, 2, 3, 4, 5]


def test_uncovered_calls_may_give_anything_narrow():
    class Unknown(nn.Module):
        def forward(self, x):
            return torch.linalg.matrix_exp(x) @ x

    workload = taken(Unknown(), empty(8, 8))
    facts = [site for site in sites_of(workload) if site is not None and site.case.op == "gemm"]
    uncovered = any(call.case is None for call in workload.calls)
    assert facts[-1].operands[0].fact.carrier == ("bool" if uncovered else "fp32")


@pytest.mark.parametrize(
    ("layer", "elements"),
    [(nn.LSTM(8, 16), 3 * 16 * 8 + 6 * 16), (nn.GRU(8, 16), 3 * 16 * 8 + 6 * 16), (nn.RNN(8, 16), 16 * 8 + 2 * 16),
     (nn.GRU(8, 16, bias=False), 2 * 16 * 8)],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)  # fmt: skip
def test_one_step_from_zero_reads_neither_recurrent_weights_nor_idle_gates(layer, elements):
    step = least_work(taken(lambda x: layer(x)[0], empty(1, 4, 8)))[1]
    assert step.simplified.read_bytes == 4 * (elements + 4 * 8)
    assert {line.name for line in step.rewrites} == {"zero_state"}


def test_states_that_are_given_are_multiplied():
    layer = nn.LSTM(8, 16)
    step = least_work(taken(lambda x, h, c: layer(x, (h, c))[0], empty(1, 4, 8), empty(1, 4, 16), empty(1, 4, 16)))[1]
    assert step.simplified == step.as_written


SELECTIONS = (
    lambda i, w: F.one_hot(i, 64).float() @ w,
    lambda i, w: torch.zeros(16, 64).scatter_(1, i[:, None], 1.0) @ w,
    lambda i, w: torch.eye(64)[i] @ w,
    lambda i, w: torch.where(i[:, None] == torch.arange(64), 2.0, 0.0) @ w,
    lambda i, w: torch.zeros(16, 64).index_put((torch.arange(16), i), torch.ones(())) @ w,
)


@pytest.mark.parametrize("function", SELECTIONS)
def test_one_hot_rows_pick_and_read_one_row_at_least(function):
    index, table = torch.empty(16, dtype=torch.int64), empty(64, 8)
    step = least_work(taken(function, index, table))[1]
    assert not any(n for kind, n in step.simplified.flop.items() if kind.startswith("matrix."))
    assert step.simplified.read_bytes == 16 * 8 + 8 * 4


def test_rows_that_data_fill_are_no_selection():
    found, _ = kinds(lambda i, v, w: torch.zeros(64, 16).index_copy(0, i, v) @ w,
                     torch.empty(8, dtype=torch.int64), empty(8, 16), empty(16, 4))  # fmt: skip
    assert sum(found.values()) == 2 * 64 * 16 * 4


def test_what_rests_on_a_guessed_size_counts_nothing_and_is_saved_with_the_workload():
    workload = taken(lambda x, w: (x[x[:, 0] > 0] @ w, x @ w), empty(16, 8), empty(8, 4), guess_sizes=True)
    assert len(workload.guessed) == 2
    assert load_text(save_text(workload), "w.json").guessed == workload.guessed
    assert kinds(lambda x, w: x[x[:, 0] > 0] @ w, empty(16, 8), empty(8, 4), guess_sizes=True) == ({}, {"guessed_size"})
    written = kinds(lambda x, w: x.index_put((x[:, 0] > 0,), torch.zeros(())) @ w, empty(16, 8), empty(8, 4))
    assert written[0] == {"fp32": 2 * 16 * 8 * 4}


class Loaded(nn.Module):
    """Buffers that a state dict fills, and a mask."""

    def __init__(self):
        super().__init__()
        self.register_buffer("q", torch.zeros(16, 16, dtype=INT8))
        self.register_buffer("mask", torch.ones(16, 16).tril())
        self.register_buffer("passing", torch.zeros(16, 16), persistent=False)

    def forward(self, x):
        return F.linear(x, self.q.to(x.dtype)), (x @ x.mT * self.mask) @ x, x @ self.passing


def test_placeholders_of_persistent_buffers_are_data_and_their_masks_are_program():
    for build in (Loaded, Loaded()):
        workload = capture_torch(build, lambda: ((empty(16, 16, dtype=BF16),), {}), CaptureOptions(), name="loaded")
        names = {buffer.name: buffer.kind for buffer in workload.buffers if buffer.name}
        assert (names["q"], names["mask"]) == ("weight", "constant")
        assert {fact.call for fact in workload.known if fact.says == "zero"} >= {3, 4}
        flop = least_work(workload)[1].simplified.flop
        lower = 16 * 17 // 2
        assert sum(n for kind, n in flop.items() if kind.startswith("matrix.")) == 2 * (16**3 + 2 * lower * 16)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_both_programs_of_a_kind_compute_the_same(name):
    pair = program(random.Random(5), (name,))
    if not pair.exact:
        pytest.skip("equal only where data make the first do the least, or up to the rounding of its format")
    first, second = pair.first(*pair.inputs), pair.second(*pair.inputs)
    for left, right in zip(first, second, strict=True):
        assert torch.allclose(
            left.float(), right.float(), rtol=2e-2, atol=1e-2 * float(right.float().abs().max() + 1e-6)
        )


@pytest.mark.parametrize("name", sorted(KINDS))
def test_no_bound_is_above_that_of_an_equivalent_program(name):
    assert not list(violations(11, (name,)))


def test_no_bound_of_mixed_stages_is_above_that_of_an_equivalent_program():
    assert [found for seed in range(20, 40) for found in violations(seed)] == []


# Pairs that were above: seed, kinds of the stages
CHAINED = (
    (27, ("rows_picked_late",)),
    (5, ("kronecker", "inverse_times")),
    (0, ("layers_of_picked_rows", "one_step_from_zero", "cast_of_one_factor")),
    (0, ("rows_by_position", "blocks_on_the_diagonal")),
    (0, ("single_element_reductions", "factor_of_several_sums", "rows_picked_late")),
    (5, ("sliced_after", "written_twice")),
    (1, ("chain_order", "scaled_selection", "gram")),
    (0, ("moved_codes", "layers_of_picked_rows", "layers_of_picked_rows")),
    (1, ("constant_factor", "powers", "guessed_rows")),
    (2, ("rows_of_what_takes_rows_together", "scaled_selection", "factor_of_several_sums")),
)


@pytest.mark.parametrize(("seed", "names"), CHAINED)
def test_no_bound_of_chained_stages_is_above_that_of_an_equivalent_program(seed, names):
    assert list(violations(seed, names)) == []


@pytest.mark.parametrize("count", [0, 1])
def test_a_saved_product_may_lack_the_tensors_that_it_reads(count):
    whole = taken(torch.mm, empty(16, 16), empty(16, 16))
    part = replace(whole, calls=tuple(replace(call, reads=call.reads[:count]) for call in whole.calls))
    assert least_work(part)[1].simplified.flop == least_work(whole)[1].simplified.flop
