from math import ceil

import numpy as np
import pytest

from nearpeak.bounds.bound_table import bound_table, bounds_s
from nearpeak.core.answers.bound import Policy
from nearpeak.core.answers.prediction import Correction
from nearpeak.ops.shared.tables.case_table import case_table
from nearpeak.prediction import correction_kernel as trees
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.prediction.correction_layout import DEPTH, LARGEST_RATIO, LEAF_COUNT
from nearpeak.prediction.gemm.best_tile import best_tile
from nearpeak.prediction.gemm.gemm_kernel import SPLITS, slowed_ratio
from nearpeak.prediction.gemm.product_formats import device_figures, tile_sets
from nearpeak.prediction.kernel_model import CaseColumns, Setting
from nearpeak.prediction.largest_part import largest
from nearpeak.prediction.models.gemm import KERNEL_MODEL
from nearpeak.prediction.refinement import coefficients_of
from nearpeak.targets import target_of

PAIRS = (
    ("h100_sxm", "gemm", "bf16"), ("l40s", "gemm", "fp16"), ("t4", "gemm", "fp32"), ("p4", "gemm", "fp32"),
    ("h100_sxm", "scaled_gemm", "fp8_block_1x128"), ("b200_sxm", "scaled_gemm", "nvfp4"), ("mi300x", "gemm", "bf16"),
)  # fmt: skip


def products(op, dtype, count, seed):
    draw = np.random.default_rng(seed)
    exponents = {axis: draw.uniform(0, 14, count) for axis in "mnk"}
    round_ones = draw.random(count) < 0.5  # as whole tiles are
    axes = {axis: np.exp2(np.where(round_ones, one.round(), one)).astype(np.int64) for axis, one in exponents.items()}
    axes["batch"] = np.where(draw.random(count) < 0.7, 1, draw.integers(2, 100, count))
    return CaseColumns(op=op, phase="forward", dtypes={"dtype": dtype}, axes=axes)


def scalars_for(target, cases):
    """Return shipped scalars, with cheap splits, and loads that slow down where rows are no whole lines."""
    found = coefficients_of(calibration_for(target, KERNEL_MODEL, cases))
    names = [one.name for one in KERNEL_MODEL.coefficients]
    for name, value in {"split_s": 1e-6, "far_ratio": 0.5, "unaligned_ratio": 0.25}.items():
        found[names.index(name)] = value
    return found


def plain_least(m, n, k, batch, hw, p, tiles):
    """Return the least time of all tiles and splits, one by one, as docs/lab/kernel_models.md tells it."""
    peak, sm, bandwidth, cache, clock, a, b, c, quantised, copies, line, _, _, single = hw
    s = dict(zip([one.name for one in KERNEL_MODEL.coefficients], p, strict=True))
    sizes = [batch * m * k * a, batch * n * k * b, batch * m * n * c]

    def missed(b_copies):
        return min(max((sizes[0] + b_copies * sizes[1] + sizes[2]) / (s["residency_ratio"] * cache) - 0.5, 0.0), 1.0)

    fresh = 0.0 if quantised > 0 and sizes[0] < 0.5 * cache else missed(1)
    slower = slowed_ratio(m, n, k, batch, hw, p)
    copies = min(max(ceil(cache / sizes[1]), 1), copies)
    read_s = (sizes[0] * fresh + sizes[1] * missed(copies)) / (s["dram_ratio"] * bandwidth) * slower
    write_s = sizes[2] * missed(1) / (s["store_ratio"] * bandwidth)
    port_s = batch * m * n / (64.0 * clock * sm)
    whole = single > 0 and m > 1 and batch * m * n * k < 2**21 and k <= 8192
    step_s = s["serial_s"] if whole else s["step_s"] / line
    edge_s = s["balanced_elements"] * sm / peak * 0.5 * (a + b) / max(a, b) * slower
    times = []
    for tile_m, tile_n in zip(*tiles, strict=True):
        if len(tiles[0]) > 1 and ((tile_m >= 2 * m and tile_m > 64) or (tile_n >= 2 * n and tile_n > 64)):
            continue
        for split in SPLITS:
            load = batch * ceil(m / tile_m) * ceil(n / tile_n) * split / sm
            if split > 1 and (whole or batch > 1 or load > 2 or k < 4 * line * split):
                continue
            depth, waves = line * ceil(k / (line * split)), 1.0 if load <= 1 else load + 0.4 * (ceil(load) - load)
            filling, busy = max(1.0, 0.25 / load) if load <= 1 else 1.0, min(load, 1.0)
            four = (
                waves * (depth * 2.0 * sm * tile_m * tile_n / (s["tensor_ratio"] * peak) + s["tile_start_s"]),
                max(load, 1.0) * depth * edge_s * (tile_m + tile_n), (read_s + write_s) * filling,
                waves * depth * step_s,
            )  # fmt: skip
            store = s["exposed_store_ratio"] * (write_s + port_s * c) * (filling if load <= 1 else 1 / waves)
            added = s["split_s"] + (split + 1) * 4.0 * port_s / busy if split > 1 else 0.0
            times.append(sum(x**4 for x in four) ** 0.25 + store + added + s["grid_ramp_s"] * busy)
    return min(times)


@pytest.mark.parametrize(("device", "op", "dtype"), PAIRS)
def test_the_search_leaves_out_no_tile_and_no_split_that_ends_sooner(device, op, dtype):
    cases, target = products(op, dtype, 150, 11), target_of(device)
    hw, p = device_figures(target, cases.dtypes, Setting()), scalars_for(target, cases)
    split = 0
    for extents in zip(*(cases.axes[axis].astype(float) for axis in ("m", "n", "k", "batch")), strict=True):
        ((_, tiles),) = tile_sets(target, dtype, np.array(extents[3:]))
        found = best_tile(*extents, hw, p, tiles)
        assert found.least_s == pytest.approx(plain_least(*extents, hw, p, tiles), rel=1e-9)
        split += found.split > 1
    assert split > 0


@pytest.mark.parametrize(("device", "op", "dtype"), PAIRS)
def test_a_row_alone_gives_to_the_last_bit_what_it_gives_among_many(device, op, dtype):
    cases, target = products(op, dtype, 600, 12), target_of(device)
    p, setting = scalars_for(target, cases), Setting(quantises_input=True, host_timed=True)
    together = KERNEL_MODEL.rows(target, cases, p, setting)
    for row in (*range(40), 255, 256, 257, 511, 512, 599):
        axes = {name: int(column[row]) for name, column in cases.axes.items()}
        one = CaseColumns(op=op, phase="forward", dtypes=cases.dtypes, axes=axes)
        alone = KERNEL_MODEL.rows(target, one, p, setting)
        assert alone.time_s[0] == together.time_s[row]
        assert np.array_equal(alone.parts_s[0], together.parts_s[row])
    assert together.parts_s.sum(1) == pytest.approx(together.time_s, rel=1e-12)


def test_tables_of_many_blocks_give_what_their_slices_give():
    axes = products("gemm", "bf16", 9000, 13).axes
    columns = {"op": "gemm", "dtype": "bf16", **axes}
    whole = predict_table(case_table(columns), target_of("h100_sxm"))
    for piece in (slice(0, 1), slice(8190, 8195), slice(8999, 9000)):
        part = {name: value[piece] for name, value in axes.items()}
        found = predict_table(case_table({"op": "gemm", "dtype": "bf16", **part}), target_of("h100_sxm"))
        for name in ("predicted_s", "low_s", "high_s", "bound_s", "limiter", "bound_decides"):
            assert getattr(found, name).tolist() == getattr(whole, name)[piece].tolist()


def test_the_largest_part_is_the_first_of_equal_ones():
    parts = np.random.default_rng(14).integers(0, 5, (1500, 7)).astype(float)
    for one in (parts, np.asfortranarray(parts)):
        places, most = largest(one)
        assert np.array_equal(places, parts.argmax(1))
        assert np.array_equal(most, parts.max(1))


@pytest.mark.parametrize(("leaf", "ratio"), [(127, 1 + LARGEST_RATIO), (-127, 1 - LARGEST_RATIO), (0, 1.0)])
def test_trees_that_agree_end_at_the_bounds_whatever_else_they_are_shown(leaf, ratio):
    count = 7  # no whole number of trees that are walked together
    one = Correction(
        columns=("n",), edges=((5.0,),), splits=bytes(2 * DEPTH * count),
        leaves=np.full((count, LEAF_COUNT), leaf, dtype=np.int8).tobytes(),
    )  # fmt: skip
    values = np.random.default_rng(15).random((3, 700)).astype(np.float32)
    assert trees.ratio(one, ("m", "k", "n"), values) == pytest.approx(ratio, rel=1e-15)


def test_bounds_alone_are_those_of_the_table_of_bounds():
    axes = products("gemm", "bf16", 300, 16).axes
    table = case_table({"op": "gemm", "dtype": np.array(["bf16", "fp32", "fp16"])[np.arange(300) % 3], **axes})
    target = target_of("a100_sxm_80gb")
    assert np.array_equal(bounds_s(table, target, Policy()), bound_table(table, target, Policy()).bound_s)
