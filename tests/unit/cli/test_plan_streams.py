"""`nearpeak plan streams`: verdict, page, exit codes, and one-line errors."""

import json

import pytest
from typer.testing import CliRunner

from nearpeak.cli import application

GOLDEN = """
[[stream]]
name = "camera"
period = "33 ms"
stages = ["kernel"]
times = ["11 ms"]
[[stream]]
name = "radar"
period = "100 ms"
stages = ["h2d", "kernel"]
times = ["1 MB", "45 ms"]
"""
BY_MODE = """
[[stream]]
name = "camera"
period = "33 ms"
stages = ["kernel"]
[stream.times]
"15W" = ["40 ms"]
"30W" = ["20 ms"]
"50W" = ["15 ms"]
"""


def run(folder, text, *words):
    path = folder / "rig.toml"
    path.write_text(text, "utf-8")
    return CliRunner().invoke(application(), ["plan", "streams", str(path), "-t", "jetson_agx_orin:30W", *words])


def test_the_golden_rig_is_refuted_with_a_page_and_proved_in_slices(tmp_path):
    page = tmp_path / "rig.html"
    done = run(tmp_path, GOLDEN, "--schedule", "edf", "--text", "--html", str(page), "--why")
    assert done.exit_code == 10, (done.output, done.exception)
    text = " ".join(done.stdout.split())
    assert "Not schedulable: frame 0 of camera" in text
    assert "With --schedule slices every deadline is proved" in text
    assert "Counter-example" in text
    assert "camera 0" in page.read_text("utf-8")
    assert '"colours":["matrix","dram"]' in page.read_text("utf-8")
    cut = run(tmp_path, GOLDEN, "--schedule", "slices", "--json")
    assert cut.exit_code == 0
    record = json.loads(cut.stdout)
    assert record["outcome"]["verdict"] == "proved"
    assert record["rig"]["streams"][1]["stages"][1]["slice_count"] == 3


def test_modes_name_the_least_power_that_meets_every_deadline(tmp_path):
    done = run(tmp_path, BY_MODE, "--modes", "--json")
    record = json.loads(done.stdout)
    assert [row["verdict"] for row in record["modes"]] == ["refuted", "proved", "proved"]
    assert record["least_mode"] == "jetson_agx_orin:30W"


@pytest.mark.parametrize(("text", "words", "message"), [
    ("x = 1", (), "no key x"),
    (GOLDEN, ("--schedule", "best"), "schedule 'best': not known"),
    (GOLDEN, ("--modes",), "times are stated for no power mode"),
    (GOLDEN.replace("kernel", "npu"), (), "stage 'npu'"),
    (GOLDEN.replace('"33 ms"', '"33 parsecs"'), (), "stream camera: period"),
    (GOLDEN.replace('["11 ms"]', '["11 ms", "1 ms"]'), (), "one of each stage"),
    (GOLDEN.replace('["11 ms"]', '["model"]'), (), "no model is stated"),
    (GOLDEN.replace('["11 ms"]', '["1 MB"]'), (), "bytes are for h2d and d2h"),
    (GOLDEN + "share = 2\n", (), "share is 2"),
    (GOLDEN + '[engines]\nnpu = 1\n', (), "is not one of"),
    (GOLDEN + '[[fusion]]\nstreams = ["camera", "sonar"]\n', (), "fusion"),
    (GOLDEN + 'rate = "5/s"\n', (), "a rate or a period"),
    ("stream = [1]\n", (), "1 where a table with name and values is expected"),
    (GOLDEN.replace('"camera"', '"a\\nb"'), (), "name is 'a\\nb'; text of one line"),
    (GOLDEN.replace('"camera"', "7"), (), "name is 7; text of one line"),
    (GOLDEN.replace('"33 ms"', '"0 s"'), (), "rig.toml: stream camera: period is 0 s"),
    (GOLDEN.replace('"33 ms"', f'"{"9" * 400} ms"'), (), "… (405 characters) is not"),
    (GOLDEN.replace('["11 ms"]', f"[{'9' * 400}]"), (), "… (400 characters) is not"),
    (GOLDEN + f"slices = {'9' * 400}\n", (), "… (400 characters); a whole number"),
    (GOLDEN + 'pageable = "no"\n', (), "pageable is 'no'; true or false is right"),
    (GOLDEN.replace('["kernel"]', "[]").replace('["11 ms"]', "[]"), (), "has 0 stages; 1 to 32 are right"),
    (GOLDEN * 60, (), "has 120 streams; at most 100 are planned together"),
])  # fmt: skip
def test_a_malformed_rig_is_one_line(tmp_path, text, words, message):
    done = run(tmp_path, text, *words)
    assert message in str(done.exception), (done.output, done.exception)
    assert "\n" not in str(done.exception)
    assert len(str(done.exception)) < 400
