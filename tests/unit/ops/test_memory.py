"""How inputs lie in memory: part of what a case is, stated by name, checked, and the same case where it is dense."""

import copy
import pickle

import pytest
import torch

from nearpeak.case_tensors.memory_placement import copy_of, placed
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.measurement.outcomes import unsupported_reason
from nearpeak.ops import LAYOUTS, OPS, case, strides_of
from nearpeak.validation import pytorch, validate

PRODUCT = {"m": 8, "n": 6, "k": 16, "dtype": "bf16"}


def product(**lying: str | int) -> Case:
    return case("gemm", **PRODUCT, **{name.replace("_", "."): value for name, value in lying.items()})


def test_a_copied_case_computes_its_hash_anew_as_another_process_has_another() -> None:
    one = product()
    assert hash(one) == one.__dict__["_hash"]
    for other in (pickle.loads(pickle.dumps(one)), copy.copy(one)):
        assert "_hash" not in other.__dict__
        assert other == one
        assert hash(other) == hash(one)


def test_memory_is_part_of_the_digest_and_survives_the_record() -> None:
    dense, lying = product(), product(a_layout="transposed", b_offset=2)
    record = lying.record()
    again = OPS[record.pop("op")].case(record.pop("phase"), **record)
    assert again == lying
    assert again.digest == lying.digest
    assert len({one.digest for one in (dense, lying, product(b_offset=2), product(b_offset=4))}) == 4


def test_what_is_dense_is_the_plain_case() -> None:
    row = {"m": 1, "n": 6, "k": 16, "dtype": "bf16", "a.layout": "padded", "b.layout": "dense", "b.offset": 0}
    assert case("gemm", **row) == case("gemm", m=1, n=6, k=16, dtype="bf16")


@pytest.mark.parametrize(
    ("lying", "said"),
    [
        ({"c.layout": "transposed"}, "no input 'c.layout'"),
        ({"a.layout": "sideways"}, "is no layout; give dense, transposed"),
        ({"a.layout": "channels_last"}, "needs 4 dimensions; the tensor has 3"),
        ({"a.offset": 3}, "is not a multiple of the 2 bytes of bf16"),
        ({"a.offset": -2}, "is not a number of bytes"),
        ({"a.stride": 2}, "NAME.layout or NAME.offset"),
    ],
)
def test_what_cannot_lie_so_is_refused_in_one_line(lying: dict[str, str | int], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        case("gemm", **PRODUCT, **lying)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_lie_as_stated_with_equal_values(layout: str) -> None:
    one = case("conv", batch=2, in_channels=3, out_channels=2, w=5, h=4, kw=3, kh=3, dtype="fp32",
               **{"input.layout": layout, "input.offset": 4})  # fmt: skip
    given = {"input": torch.randn(2, 3, 4, 5), "weight": torch.randn(2, 3, 3, 3)}
    lying = placed(torch, one, given)
    assert lying["input"].stride() == strides_of((2, 3, 4, 5), layout)
    assert lying["input"].storage_offset() == 1
    assert torch.equal(lying["input"], given["input"])
    assert lying["weight"] is given["weight"]
    again = copy_of(torch, lying["input"])
    assert again.stride() == lying["input"].stride()
    assert again.data_ptr() != lying["input"].data_ptr()


@pytest.mark.parametrize(
    "lying", [{"a.layout": "transposed"}, {"a.layout": "stepped", "b.offset": 2}, {"b.layout": "padded"}]
)
def test_the_contract_accepts_a_right_and_refuses_a_dense_minded_call(lying: dict[str, str | int]) -> None:
    one, name = case("gemm", **PRODUCT, **lying), next(iter(lying))[0]
    right = validate(one, pytorch(one), seed=3)
    assert right.status == "PASS"
    assert all(f"{key}={value}" in right.command for key, value in lying.items())

    def blind(tensors: dict[str, torch.Tensor], **_: object) -> dict[str, torch.Tensor]:
        x = tensors[name]
        dense = x.as_strided(x.shape, strides_of(tuple(x.shape), "dense"))
        return {"y": torch.bmm(*({**tensors, name: dense}[key] for key in ("a", "b")))}

    assert validate(one, blind, seed=3).status == "NUMERIC_FAIL"


def test_writing_into_the_gaps_between_elements_is_seen() -> None:
    one = product(a_layout="stepped")

    def gaps(tensors: dict[str, torch.Tensor], **_: object) -> dict[str, torch.Tensor]:
        a = tensors["a"]
        a.as_strided((1,), (1,), a.storage_offset() + 1).zero_()
        return {"y": torch.bmm(a, tensors["b"])}

    assert "V2" in validate(one, gaps, seed=3).failed


def test_a_runner_of_dense_inputs_says_so() -> None:
    from nearpeak.core.runs.measurement import Timing
    from nearpeak.measurement.runners.numpy import RUNNER

    assert "takes dense inputs only; the case has a.layout=transposed" in unsupported_reason(
        RUNNER("", Timing()), product(a_layout="transposed")
    )
