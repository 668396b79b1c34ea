"""Problem files of every kind: a seeded sample of the corpus that the benchmarks capture whole."""

import random

import pytest
from benchmarks.problem_corpus import write_all

import nearpeak

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("training", [False, None])
def test_sampled_problems_of_every_level_are_captured_without_a_gap(tmp_path, training):
    files = write_all(tmp_path / "problems")
    draw = random.Random(3 + (training is None))  # other problems in each mode
    chosen = [path for level, count in ((1, 6), (2, 4), (3, 2), (4, 1)) for path in draw.sample(files[level], count)]
    for path in chosen:
        assert nearpeak.capture(path, training=training).uncovered_counts() == {}, path.name


def test_corpus_has_at_least_as_many_problems_as_the_public_set(tmp_path):
    files = write_all(tmp_path / "problems")
    assert [len(files[level]) >= count for level, count in ((1, 100), (2, 100), (3, 50), (4, 20))] == [True] * 4
