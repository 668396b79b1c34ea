"""Computations told from names: each rule has a source and decides names, and lookalikes are told apart."""

import csv
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from house_rules import PACKAGE
from tests.samples import SAMPLES, needs_samples

from nearpeak.core.traces.trace import CopyKind, EventKind
from nearpeak.traces.formats import read_trace
from nearpeak.traces.timeline.kernel_names import (
    MOST_CHARACTERS,
    copy_of,
    family_of,
    is_layout_conversion,
    name_rules,
    without_parameters,
)

ROWS = list(csv.DictReader((Path(__file__).parents[2] / "golden" / "kernel_names.csv").open(encoding="utf-8")))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"][:60])
def test_a_name_tells_what_the_kernel_computes(row):
    assert family_of(row["name"]).name.lower() == row["family"]
    assert is_layout_conversion(row["name"]) == (row["conversion"] == "yes")


def test_every_rule_states_its_source_and_decides_a_name():
    table = tomllib.loads((PACKAGE / "traces" / "timeline" / "names.toml").read_text("utf-8"))["rule"]
    assert all(rule["source"] for rule in table)
    deciding = Counter()
    for row in ROWS:
        head = without_parameters(row["name"])
        deciding[next((place for place, rule in enumerate(name_rules()) if rule.pattern.search(head)), None)] += 1
    assert set(range(len(table))) <= set(deciding)


@needs_samples
@pytest.mark.parametrize(
    ("file", "counts"),
    [("tracelens/h100_Qwen*", {"gemm": 242, "cast": 144, "layout": 69, "attention": 34}),
     ("tracelens/b200_eager*", {"gemm": 181, "cast": 73, "comm": 74, "norm": 73, "attention": 36, "layout": 0}),
     ("kineto/critical_path_alexnet*", {"conv": 8, "gemm": 8, "layout": 12, "cast": 0})],
)  # fmt: skip
def test_the_census_of_public_traces_is_as_it_was_looked_through(file, counts):
    path = next(SAMPLES.glob(file))
    trace = read_trace(path)
    families = Counter(family_of(trace.name_of(int(row))).name.lower() for row in trace.rows(EventKind.KERNEL))
    assert {name: families[name] for name in counts} == counts


def test_of_a_name_without_end_only_the_first_part_is_looked_at():
    assert without_parameters("x" * 1_000_000) == "x" * MOST_CHARACTERS
    assert copy_of("x" * MOST_CHARACTERS + "HtoD")[0] is CopyKind.UNKNOWN
