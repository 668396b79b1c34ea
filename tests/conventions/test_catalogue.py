"""One thing, one file: operators, targets and report formats are found by their stems and are complete."""

import csv
import json
import tomllib

import pytest
from house_rules import PACKAGE, ROOT

from nearpeak.ops import OPS
from nearpeak.ops.shared.definition.tolerance import KINDS
from nearpeak.reports import FORMATS
from nearpeak.targets import TARGETS, target_of

GOLDEN = ROOT / "tests" / "golden"


def stems(pattern):
    files = PACKAGE.glob(pattern)
    return sorted(file.stem for file in files if not file.stem.startswith("_") and file.parent.name != "shared")


def test_registered_names_are_the_stems_of_the_files():
    assert stems("ops/*/*.py") == [name for name in OPS if OPS[name].forward.__module__.endswith(f".{name}")]
    assert len(stems("ops/*/*.py")) > 80
    assert stems("targets/*.toml") == sorted(set(TARGETS))
    assert stems("reports/analysis/*.py") == sorted(set(FORMATS))


@pytest.mark.parametrize("name", OPS)
def test_every_operator_is_complete(name):
    operator = OPS[name]
    assert operator.name == name
    assert operator.source.strip()
    assert operator.tolerance.kind in KINDS
    assert all(callable(part) for part in (operator.inputs, operator.reference, operator.torch_call))
    assert (operator.backward is None) == (operator.backward_reference is None)
    known = {parameter for signature in operator.signatures.values() for parameter in signature.names()}
    assert set(operator.tolerance.reduction.split()) <= known
    limits = {limit.rpartition("*")[2] for limit in operator.tolerance.below.values()}
    assert {limit for limit in limits if not limit.isdigit()} <= known
    assert set(operator.tolerance.forward_only) <= known
    assert set(operator.same) | set(operator.same.values()) <= known
    for rule in filter(None, (operator.forward, operator.backward)):
        assert rule.__doc__, f"{name}: the rule {rule.__name__} is not documented"


@pytest.mark.parametrize("name", OPS)
def test_every_operator_has_golden_rows_and_directed_cases(name):
    rows, cases = GOLDEN / "work" / f"{name}.csv", GOLDEN / "operator_cases" / f"{name}.jsonl"
    assert rows.exists(), f"{rows.relative_to(ROOT)} is missing: one hand-derived row for each phase"
    assert cases.exists(), f"{cases.relative_to(ROOT)} is missing: small cases for reference and PyTorch"
    with rows.open(encoding="utf-8") as file:
        assert {row["phase"] for row in csv.DictReader(file)} == set(OPS[name].signatures)
    assert any(json.loads(line) for line in cases.read_text(encoding="utf-8").splitlines())


def test_no_golden_file_is_left_without_its_operator():
    files = [*GOLDEN.glob("work/*.csv"), *GOLDEN.glob("operator_cases/*.jsonl")]
    assert sorted({file.stem for file in files} - set(OPS)) == []


@pytest.mark.parametrize("name", TARGETS)
def test_every_figure_of_a_device_file_has_a_source(name):
    tables = TARGETS[name]
    rows = [*tables["peak"].values(), *tables.get("link", {}).values(), tables["dram"], tables["l2"]]
    assert all(row["source"].strip() for row in rows)
    device = target_of(name)
    assert device.clock_source
    assert device.launch_floor_s is None or device.launch_source


@pytest.mark.parametrize(
    "file", sorted((PACKAGE / "frontends" / "huggingface" / "models").glob("*.toml")), ids=lambda file: file.stem
)
def test_every_published_model_names_its_source(file):
    text = file.read_text(encoding="utf-8")
    assert tomllib.loads(text)
    assert "source" in text
