"""Terms react as they must: more bandwidth, storage or freedom never raises a bound, more work never lowers one."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearpeak
from nearpeak.bounds.case_bound import case_bound
from nearpeak.bounds.proof_checker import proof_of, verify
from nearpeak.core.answers.bound import PROVED, Policy
from nearpeak.core.work.workload import Call, Workload
from nearpeak.ops import work_of
from nearpeak.targets import target_of

DEVICE = target_of("b200_sxm")
SIZE = st.integers(1, 200_000)
GEMMS = st.builds(lambda m, n, k: nearpeak.case("gemm", m=m, n=n, k=k, dtype="bf16"), SIZE, SIZE, SIZE)
SOFTMAXES = st.builds(
    lambda rows, columns: nearpeak.case("softmax", rows=rows, columns=columns, dtype="fp32"),
    st.integers(1, 8), st.integers(1, 2**31),
)  # fmt: skip
CONVS = st.builds(
    lambda batch, channels, size, kernel, stride: nearpeak.case(
        "conv", batch=batch, in_channels=channels, out_channels=channels, w=size, h=size, kw=kernel, kh=kernel,
        sw=stride, sh=stride, dtype="fp16",
    ),
    st.integers(1, 4096), st.integers(1, 4096), st.integers(7, 64), st.integers(1, 7), st.integers(1, 3),
)  # fmt: skip
GATHERS = st.builds(
    lambda rows, table, width: nearpeak.case("gather", rows=rows, table_rows=table, width=width, dtype="bf16"),
    st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 4096),
)  # fmt: skip
CASES = st.one_of(GEMMS, SOFTMAXES, CONVS, GATHERS)
POLICIES = st.builds(
    Policy, dtype=st.sampled_from(["strict", "tf32", "hard"]), output_credit=st.booleans(), cold_inputs=st.booleans()
)


def improved(factor, name):
    """Return the device with one resource larger by `factor`."""
    if name == "storage":
        return dataclasses.replace(DEVICE, on_chip_bytes=int(DEVICE.on_chip_bytes * factor))
    if name == "clock":
        return dataclasses.replace(DEVICE, clock_hz=DEVICE.clock_hz * factor)
    field = "capacity_bytes" if name == "l2" else "bandwidth_bytes_per_s"
    memory = getattr(DEVICE, name)
    return dataclasses.replace(
        DEVICE, **{name: dataclasses.replace(memory, **{field: int(getattr(memory, field) * factor)})}
    )


@given(CASES, POLICIES, st.sampled_from(["dram", "l2", "storage", "clock"]), st.floats(1.0, 100.0))
def test_no_larger_resource_raises_a_bound(case, policy, name, factor):
    assert case_bound(case, improved(factor, name), policy).time_s <= case_bound(case, DEVICE, policy).time_s


@given(CASES, st.booleans(), st.booleans())
def test_no_wider_policy_raises_a_bound(case, credit, cold):
    strict, tf32, hard = (
        case_bound(case, DEVICE, Policy(dtype=name, output_credit=credit, cold_inputs=cold)).time_s
        for name in ("strict", "tf32", "hard")
    )
    assert hard <= tf32 <= strict
    free = case_bound(case, DEVICE, Policy(output_credit=True, cold_inputs=False)).time_s
    assert free <= case_bound(case, DEVICE, Policy(output_credit=credit, cold_inputs=cold)).time_s


@given(st.lists(CASES, min_size=1, max_size=4), CASES)
@settings(max_examples=30)
def test_adding_a_call_never_lowers_the_bound_of_a_list(cases, more):
    def total(some):
        calls = tuple(Call(case=one, operator=one.op, phase="forward") for one in some)
        return nearpeak.bound(Workload(name="list", step="sweep", calls=calls), DEVICE)

    less, all_of_them = total(cases), total([*cases, more])
    assert all_of_them.time_s >= less.time_s
    if less.interval is not None:
        assert all_of_them.interval.high_s >= less.interval.high_s


@given(CASES, POLICIES)
def test_every_proof_is_worked_out_again_to_the_same_times(case, policy):
    bound = case_bound(case, DEVICE, policy)
    verify(proof_of(case.digest, bound, DEVICE, policy))
    proved = [term.time_s for term in bound.terms if term.status == PROVED]
    assert bound.time_s == max(proved)


@given(CASES)
def test_the_ends_of_an_interval_enclose_the_bound_of_given_values(case):
    bound = case_bound(case, DEVICE)
    if bound.interval is None:
        return
    axes = dict(case.axes)
    given_value = dataclasses.replace(case, axes=tuple((axes | {"touched_rows": 2}).items()))
    exact = case_bound(given_value, DEVICE)
    assert bound.interval.low_s == bound.time_s <= exact.time_s <= bound.interval.high_s
    assert exact.interval is None


@pytest.mark.parametrize("axis", ["m", "n", "k"])
def test_the_capacity_term_grows_with_each_extent(axis):
    sizes = {"m": 50_000, "n": 60_000, "k": 70_000}
    less, more = (
        nearpeak.bound(nearpeak.case("gemm", dtype="bf16", **one), DEVICE).terms_s["capacity"]
        for one in (sizes, sizes | {axis: 2 * sizes[axis]})
    )
    assert more > less


def test_a_product_of_shared_matrices_counts_only_what_has_its_own():
    shared = work_of(nearpeak.case("gemm", m=8, n=8, k=8, batch=4, a_batch=1, b_batch=1, dtype="bf16")).contraction
    own = work_of(nearpeak.case("gemm", m=8, n=8, k=8, batch=4, a_batch=1, dtype="bf16")).contraction
    assert (shared.product_count, own.product_count) == (8**3, 4 * 8**3)
