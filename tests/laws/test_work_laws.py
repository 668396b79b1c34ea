"""Work adds up like a vector: a commutative monoid with whole multiples."""

from hypothesis import given
from hypothesis import strategies as st

from nearpeak.core.work.work import NO_WORK, Work

COUNTS = st.one_of(st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**64]), st.integers(0, 2**70))
KINDS = st.dictionaries(st.sampled_from(["matrix.bf16", "matrix.fp8_e4m3", "vector.fp32"]), COUNTS)
PORTS = st.dictionaries(st.sampled_from(["peer.in", "peer.out", "host.in"]), COUNTS)
WORK = st.builds(
    Work, flop=KINDS, recompute_flop=KINDS, special_count=COUNTS, read_bytes=COUNTS, write_bytes=COUNTS,
    comm_bytes=PORTS, launch_count=COUNTS,
)  # fmt: skip


@given(WORK, WORK)
def test_order_of_addition_does_not_matter(left, right):
    assert left + right == right + left


@given(WORK, WORK, WORK)
def test_grouping_of_addition_does_not_matter(first, second, third):
    assert (first + second) + third == first + (second + third)


@given(WORK)
def test_no_work_changes_nothing(work):
    assert work + NO_WORK == work


@given(WORK, st.integers(1, 5))
def test_multiplication_is_repeated_addition(work, count):
    total = work
    for _ in range(count - 1):
        total = total + work
    assert total == work * count


@given(WORK, WORK)
def test_total_flop_adds_up_exactly_beyond_64_bits(left, right):
    assert (left + right).total_flop == left.total_flop + right.total_flop
