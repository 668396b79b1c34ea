"""Public labelled series: both forms are read, scores follow the published definitions, absence is said."""

import json

import numpy as np
import pytest
from benchmarks import _labelled, labelled_series
from benchmarks._labelled import Labelled, covering, f1, positive, talos, tcpd


def test_series_of_one_dimension_are_read_with_all_their_annotators(tmp_path):
    (tmp_path / "annotations.json").write_text(json.dumps({"a": {"7": [3], "2": []}, "two": {"1": []}}))
    (tmp_path / "a.json").write_text(json.dumps({"series": [{"raw": [1.0, None, 3.0, 8.0]}]}))
    (tmp_path / "two.json").write_text(json.dumps({"series": [{"raw": [1.0]}, {"raw": [2.0]}]}))
    (tmp_path / "other.json").write_text("{}")
    (one,) = tcpd(tmp_path)
    assert (one.name, one.values, one.annotations) == ("a", (1.0, 2.0, 3.0, 8.0), ((), (3,)))


@pytest.mark.parametrize(
    "runs",
    [
        [[9, [1, 2, "abc"], 1365019665, 5.0], [9, [1, 2, "abd"], 1365000000, 4.0]],
        {"test_runs": [{"push_timestamp": 1365019665, "value": 5.0}, {"push_timestamp": 1365000000, "value": 4.0}]},
    ],
)
def test_graphs_are_read_in_the_order_of_pushes_with_the_expected_place(tmp_path, runs):
    (tmp_path / "runs1.json").write_text(json.dumps(runs))
    (one,) = talos(tmp_path)
    assert (one.values, one.annotations) == ((4.0, 5.0), ((1,),))


def test_graphs_in_csv_are_read(tmp_path):
    (tmp_path / "runs5.csv").write_text("push,value\n2,5.5\n1,4.5\n")
    (one,) = talos(tmp_path)
    assert (one.values, one.annotations) == ((4.5, 5.5), ((),))


def test_no_detection_scores_what_the_definition_gives():
    one = Labelled(name="a", values=(1.0,) * 100, annotations=((50,), ()))
    assert f1(one, []) == pytest.approx(2 * 1 * 0.75 / 1.75)
    assert covering(one, []) == pytest.approx((0.5 + 1.0) / 2)
    assert f1(one, [52, 80]) == pytest.approx(2 * (2 / 3) * 1 / (5 / 3))
    assert covering(one, [50]) == pytest.approx((1.0 + 0.5) / 2)


def test_values_of_any_sign_are_moved_before_their_logarithm():
    assert positive(np.array([-1.0, 0.0, 9.0])).min() == pytest.approx(1.0)
    assert positive(np.array([2.0, 3.0])).tolist() == [2.0, 3.0]


def test_a_long_series_is_searched_in_windows_and_each_change_told_once():
    values = np.where(np.arange(1200) < 700, 100.0, 110.0) * np.exp(np.random.default_rng(0).normal(0, 0.003, 1200))
    assert labelled_series.detected(values) == [700]


def test_nothing_is_measured_without_a_folder(monkeypatch, capsys):
    monkeypatch.delenv(_labelled.VARIABLE, raising=False)
    assert list(labelled_series.measure()) == []
    assert "not measured" in capsys.readouterr().out


def test_scores_are_measured_where_a_folder_is_named(monkeypatch, tmp_path):
    raw = (np.where(np.arange(60) < 30, 1.0, 2.0) * np.exp(np.random.default_rng(0).normal(0, 0.01, 60))).tolist()
    (tmp_path / "annotations.json").write_text(json.dumps({"a": {"1": [30]}}))
    (tmp_path / "a.json").write_text(json.dumps({"series": [{"raw": raw}]}))
    (tmp_path / "runs1.json").write_text(json.dumps([[0, [], 1365019665 + i - 30, v] for i, v in enumerate(raw)]))
    monkeypatch.setenv(_labelled.VARIABLE, str(tmp_path))
    values = {one.name: one.value for one in labelled_series.measure()}
    assert values == {"tcpd_f1": 1.0, "tcpd_covering": 1.0, "talos_hits": 1, "talos_others": 0}
