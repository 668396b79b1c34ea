"""RMS norms that store a row before its weight, as vLLM and Hugging Face do, are right; those with a lossy mean not."""

import pytest
from tests.sampling import in_turn

import nearpeak
from nearpeak.validation import validate

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


@pytest.mark.parametrize(
    ("extents", "way", "dtype"), in_turn([(2, 128), (64, 64), (1, 4096), (5, 7)], [stored, fused], ["bf16", "fp16"])
)
def test_norms_that_store_a_row_are_accepted(extents, way, dtype):
    case = nearpeak.case("rms_norm", rows=extents[0], hidden=extents[1], dtype=dtype)
    found = validate(case, norm(way, exact_mean), seed=3)
    assert found.status == "PASS", [one for one in found.results if one.failed]


NORMS = [norm(way, mean) for way in (stored, fused) for mean in (lossy_mean, mean_without_one)]


@pytest.mark.parametrize(("kernel", "extents", "dtype"), in_turn(NORMS, [(4, 4096), (5, 7)], ["bf16", "fp16"]))
def test_norms_whose_mean_is_off_are_refused(kernel, extents, dtype):
    case = nearpeak.case("rms_norm", rows=extents[0], hidden=extents[1], dtype=dtype)
    assert validate(case, kernel, seed=3).status == "NUMERIC_FAIL"


def test_a_row_that_is_kept_is_multiplied_as_it_was_kept():
    case = nearpeak.case("rms_norm", rows=3, hidden=64, dtype="bf16")

    def off_by_a_place(tensors, **_):
        y = norm(fused, exact_mean)(tensors)["output"]
        y[0, 0] = torch.nextafter(y[0, 0], 2 * y[0, 0])
        return {"output": y}

    assert validate(case, norm(fused, exact_mean), seed=3).status == "PASS"
    assert "V5" in validate(case, off_by_a_place, seed=3).failed


def test_a_weight_of_more_bits_is_multiplied_in_its_own_format():
    case = nearpeak.case("rms_norm", rows=4, hidden=96, dtype="bf16", param_dtype="fp32")
    kept = norm(stored, exact_mean)
    call = lambda tensors, **_: {"output": kept(tensors)["output"].bfloat16()}  # noqa: E731  # one line says it
    assert validate(case, call, seed=3).status == "PASS"


def test_an_element_within_its_bound_is_not_said_to_be_beyond_it():
    case = nearpeak.case("rms_norm", rows=48, hidden=48, dtype="fp16")

    def in_fp16(tensors, **_):
        x = tensors["input"]
        factor = ((x * x).mean(-1, keepdim=True) + 1e-6).rsqrt()
        return {"output": x * factor * tensors["weight"]}

    (said,) = (one for one in validate(case, in_fp16, seed=7).results if one.check == "V5")
    assert "no value within the errors of fp32 rounds to that in fp16" in said.reason
    assert abs(float(said.worst.got) - float(said.worst.expected)) <= float(said.worst.bound)
