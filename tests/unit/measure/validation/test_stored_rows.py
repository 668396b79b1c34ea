"""RMS norms that store a row before its weight, as vLLM and Hugging Face do, are right; those with a lossy mean not."""

import pytest

import nearpeak
from nearpeak.measure.validation import validate

torch = pytest.importorskip("torch")


def stored(row, weight, mean):
    return weight * (row.float() * torch.rsqrt(mean + 1e-6)).to(row.dtype)


def fused(row, weight, mean):
    return (weight.float() * row.float() * torch.rsqrt(mean + 1e-6)).to(row.dtype)


def norm(way, mean):
    def call(tensors, **_):
        row, weight = tensors["input"], tensors["weight"]
        return {"output": way(row, weight, mean(row))}

    return call


def exact_mean(row):
    return row.float().pow(2).mean(-1, keepdim=True)


def lossy_mean(row):
    return exact_mean(row).to(row.dtype).float()


def mean_without_one(row):
    return row.float().pow(2).sum(-1, keepdim=True) / (row.shape[-1] - 1)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize(("rows", "hidden"), [(2, 128), (64, 64), (16, 1024)])
@pytest.mark.parametrize("way", [stored, fused])
def test_norms_that_store_a_row_are_accepted(way, rows, hidden, dtype):
    case = nearpeak.case("rms_norm", rows=rows, hidden=hidden, dtype=dtype)
    found = validate(case, norm(way, exact_mean), seed=3)
    assert found.status == "PASS", [one for one in found.results if one.failed]


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("mean", [lossy_mean, mean_without_one])
@pytest.mark.parametrize("way", [stored, fused])
def test_norms_whose_mean_is_off_are_refused(way, mean, dtype):
    case = nearpeak.case("rms_norm", rows=16, hidden=1024 if mean is lossy_mean else 128, dtype=dtype)
    assert validate(case, norm(way, mean), seed=3).status == "NUMERIC_FAIL"
