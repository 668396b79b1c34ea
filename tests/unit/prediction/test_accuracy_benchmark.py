import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks.accuracy import pages
from benchmarks.accuracy.__main__ import main
from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Block, folds, site_numbers
from benchmarks.accuracy.refine import interval
from benchmarks.accuracy.scores import held_out, rows_of, score, summary

from nearpeak.targets import target_of

duckdb = pytest.importorskip("duckdb")
ROWS = (
    # device, dtype, m, n, k, latency_us, flags
    ("nvidia_h100_sxm", "bfloat16", 16, 4096, 4096, 14.0, 0),
    ("nvidia_h100_sxm", "bfloat16", 16, 4096, 4096, 13.0, 0),
    ("nvidia_h100_sxm", "bfloat16", 16, 4096, 4096, 9.0, 0x01),
    ("nvidia_h100_sxm", "bfloat16", 16, 4096, 4096, 8.0, 0x04),
    ("nvidia_h100_sxm", "bfloat16", 32, 4096, 4096, 1.0, 0x40),
    ("nvidia_h100_sxm", "bfloat16", 8192, 8192, 8192, 1500.0, 0),
    ("nvidia_h100_sxm", "w4a8", 16, 4096, 4096, 5.0, 0),
    ("nvidia_b200_sxm", "bfloat16", 8192, 8192, 8192, 750.0, 0),
)


def blocks(folder):
    return families("gemm")[0].blocks(folder)


def corpus(folder, rows):
    table = duckdb.connect()
    table.execute(
        "create table t (source text, device text, dtype text, m int, n int, k int, latency_us float, flags int)"
    )
    table.executemany("insert into t values ('aiconfigurator', ?, ?, ?, ?, ?, ?, ?)", rows)
    table.execute(f"copy t to '{folder / 'aic_gemm.parquet'}' (format parquet)")
    return folder


def test_the_reader_keeps_the_best_clean_row_of_each_shape(tmp_path):
    found = {block.name: block for block in blocks(corpus(tmp_path, ROWS))}
    assert set(found) == {"aiconfigurator h100_sxm bfloat16", "aiconfigurator b200_sxm bfloat16"}
    block = found["aiconfigurator h100_sxm bfloat16"]
    assert block.measured_s == pytest.approx([13e-6, 1500e-6])
    assert block.axes["m"].tolist() == [16, 8192]
    assert block.left_out["in cache"] == 1


def test_a_site_lies_in_the_same_fold_on_every_device(tmp_path):
    first, second = blocks(corpus(tmp_path, ROWS))
    where = [folds(block)[block.axes["n"] == 8192].tolist() for block in (first, second)]
    assert where[0] == where[1]


def test_rows_that_cannot_be_right_are_set_aside_and_counted_and_the_others_scored(tmp_path, capsys):
    broken = (
        ("nvidia_h100_sxm", "bfloat16", 16, 4096, 4096, -3.0, 0),
        ("nvidia_h100_sxm", "bfloat16", 64, 64, 64, float("nan"), 0),
        ("nvidia_h100_sxm", "bfloat16", 64, 64, 64, None, 0),
        ("nvidia_h100_sxm", "bfloat16", None, 64, 64, 3.0, 0),
        ("nvidia_h100_sxm", "bfloat16", 64, 0, 64, 3.0, None),
        ("nvidia_h100_sxm", None, 64, 64, 64, 3.0, 0),
    )
    block = next(one for one in blocks(corpus(tmp_path, (*ROWS, *broken))) if one.device == "h100_sxm")
    assert block.measured_s == pytest.approx([13e-6, 1500e-6])
    told = capsys.readouterr().err
    assert "nvidia_h100_sxm bfloat16 aiconfigurator: 3 rows without a positive time set aside" in told
    assert "2 shapes that lack an axis, or where one is out of range set aside" in told
    assert "aiconfigurator nvidia_h100_sxm None: 1 rows left out, read as no case" in told
    assert "aiconfigurator nvidia_h100_sxm w4a8: 1 rows left out" in told


def scores_of(folder, capsys, monkeypatch, *options):
    monkeypatch.setattr("sys.argv", ["accuracy", str(folder), *options])
    main()
    return capsys.readouterr()


def test_rows_of_other_devices_are_scored_however_they_are_named(tmp_path, capsys, monkeypatch):
    shape = ("bfloat16", 8192, 8192, 8192, 900.0, 0)
    rows = [(name, *shape) for name in ("NVIDIA H200 SXM", "rtx_4090", "nvidia_rtx3090", "acme_one")]
    rows.append(("nvidia_a30", "bfloat16", 64, 64, 64, 1.0, 0x04))
    told = scores_of(corpus(tmp_path, rows), capsys, monkeypatch, "--family", "gemm")
    for name in ("h200_sxm", "rtx_4090", "rtx_3090"):
        assert f"| gemm | aiconfigurator {name} bfloat16 | device | 1 |" in told.out
    assert "acme_one bfloat16 | not scored: target 'acme_one': not known" in told.out
    assert re.search(r"lists all \d+\) \| 1 \|", told.out)
    assert "3 shapes scored, 1 in blocks that nothing predicts" in told.err
    assert "aiconfigurator a30 bfloat16: no row left" in told.err


def test_few_rows_of_a_fitted_device_are_not_called_rows_of_a_device_without_any(tmp_path, capsys, monkeypatch):
    rows = [("nvidia_h100_sxm", "bfloat16", 4096, 128 * n, 4096, 20.0 + 5 * n, 0) for n in range(8, 48)]
    told = scores_of(corpus(tmp_path, rows), capsys, monkeypatch, "--family", "gemm")
    (line,) = [line for line in told.out.splitlines() if "aiconfigurator h100_sxm" in line]
    protocol, count = (cell.strip() for cell in line.split("|")[3:5])
    assert protocol == "sites"
    assert 0 < int(count) < len(rows)


def test_a_folder_without_a_table_is_refused_and_one_without_a_column_says_so(tmp_path, capsys, monkeypatch):
    (tmp_path / "strange.parquet").touch()
    assert "no table to score" in refusal(tmp_path, capsys, monkeypatch, 2).err
    duckdb.sql(f"copy (select 1 as m) to '{tmp_path / 'aic_gemm.parquet'}' (format parquet)")
    told = refusal(tmp_path, capsys, monkeypatch, 1)
    assert 'not read: aic_gemm.parquet: Binder Error: Referenced column "source" not found' in told.err
    assert "strange.parquet: not read" in told.err


def test_tables_that_cannot_be_read_are_named_and_the_others_scored(tmp_path, capsys, monkeypatch):
    corpus(tmp_path, [(name, "bfloat16", 16, 64, 64, 9.0, 0) for name in ("rtx_4090", "nvidia_b200_sxm")])
    columns = "'deepbench' as source, 'nvidia_v100_sxm2' as device, 'float16' as dtype, 64 as n, 64 as k, 0 as flags"
    for file, more in (("deepbench_gemm", "'64' as m, 9.0 as latency_us"), ("infersim_gemm", "64 as m")):
        duckdb.sql(f"copy (select {columns}, {more}) to '{tmp_path / file}.parquet' (format parquet)")
    (tmp_path / "simumax_gemm.parquet").write_bytes(b"no table")
    told = refusal(tmp_path, capsys, monkeypatch, 1)
    assert "| gemm | aiconfigurator rtx_4090 bfloat16 | device | 1 |" in told.out
    assert "aiconfigurator b200_sxm bfloat16: 1 shapes, none at a held-out site" in told.err
    (line,) = [line for line in told.err.splitlines() if "not read: " in line]
    assert "deepbench_gemm.parquet: column m holds text; wanted numbers" in line
    assert 'infersim_gemm.parquet: Binder Error: Referenced column "latency_us" not found' in line
    assert "simumax_gemm.parquet: Invalid Input Error" in line


def test_rows_that_nothing_predicts_do_not_take_their_block_with_them(tmp_path, capsys, monkeypatch):
    columns = "'aiconfigurator' as source, 'nvidia_h200_sxm' as device, 'all_reduce' as op, 'half' as dtype, 0 as flags"
    rows = ", ".join(f"({2**i}, {30.0 + i}, {16 if i % 3 == 0 else 4})" for i in range(12, 21))
    query = f"select {columns}, * from (values {rows}) t(bytes, latency_us, n_gpus)"
    duckdb.sql(f"copy ({query}) to '{tmp_path / 'aic_collectives.parquet'}' (format parquet)")
    monkeypatch.setattr("sys.argv", ["accuracy", str(tmp_path), "--family", "collective"])
    main()
    told = capsys.readouterr()
    assert "| collective | aiconfigurator h200_sxm all_reduce half | device | 6 |" in told.out
    assert "h200_sxm all_reduce half: 3 shapes left out, that nothing predicts" in told.err


def refusal(folder, capsys, monkeypatch, code):
    """Return what is said where scores end with an error."""
    with pytest.raises(SystemExit) as left:
        scores_of(folder, capsys, monkeypatch, "--family", "gemm")
    assert left.value.code == code
    return capsys.readouterr()


@pytest.mark.parametrize(("data", "said"), [
    (None, "not found; give the folder"), (b"", "aic_gemm.parquet: cannot be read: "),
    (b"op,m\ngemm,1\n", "aic_gemm.parquet: cannot be read: "),
])  # fmt: skip
def test_a_corpus_that_cannot_be_read_is_one_line_and_an_error(data, said, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "corpus"
    if data is not None:
        folder.mkdir()
        (folder / "aic_gemm.parquet").write_bytes(data)
    told = refusal(folder, capsys, monkeypatch, 2)
    assert said in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_a_corpus_without_a_row_that_counts_is_an_error(tmp_path, capsys, monkeypatch):
    left_out = ("nvidia_h100_sxm", "bfloat16", 64, 64, 64, 1.0, 0x04)
    told = refusal(corpus(tmp_path, [left_out]), capsys, monkeypatch, 1)
    assert "no block has a row to score" in told.err
    table = tmp_path / "aic_gemm.parquet"
    duckdb.sql(f"copy (select 1 as m where false) to '{table}' (format parquet)")
    assert "no row to score; aic_gemm.parquet: has no rows" in refusal(tmp_path, capsys, monkeypatch, 2).err
    with pytest.raises(SystemExit):
        scores_of(corpus(tmp_path, ROWS), capsys, monkeypatch, "--family", "gemm", "--only", "h900")
    assert "no block with 'h900' in its name" in capsys.readouterr().err


def test_a_score_tells_errors_coverage_and_the_roofline_beside_them(tmp_path):
    block = next(block for block in blocks(corpus(tmp_path, ROWS)) if block.device == "h100_sxm")
    found = score(rows_of(block, np.arange(2), "sites"))
    assert found.all.row_count == 2
    assert found.long.row_count == 1
    assert found.all.mean_ratio < found.roofline_ratio
    assert 0 <= found.covered_ratio <= 1
    assert found.beaten_ratio == 0


def test_the_summary_weighs_blocks_by_their_rows_and_keeps_protocols_apart(tmp_path):
    first, second = blocks(corpus(tmp_path, ROWS))
    rows = np.arange(len(first.measured_s))
    scored = [score(rows_of(first, rows, "sites")), score(rows_of(second, np.arange(1), "device"))]
    lines = summary({"gemm": scored}).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert [row[:3] for row in cells] == [
        [name, how, str(one.all.row_count)]
        for how, one in (("sites", scored[0]), ("device", scored[1]))
        for name in ("gemm", "all")
    ]
    assert cells[0][3] == f"{100 * scored[0].all.mean_ratio:.1f} %"


def test_intervals_leave_out_what_a_source_shows_only_where_it_was_late():
    family = families("stream")[0]
    count = np.repeat([4096, 2**26], 400)
    block = Block(
        source="vidur", device="a100_sxm_80gb", kind="add", op="elementwise", dtypes={"dtype": "fp16"},
        axes={"elements": count, "b": count}, attributes={"function": "add"}, measured_s=np.full(800, 20e-6),
        sites=site_numbers(np.arange(800)),
    )  # fmt: skip
    values = np.array([one.usual_value for one in family.model.coefficients])
    times = family.model.rows(target_of(block.device), block.columns(slice(None)), values, block.setting).time_s
    block = dataclasses.replace(block, measured_s=np.where(count == 4096, 20e-6, times))
    assert interval(family, [(block, values)])["launch"][1] > 2
    assert interval(family, [(dataclasses.replace(block, least_s=8e-6), values)])["launch"][1] == pytest.approx(1)


def test_copies_and_quarantined_rows_are_no_measurements(tmp_path, capsys):
    wrong = [("nvidia_h100_sxm", "bfloat16", 16, 4096, 4096, 2.0, flags) for flags in (0x02, 0x80)]
    block = next(one for one in blocks(corpus(tmp_path, (*ROWS, *wrong))) if one.device == "h100_sxm")
    assert block.measured_s == pytest.approx([13e-6, 1500e-6])
    assert "2 copies of another device or quarantined rows set aside" in capsys.readouterr().err


def test_a_format_without_coefficients_is_another_operation_of_the_one_framework_that_ran(tmp_path):
    shapes = [(256, 256 * (n + 1), 4096, 20.0 + n) for n in range(400)]
    for software in ("trtllm 1.2", "acme 1.0"):
        rows = ", ".join(f"({m}, {n}, {k}, {time})" for m, n, k, time in shapes)
        fixed = (
            f"'aiconfigurator' as source, 'nvidia_b200_sxm' as device, 'fp8_static' as dtype, '{software}' as software"
        )
        duckdb.sql(
            f"copy (select {fixed}, 0 as flags, * from (values {rows}) t(m, n, k, latency_us)) "
            f"to '{tmp_path / 'aic_gemm.parquet'}' (format parquet)"
        )
        (block,) = blocks(tmp_path)
        (family,) = families("gemm")
        assert held_out(family, block).protocol == "source"
        assert block.setting.software == ("trtllm" if software.startswith("trtllm") else "")


def test_rows_that_no_line_counts_stand_with_their_reason(tmp_path, capsys, monkeypatch):
    corpus(tmp_path, [("rtx_4090", "bfloat16", 16, 64, 64, 9.0, 0)])
    rows = "(8, 0), (16, 0), (8, 20)"
    duckdb.sql(
        f"copy (select 'a' as source, 'nvidia_h100_sxm' as device, 'deepep_ll_combine' as op, 256 as tokens, "
        f"4096 as hidden, 8 as topk, 90.0 as latency_us, 0 as flags, * from (values {rows}) t(n_gpus, sms)) "
        f"to '{tmp_path / 'aic_deepep.parquet'}' (format parquet)"
    )
    duckdb.sql(f"copy (select 1 as m) to '{tmp_path / 'strange.parquet'}' (format parquet)")
    monkeypatch.setattr("sys.argv", ["accuracy", str(tmp_path)])
    main()
    told = capsys.readouterr().out
    assert "| strange | 1 of 1 | no family reads a table of this name |" in told
    assert "| aic_deepep | 1 of 3 | more ranks than a node has" in told
    assert "| aic_deepep | 1 of 3 | kernels on a given number of multiprocessors" in told


def test_layers_of_other_projects_read_as_products(tmp_path):
    fixed = "'tracelens' as source, 'nvidia_h100_sxm' as device, 0 as flags, 20.0 as latency_us"
    rows = (
        ("aten::addmm", "((96,), (64, 32), (32, 96), (), ())"), ("aten::bmm", "((8, 64, 32), (8, 32, 96))"),
        ("aten::addmm", "((64, 96), (64, 32), (32, 96), (), ())"),
    )  # fmt: skip
    values = ", ".join(f"('{op}', '{dims}')" for op, dims in rows)
    dtype = "'(c10::BFloat16, c10::BFloat16)' as dtype"
    duckdb.sql(
        f"copy (select {fixed}, {dtype}, * from (values {values}) t(op, in_dims)) "
        f"to '{tmp_path / 'tracelens_ops.parquet'}' (format parquet)"
    )
    found = {block.kind: block.axes for block in families("layer_products")[0].blocks(tmp_path)}
    for kind, batch in (("addmm", 1), ("bmm", 8)):
        assert {name: column.tolist() for name, column in found[kind].items()} == {
            "batch": [batch], "m": [64], "n": [96], "k": [32]
        }  # fmt: skip


def test_every_generated_page_says_when_and_on_what_sources_it_was_taken(tmp_path):
    modules = [path for path in sorted(Path(pages.__file__).parent.glob("*.py")) if "write_page(" in path.read_text()]
    names = [re.search(r'PAGES / "(\w+\.md)"', path.read_text())[1] for path in modules if path.stem != "pages"]
    assert len(names) == 10
    pages.write_page(tmp_path / "new.md", "# Title\n\nText.\n")
    for page in (*(pages.PAGES / name for name in names), tmp_path / "new.md"):
        title, empty, line = page.read_text(encoding="utf-8").splitlines()[:3]
        assert (title[:2], empty) == ("# ", "")
        assert re.match(r"Taken on 20\d\d-\d\d-\d\d at commit [0-9a-f]{7,12}(\+edits)?\.", line), page.name
