"""Recall of inverted files against searching them, exact neighbours against sorting, and files of vectors."""

import numpy as np
import pytest

from nearpeak.errors import SpecError
from nearpeak.systems.serving.retrieval.recall_curve import (
    _centres,
    least_points,
    nearest_vectors,
    read_vectors,
    recall_curve,
    synthetic_vectors,
)

VECTORS, QUERIES = (rows[:1500] for rows in synthetic_vectors(16))
QUERIES = QUERIES[:40]


def test_nearest_vectors_are_those_of_sorting_all_distances():
    far = ((QUERIES[:, None, :] - VECTORS[None, :, :]) ** 2).sum(axis=2)
    assert nearest_vectors(VECTORS, QUERIES, 7).tolist() == np.argsort(far, axis=1)[:, :7].tolist()
    assert nearest_vectors(VECTORS[:5], QUERIES, 5).tolist() == np.argsort(far[:, :5], axis=1).tolist()


def test_recall_and_comparisons_are_those_of_searching_the_probed_lists():
    points = [point for point in recall_curve(VECTORS, QUERIES, 5, list_ratios=(1.0,)) if point.index == "ivf"]
    lists = round(1500**0.5)
    centres = _centres(VECTORS, lists, 0)
    list_of = nearest_vectors(centres, VECTORS, 1)[:, 0]
    truth = nearest_vectors(VECTORS, QUERIES, 5)
    for point in points[:4]:
        probes = round(point.probe_ratio * lists)
        hits, compared = 0, 0
        for query, right in zip(QUERIES, truth, strict=True):
            probed = nearest_vectors(centres, query[None], lists)[0, :probes]
            members = np.flatnonzero(np.isin(list_of, probed))
            compared += len(members)
            best = members[np.argsort(((VECTORS[members] - query) ** 2).sum(axis=1))[:5]]
            hits += len(np.intersect1d(best, right))
        assert point.recall_ratio == pytest.approx(hits / 200)
        assert point.scanned_ratio == pytest.approx(compared / 40 / 1500)


def test_more_probes_find_more_and_the_least_setting_is_taken():
    curve = recall_curve(VECTORS, QUERIES, 5)
    for ratio in (1.0, 4.0):
        own = sorted((p.probe_ratio, p.recall_ratio, p.scanned_ratio) for p in curve if p.list_ratio == ratio)
        assert [row[1] for row in own] == sorted(row[1] for row in own)
        assert [row[2] for row in own] == sorted(row[2] for row in own)
    least = least_points(curve, 0.9)
    assert {(point.index, point.list_ratio) for point in least} == {("flat", 0.0), ("ivf", 1.0), ("ivf", 4.0)}
    for point in least:
        same = [p for p in curve if p.list_ratio == point.list_ratio and p.recall_ratio >= 0.9]
        assert point.scanned_ratio == min(p.scanned_ratio for p in same)


def test_files_of_vectors_are_read_or_refused_in_one_line(tmp_path):
    good, flat, text = (tmp_path / name for name in ("good.npy", "flat.npy", "text.npy"))
    np.save(good, VECTORS.astype(np.float16))
    np.save(flat, np.zeros(1500))
    text.write_text("no array", "utf-8")
    assert read_vectors(good, 16, 1200).shape == (1200, 16)
    for file, width, message in ((good, 8, "rows of 8 numbers"), (flat, 16, "rows of 16"), (text, 16, "text.npy")):
        with pytest.raises(SpecError) as error:
            read_vectors(file, width, 1200)
        assert message in str(error.value)
        assert "\n" not in str(error.value)
    np.save(good, np.full((1500, 16), np.nan))
    with pytest.raises(SpecError, match="not finite"):
        read_vectors(good, 16, 1500)
    with pytest.raises(SpecError, match="at least 1 and at most all"):
        recall_curve(VECTORS, QUERIES, 1501)
