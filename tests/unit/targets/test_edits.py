"""What-if edits and partitions: any order, every figure, and a clear refusal of everything else."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearpeak.bounds.case_bound import case_bound
from nearpeak.bounds.terms.unit_rates import matrix_rate
from nearpeak.core.answers.bound import Policy
from nearpeak.errors import NearpeakError, NotModelledError, SpecError, UnknownNameError
from nearpeak.ops import case
from nearpeak.targets import TARGETS, target_of

BF16 = "tensor.bf16"


@pytest.mark.parametrize(
    "edits",
    [
        ("sm_count=66", "peak.tensor.bf16.rate=400 TFLOP/s"),
        ("clock.max=1.5 GHz", "peak.tensor.bf16.rate=400 TFLOP/s", "sm_count=100"),
        ("clock.max=1.5 GHz", "peak.tensor.bf16.clock=1.4 GHz", "dram.bandwidth=8 TB/s"),
    ],
)
def test_order_of_edits_does_not_matter(edits):
    targets = [target_of("h100_sxm", order) for order in itertools.permutations(edits)]
    assert all(target == targets[0] for target in targets)


def test_edited_rate_is_kept_and_restates_the_flop_per_clock_at_the_final_count():
    peak = target_of("h100_sxm", ["sm_count=66", "peak.tensor.bf16.rate=400 TFLOP/s"]).peaks[BF16]
    assert peak.flop_per_s == 400e12
    assert peak.flop_per_clock == pytest.approx(400e12 / (66 * 1.83e9))


def test_edited_count_halves_the_rates():
    half = target_of("h100_sxm", ["sm_count=66"])
    assert half.flop_per_s(BF16) == pytest.approx(66 * 4096 * 1.83e9)


def test_edit_of_memory_leaves_the_documented_rates_alone():
    assert target_of("h100_sxm", ['dram.bandwidth="8 TB/s"']).peaks == target_of("h100_sxm").peaks


def test_edited_clock_restates_every_rate_but_the_one_with_a_clock_of_its_own():
    target = target_of("h100_sxm", ["clock.max=1.5 GHz", "peak.tensor.bf16.clock=1.4 GHz"])
    assert target.peaks[BF16].clock_hz == 1.4e9
    assert target.peaks["tensor.fp8"].clock_hz == target.clock_hz == 1.5e9


def test_contradictory_edits_of_one_peak_are_refused():
    edits = ["peak.tensor.bf16.rate=400 TFLOP/s", "peak.tensor.bf16.sm_clock=4096 FLOP"]
    with pytest.raises(SpecError, match="must agree within 1%"):
        target_of("h100_sxm", edits)


@pytest.mark.parametrize("quoted", ["peak.tensor.bf16.rate", 'peak."tensor.bf16".rate', "peak.'tensor.bf16'.rate"])
@pytest.mark.parametrize("value", ["400 TFLOP/s", '"400 TFLOP/s"', " '400 TFLOP/s' "])
def test_quotes_around_keys_and_values_do_not_matter(quoted, value):
    assert target_of("h100_sxm", [f"{quoted}={value}"]).flop_per_s(BF16) == 400e12


@pytest.mark.parametrize(
    ("edit", "figure"),
    [
        ("l2.bandwidth=5 TB/s", lambda target: target.l2.bandwidth_bytes_per_s == 5e12),
        ("launch.floor=3 us", lambda target: target.launch_floor_s == pytest.approx(3e-6)),
        ("special.sm_clock=16 OP", lambda target: target.special_per_clock == 16),
    ],
)
def test_documented_figure_that_the_device_leaves_open_can_be_added(edit, figure):
    assert not figure(target_of("mi300x"))
    assert figure(target_of("mi300x", [edit]))


def test_source_of_an_edited_figure_says_so():
    target = target_of("mi300x", ["launch.floor=3 us", "dram.bandwidth=8 TB/s"])
    assert target.launch_source == "what-if edit"
    assert target.dram.source.startswith("what-if edit; figures that were not edited: AMD")


@pytest.mark.parametrize("part", ["1g.10gb", "3g.40gb", "7g.80gb"])
def test_memory_edits_apply_to_a_partition(part):
    edits = ["dram.bandwidth=1 TB/s", "dram.capacity=10 GiB", "l2.capacity=8 MiB", "l2.bandwidth=2 TB/s"]
    target = target_of(f"h100_sxm:{part}", edits)
    assert (target.dram.bandwidth_bytes_per_s, target.dram.capacity_bytes) == (1e12, 10 * 2**30)
    assert (target.l2.bandwidth_bytes_per_s, target.l2.capacity_bytes) == (2e12, 8 * 2**20)


REFUSED = [
    ("dram.bandwith=8 TB/s", "did you mean dram.bandwidth"),
    ("dram=8 TB/s", "'dram' is not a figure"),
    ("title=mine", "'title' is not a figure"),
    ("peak.tensor.bf61.rate=1 TFLOP/s", "did you mean peak.tensor.bf16.rate"),
    ("link.nvlnk.bandwidth=1 TB/s", "did you mean link.nvlink.bandwidth"),
    ("dram.bandwidth", "is not KEY=VALUE"),
    ("dram.bandwidth=8", "'8' has no unit; write a number, one space and a prefixed B/s, e.g. '2 GB/s'"),
    ("dram.bandwidth=inf", "has no unit"),
    ("dram.bandwidth=nan", "has no unit"),
    ("dram.bandwidth=inf TB/s", "is not a number and a unit"),
    ("dram.bandwidth=-8 TB/s", "must be above 0"),
    ("dram.bandwidth=0 TB/s", "must be above 0"),
    ("dram.bandwidth=1e400 TB/s", "finite"),
    ("dram.bandwidth=8  TB/s", "is not a number and a unit"),
    ("dram.bandwidth=8 TB", "is not in B/s"),
    ("dram.capacity=8 Tb", "is not in B"),
    ("dram.capacity=1e400 B", "finite"),
    ("clock.max=2 GiHz", "is not in Hz|binary prefix"),
    ("sm_count=0", "is not a whole number of at least 1"),
    ("sm_count=-4", "is not a whole number of at least 1"),
    ("sm_count=1.5", "is not a whole number of at least 1"),
    ("sm_count=nan", "is not a whole number of at least 1"),
    ("sm_count=inf", "is not a whole number of at least 1"),
]


@pytest.mark.parametrize(("edit", "message"), REFUSED)
def test_wrong_edit_is_refused_in_one_line_that_names_it(edit, message):
    with pytest.raises(SpecError, match=message) as caught:
        target_of("h100_sxm", [edit])
    assert str(caught.value).startswith(f"--set {edit!r}")
    assert "\n" not in str(caught.value)


def test_figure_given_twice_is_refused():
    with pytest.raises(SpecError, match=r"dram\.bandwidth is given twice"):
        target_of("h100_sxm", ["dram.bandwidth=8 TB/s", 'dram.bandwidth="9 TB/s"'])


def test_unknown_partition_lists_those_that_exist():
    with pytest.raises(UnknownNameError) as caught:
        target_of("h100_sxm:1g.5gb")
    assert str(caught.value) == (
        "target h100_sxm: no partition or power mode '1g.5gb'; "
        "there are 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb, and shares: mps=PERCENT, green=MULTIPROCESSORS"
    )


@pytest.mark.parametrize("name", ["t4:1g.5gb", "h100_sxm:", "nowhere", "nowhere:1g.5gb", ":1g.5gb"])
def test_name_without_a_target_is_refused(name):
    with pytest.raises(NearpeakError):
        target_of(name)


def test_power_mode_sets_clock_power_and_memory():
    mode = target_of("jetson_agx_orin:15W")
    assert (mode.clock_hz, mode.power_w, mode.sm_count) == (408e6, 15, 6)
    assert mode.flop_per_s("tensor.int8") == pytest.approx(6 * 4096 * 408e6)
    assert mode.dram.bandwidth_bytes_per_s == pytest.approx(204.8e9 * 2133 / 3199, rel=1e-4)
    assert mode.dram.capacity_bytes == target_of("jetson_agx_orin").dram.capacity_bytes


def test_a_mode_that_keeps_its_memory_whole_keeps_its_capacity():
    mode = target_of("jetson_agx_xavier:10W")
    assert (mode.sm_count, mode.dram.capacity_bytes) == (4, target_of("jetson_agx_xavier").dram.capacity_bytes)


@pytest.mark.parametrize(("name", "dtype", "unit"), [
    ("jetson_agx_thor", "int8", "tensor.int8"), ("jetson_thor_t4000", "int8", "tensor.int8"),
    ("jetson_tx2", "int8", "vector.int8"), ("jetson_tx2_nx", "int8", "vector.int8"),
    ("arc_pro_b60", "int4", "tensor.int4"),
])  # fmt: skip
def test_a_unit_whose_rate_no_document_states_proves_nothing_and_is_named(name, dtype, unit):
    with pytest.raises(NotModelledError, match=f"no document states the rate of {unit}"):
        case_bound(case("gemm", m=512, n=512, k=512, dtype=dtype), target_of(name), Policy())


def test_formats_with_a_stated_unit_of_their_own_need_no_other():
    assert matrix_rate(target_of("mi60"), "int4", "strict")[0] == "vector.int4"
    for dtype in ("fp8_e4m3", "bf16", "fp16", "bool"):
        assert matrix_rate(target_of("jetson_agx_thor"), dtype, "strict")[1] > 0


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(TARGETS.names()),
    slow=st.integers(1, 10**4),
    more=st.integers(0, 10**4),
    flop=st.integers(1, 10**15),
    moved=st.integers(1, 10**12),
)
def test_more_bandwidth_is_never_a_slower_roofline(name, slow, more, flop, moved):
    def roofline_s(gigabytes):
        target = target_of(name, [f"dram.bandwidth={gigabytes} GB/s"])
        return max(flop / target.flop_per_s("vector.fp32"), moved / target.dram.bandwidth_bytes_per_s)

    assert roofline_s(slow + more) <= roofline_s(slow)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(TARGETS.names()), count=st.integers(1, 1000))
def test_rates_grow_with_the_count_of_multiprocessors(name, count):
    fewer, more = (target_of(name, [f"sm_count={n}"]) for n in (count, count + 1))
    assert all(fewer.flop_per_s(unit) < more.flop_per_s(unit) for unit in fewer.peaks)
