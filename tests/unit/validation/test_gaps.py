"""Groups without rows and rows that nothing names, at sizes where chance would not draw them."""

from itertools import pairwise

import pytest
from tests.sampling import in_turn, long

import nearpeak
from nearpeak.ops import OPS
from nearpeak.validation import pytorch, validate

torch = pytest.importorskip("torch")
SEGMENTS = {"rows": 50, "segments": 7, "width": 4, "dtype": "fp32"}
SEGMENTED = nearpeak.case("segment_reduce", **SEGMENTS, function="sum")
GROUPED = nearpeak.case("grouped_gemm", m=40, n=12, k=20, groups=5, dtype="fp32")
ADDED = nearpeak.case("scatter", rows=60, width=3, table_rows=5, accumulate=True, dtype="fp32")
SEEDS = [0, *map(long, (1, 2))]
EMBEDDING = nearpeak.case("embedding", "backward", tokens=60, dim=3, vocab=7, dtype="fp32")


def filled(case, output, untouched):
    """PyTorch's answer, with 999 in the rows that `untouched` says."""

    def call(tensors, **arguments):
        y = OPS[case.op].torch_call(tensors, **arguments)[output].clone()
        y[untouched(tensors, y)] = 999.0
        return {output: y}

    return call


def unnamed(tensors, y):
    left = torch.ones(len(y), dtype=torch.bool)
    left[tensors["index"]] = False
    return left


def weights_counted_without_empty_groups(tensors, **_):
    ends = [0, *map(int, tensors["offsets"])]
    parts = [slice(start, end) for start, end in pairwise(ends) if end > start]
    return {"y": torch.cat([tensors["a"][part] @ tensors["b"][at] for at, part in enumerate(parts)])}


@pytest.mark.parametrize(("function", "phase"), in_turn(["sum", "prod", "max", "min", "mean"], ["forward", "backward"]))
def test_segments_without_rows_are_asked_about_and_pytorch_passes(function, phase):
    case = nearpeak.case("segment_reduce", phase, **SEGMENTS, function=function)
    assert validate(case, pytorch(case), seed=1).status == "PASS"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_stands_in_an_empty_segment_is_seen(seed):
    wrong = filled(SEGMENTED, "y", lambda tensors, _: tensors["lengths"] == 0)
    assert "V7" in validate(SEGMENTED, wrong, seed=seed).failed


@pytest.mark.parametrize("seed", SEEDS)
def test_the_weights_of_the_group_after_an_empty_one_are_seen(seed):
    assert "V7" in validate(GROUPED, weights_counted_without_empty_groups, seed=seed).failed
    assert validate(GROUPED, pytorch(GROUPED), seed=seed).status == "PASS"


def test_rows_that_nothing_is_added_to_keep_what_they_held():
    assert "V7" in validate(ADDED, filled(ADDED, "table", unnamed), seed=0).failed
    assert validate(ADDED, pytorch(ADDED), seed=0).status == "PASS"


def test_the_gradient_of_rows_that_nothing_names_is_zero():
    def call(tensors, **arguments):
        outputs = OPS["embedding"].torch_call(tensors, **arguments)
        if tensors["weight"].requires_grad:
            tensors["weight"].register_hook(lambda grad: grad + 999.0 * unnamed(tensors, grad)[:, None])
        return outputs

    assert "V9" in validate(EMBEDDING, call, seed=0).failed
    assert validate(EMBEDDING, pytorch(EMBEDDING), seed=0).status == "PASS"
