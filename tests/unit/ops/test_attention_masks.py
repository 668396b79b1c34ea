"""Closed forms of what attention leaves alive, against masks by their definition; more masking never costs more."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sampling import sampled

from nearpeak.bounds.case_bound import work_bound
from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import SpecError
from nearpeak.ops import OPS, case, work_of
from nearpeak.ops.shared.live_pairs import ALIGNMENTS, Band, Live, band_live, band_mask, mask_of
from nearpeak.targets import target_of

H200 = target_of("h200_sxm")


def counted(mask):
    return Live(int(mask.sum()), int(mask.any(axis=0).sum()), int(mask.any(axis=1).sum()))


def bands(kv):
    windows = [(left, right, 0) for left in range(kv + 3) for right in range(kv + 3)]
    return [*windows, *((0, 0, chunk) for chunk in range(1, kv + 3))]


@pytest.mark.parametrize(("causal", "align"), product((False, True), ALIGNMENTS))
def test_closed_forms_count_what_the_definition_leaves(causal, align):
    for q, kv in product(range(6), range(7)):
        rows = [Band(*band, causal, align) for band in bands(kv)]
        wanted = [counted(band_mask(q, kv, band)) for band in rows]
        assert [band_live(q, kv, band) for band in rows] == wanted
        columns = (np.array(column) for column in zip(*bands(kv), strict=True))
        together = band_live(np.full(len(rows), q), np.full(len(rows), kv), Band(*columns, causal, align))
        assert np.array_equal(np.stack([np.broadcast_to(c, len(rows)) for c in together], axis=1), np.array(wanted))


@pytest.mark.parametrize("seed", sampled(range(30), 10))
def test_a_mask_is_made_with_the_counts_that_are_asked_for(seed):
    random = np.random.default_rng(seed)
    batch, groups, share, q, kv = (int(n) for n in random.integers(1, 5, 5))
    queries, keys = int(random.integers(1, share * q + 1)), int(random.integers(1, kv + 1))
    blocks = int(random.integers(1, batch * groups + 1))
    pairs = int(random.integers(max(queries, keys), queries * keys + 1))
    wanted = Live(pairs * blocks, keys * blocks, queries * blocks)
    mask = mask_of(wanted, batch, groups * share, groups, q, kv)
    seen = mask.reshape(batch, groups, share * q, kv).any(axis=2)
    assert (mask.sum(), seen.sum(), mask.any(axis=3).sum()) == wanted


def test_a_mask_that_no_scores_have_is_refused():
    with pytest.raises(SpecError, match="no mask over"):
        mask_of(Live(pairs=9, keys=2, queries=2), 1, 1, 1, 4, 4)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_more_masking_never_raises_the_work_or_the_bound(data):
    q, kv, seed = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40)), data.draw(st.integers(0, 2**32))
    random = np.random.default_rng(seed)
    heads, groups = data.draw(st.sampled_from(((1, 1), (4, 2), (4, 1))))
    wide = random.random((heads, q, kv)) < data.draw(st.floats(0, 1))
    narrow = wide & (random.random(wide.shape) < data.draw(st.floats(0, 1)))
    for phase in ("forward", "backward"):
        more, less = (known(phase, mask, heads, groups) for mask in (wide, narrow))
        dense = work_of(case("attention", phase, batch=1, heads=heads, kv_heads=groups, q=q, kv=kv, **SIZES))
        assert_no_more(less, more)
        assert_no_more(more, dense)


SIZES = {"dim": 64, "dtype": "bf16"}


def known(phase, mask, heads, groups):
    """The work under a mask [heads, q, kv] whose values are known."""
    _, q, kv = mask.shape
    keys = mask.reshape(groups, -1, kv).any(axis=1).sum()
    live = {"live_pairs": mask.sum(), "live_keys": keys, "live_queries": mask.any(axis=2).sum()}
    counts = {name: int(count) for name, count in live.items()}
    return work_of(
        case("attention", phase, batch=1, heads=heads, kv_heads=groups, q=q, kv=kv, mask="known", **counts, **SIZES)
    )


def assert_no_more(less, more):
    assert sum(less.flop.values()) <= sum(more.flop.values())
    assert (less.special_count, less.read_bytes) <= (more.special_count, more.read_bytes)
    assert less.read_bytes <= more.read_bytes
    assert work_bound(less, H200).time_s <= work_bound(more, H200).time_s


@pytest.mark.parametrize(("narrow", "wide"), [
    ({"causal": True}, {}), ({"left": 9}, {"left": 10}), ({"left": 9, "causal": True}, {"causal": True}),
    ({"right": 2}, {"right": 3}), ({"chunk": 16}, {"chunk": 32}), ({"causal": True, "mask": "bool"}, {"mask": "bool"}),
])  # fmt: skip
def test_a_narrower_band_never_costs_more(narrow, wide):
    for phase, align in product(OPS["attention"].signatures, ALIGNMENTS):
        sizes = {"batch": 2, "heads": 4, "kv_heads": 2, "q": 64, "kv": 64, "align": align, **SIZES}
        less, more = (work_of(case("attention", phase, **sizes, **band)) for band in (narrow, wide))
        assert_no_more(less, more)
        assert sum(less.flop.values()) < sum(more.flop.values())


@pytest.mark.parametrize(("given_", "message"), [
    ({"chunk": 2, "left": 2}, "chunk contradicts left and right"),
    ({"align": "top"}, "align='top' is not one of upper_left, lower_right"),
    ({"mask": "causal"}, "mask='causal' is not one of"),
    ({"live_pairs": 3}, "belong to mask=known, not to mask=none"),
    ({"mask": "known", "live_pairs": 17}, "live_pairs=17 contradicts the pairs there are=16"),
    ({"mask": "known", "live_pairs": 2, "live_keys": 3}, "live_keys=3 contradicts live_pairs=2"),
    ({"latent": True, "v_dim": 99}, "v_dim=99 contradicts dim=64"),
])  # fmt: skip
def test_masks_that_contradict_themselves_are_refused(given_, message):
    with pytest.raises(SpecError, match=message):
        work_of(case("attention", batch=1, heads=1, q=4, kv=4, **SIZES, **given_))


def test_formats_of_caches_change_their_bytes_alone():
    plain = work_of(case("attention", batch=1, heads=4, q=1, kv=64, **SIZES))
    narrow = work_of(case("attention", batch=1, heads=4, q=1, kv=64, kv_dtype="fp8_e4m3", **SIZES))
    assert plain.read_bytes - narrow.read_bytes == 2 * 4 * 64 * 64 * (dtype_of("bf16").bytes(1) - 1)
    assert plain.flop == narrow.flop
