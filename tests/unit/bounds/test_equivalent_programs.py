"""Bounds of equivalent programs, kind by kind: that of the dearer one is not above that of the other."""

import pytest

pytest.importorskip("torch")
from benchmarks import _parts_pairs
from benchmarks._equivalent_programs import KINDS
from benchmarks.cheaper_programs import violations

NAMES = [name for name, kind in KINDS.items() if kind.__module__ == _parts_pairs.__name__]


@pytest.mark.parametrize("name", NAMES)
def test_no_bound_is_above_that_of_an_equivalent_program(name):
    assert [found for seed in range(100, 106) for found in violations(seed, (name,))] == []
