import csv
import json

from nearpeak.cli import application


def run(capsys, *words):
    application()(list(words), standalone_mode=False)
    return capsys.readouterr().out


def test_one_case_in_words_gives_its_waterfall_and_its_scalars(capsys):
    found = json.loads(
        run(capsys, "predict", "gemm", "m=4096", "n=4096", "k=4096", "dtype=bf16", "-t", "h100_sxm", "--json")
    )
    assert abs(sum(found["waterfall_s"].values()) / found["predicted_s"] - 1) < 1e-9
    assert found["calibration"]["scalars"]["tensor_ratio"]["identified"] is True


def test_a_table_comes_back_with_the_predicted_columns(tmp_path, capsys):
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    table.write_text("op,dtype,m,n,k,note\ngemm,bf16,16,4096,4096,a\ngemm,fp32,512,512,512,b\n")
    run(capsys, "predict", "--cases", str(table), "--out", str(out), "-t", "h100_sxm")
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["note"] for row in rows] == ["a", "b"]
    for row in rows:
        assert float(row["bound_s"]) <= float(row["low_s"]) <= float(row["predicted_s"]) <= float(row["high_s"])
        assert row["limiter"]
