import itertools

import numpy as np
import pytest
from benchmarks.accuracy import choices
from benchmarks.accuracy.families.conv import FAMILY, miopen_kernels
from benchmarks.accuracy.families.gemm import FAMILY as PRODUCTS
from benchmarks.accuracy.fit import _remembered

duckdb = pytest.importorskip("duckdb")
SIZES = tuple(itertools.product((1, 2, 4, 8, 16, 32), (32, 64, 128, 256, 512), (28, 56)))


def write(path, columns, rows):
    table = duckdb.connect()
    table.execute(f"create table t ({columns})")
    table.executemany(f"insert into t values ({', '.join('?' for _ in rows[0])})", rows)
    table.execute(f"copy t to '{path}' (format parquet)")


def miopen_row(device, op, batch, channels, size, kernel, solvers, time_us):
    taps = (3, 3, 2, 2, 1, 1, 1, 1, 1, "NCHW")
    image = (batch, channels, size, size, 2 * channels, size // 2, size // 2)
    return ("miopen", device, op, "float32", *image, *taps, solvers, time_us, kernel, 0)


@pytest.fixture
def corpus(tmp_path):
    columns = (
        "source text, device text, op text, dtype text, batch int, cin int, hin int, win int, cout int, hout int, "
        "wout int, kh int, kw int, sh int, sw int, ph int, pw int, dh int, dw int, groups int, layout text, "
        "n_solvers int, latency_us double, kernel text, flags int"
    )
    rows = []
    for batch, channels, size in SIZES:
        time = 0.001 * batch * channels * size
        rows.append(miopen_row("amd_mi60", "conv_fwd", batch, channels, size, "direct", 3, time))
        rows.append(miopen_row("amd_mi50", "conv_fwd", batch, channels, size, "direct", 1, 1.25 * time))
        rows.append(miopen_row("amd_mi50", "conv_bwd_data", batch, channels, size, "unrolled", 2, 2 * time))
    write(tmp_path / "miopen_conv.parquet", columns, rows)
    columns = (
        "source text, device text, op text, dtype text, batch int, m int, n int, k int, latency_us double, "
        "kernel text, flags int"
    )
    rows = [
        ("neusight", "amd_mi100", "bmm", "float32", 64, size, 196, 196, 900.0, f"Cijk_SB_MT{tile}x32_SE", 4)
        for size, tile in ((32, "16x16"), (64, "16x16"), (128, "128x64"))
    ]
    write(tmp_path / "neusight_gemm.parquet", columns, rows)
    return tmp_path


def blocks(corpus):
    return {block.name: block for block in FAMILY.blocks(corpus)}


def test_boards_whose_ratio_is_the_same_for_every_shape_leave_nothing_open(corpus):
    (line,) = choices._board_lines(corpus)
    assert line == f"| amd_mi50 / amd_mi60 | conv_fwd float32 | {len(SIZES)} | 1.25 | 0.0 | 1.00 to 1.00 |"


def test_what_a_sister_board_does_not_tell_is_counted():
    other = np.geomspace(1e-5, 1e-2, 400)
    rest, ratio = choices.left(other * np.tile([1.0, 1.0, 2.0, 1.0], 100), other)
    assert ratio == pytest.approx(1.0)
    assert np.abs(rest - 1).mean() == pytest.approx(0.5 / 4)


def test_solvers_are_found_by_shape_in_both_directions(corpus):
    forward, backward = (blocks(corpus)[f"miopen mi50 {op} float32"] for op in ("conv_fwd", "conv_bwd_data"))
    assert [set(column.tolist()) for column in miopen_kernels(corpus, forward)] == [{"direct"}, {True}]
    assert [set(column.tolist()) for column in miopen_kernels(corpus, backward)] == [{"unrolled"}, {False}]
    assert forward.setting.is_alone


def test_tiles_of_products_are_read_from_the_names_of_kernels(corpus):
    (block,) = PRODUCTS.blocks(corpus)
    assert choices._tile_elements(corpus, block, np.arange(3)).tolist() == [256, 256, 128 * 64]
    lines = list(choices._tile_lines(corpus))
    assert sum(int(line.split("|")[3]) for line in lines) == 2


def test_neighbours_mend_what_a_form_misses_alike_everywhere(corpus):
    block = blocks(corpus)["miopen mi60 conv_fwd float32"]
    held_out = np.flatnonzero(choices.folds(block) == 3)
    mended = choices.by_neighbours(block, 3 * block.measured_s)
    assert mended == pytest.approx(block.measured_s[held_out])


def test_times_are_worked_out_once_while_only_scalars_of_other_passes_move(corpus):
    block, calls = blocks(corpus)["miopen mi60 conv_fwd float32"], []

    def times(coefficients):
        calls.append(1)
        return block.measured_s * coefficients[0]

    found, values = _remembered(FAMILY, block, times), np.ones(len(FAMILY.model.coefficients))
    names = [one.name for one in FAMILY.model.coefficients]
    base = found(values)
    other, own = values.copy(), values.copy()
    other[names.index("wgrad_split_s")], own[names.index("launch_s")] = 2.0, 2.0
    assert found(other) is base
    assert found(own) == pytest.approx(2 * base)
    assert len(calls) == 2
