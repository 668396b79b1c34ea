import numpy as np
import pytest

spread = pytest.importorskip("benchmarks.accuracy.spread")


def test_every_block_weighs_the_same_however_many_rows_it_has():
    many = spread.Excess(source="a", faster=np.zeros(10_000), slower=np.zeros(10_000))
    few = spread.Excess(source="b", faster=np.full(10, 0.3), slower=np.full(10, 0.5))
    assert "faster = 0.300\nslower = 0.500" in spread._lines("x", [many, few])
    assert "faster = 0.000\nslower = 0.000" in spread._lines("x", [many])


def test_what_lies_inside_the_interval_adds_nothing():
    assert spread._beyond(np.array([0.0] * 96 + [1.0] * 4), np.ones(100)) == 0.0
    assert spread._beyond(np.array([0.0] * 90 + [1.0] * 10), np.ones(100)) == 1.0
