"""Every device file against a row worked out by hand."""

import csv
import re
from pathlib import Path

import pytest

from nearpeak.targets import TARGETS, target_of

GOLDEN = Path(__file__).parents[2] / "golden" / "targets.csv"
with GOLDEN.open(encoding="utf-8") as file:
    ROWS = {row["name"]: row for row in csv.DictReader(file)}


def worked_out(text):
    """Return the value of a sum of products, the only arithmetic that a golden cell may hold."""
    assert re.fullmatch(r"[\d.e+*/()]+", text), text
    return float(eval(text))


def test_every_device_file_has_a_golden_row():
    assert set(ROWS) == set(TARGETS)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_device_file_agrees_with_its_golden_row(name):
    row, target = ROWS[name], target_of(name)
    assert target.sm_count == int(row["sm_count"])
    assert target.flop_per_s(row["unit"]) == pytest.approx(worked_out(row["flop_per_s"]), rel=0.01)
    assert target.flop_per_s(row["unit"]) == pytest.approx(worked_out(row["arithmetic"]), rel=0.01)
    assert target.dram.bandwidth_bytes_per_s == pytest.approx(worked_out(row["dram_bytes_per_s"]), rel=0.001)
    assert target.dram.capacity_bytes == worked_out(row["dram_bytes"])
    assert target.l2.capacity_bytes == worked_out(row["l2_bytes"])


@pytest.mark.parametrize("name", sorted(ROWS))
def test_golden_row_names_the_strongest_unit(name):
    target = target_of(name)
    strongest = max(peak.flop_per_s for peak in target.peaks.values())
    assert target.flop_per_s(ROWS[name]["unit"]) == strongest
