"""Extents that make no sense, alone and beside a layout, are answered with one line."""

import pytest
from tests.golden.directed import directed

from nearpeak.case_tensors.random_inputs import too_large
from nearpeak.errors import NearpeakError
from nearpeak.ops import OPS, case, work_of

CONV = {"batch": 2, "in_channels": 4, "out_channels": 4, "w": 7, "kw": 3}


def asked(op, **arguments):
    made = case(op, dtype="fp32", **arguments)
    work_of(made)
    return too_large(made)


@pytest.mark.parametrize(("op", "arguments", "said"), [
    ("pq_search", {"queries": 3, "vectors": 40, "dim": 8, "parts": 0, "k": 5, "queries.layout": "padded"}, "parts=0"),
    ("conv", {**CONV, "groups": 0, "input.layout": "padded"}, "groups=0 is below 1"),
    ("conv_transpose", {**CONV, "groups": 0, "input.offset": 4}, "groups=0 is below 1"),
    ("nonzero", {"elements": 9, "rank": 2**31, "x.layout": "padded"}, "no tensor is made of more than 64 dimensions"),
    ("recurrent", {"batch": 2, "steps": 5, "features": 3, "hidden": 4, "layers": 2**31}, "made for=10000"),
])  # fmt: skip
def test_extents_that_divide_or_count_are_refused_by_name(op, arguments, said):
    with pytest.raises(NearpeakError) as refused:
        asked(op, **arguments)
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_no_extent_raises_anything_but_a_line(op):
    line = {"dtype": "fp32", **{name: value for name, value in directed(op)[0].items() if name[0] != "_"}}
    first = next(iter(OPS[op].inputs(**OPS[op].forward_arguments(case(op, **line)))), "")
    for axis in OPS[op].signatures["forward"].axes:
        for extent in (0, -1, 2**31, 2**63 - 1, 10**100):
            for more in ({}, {f"{first}.layout": "padded"}, {f"{first}.offset": extent}) if first else ({},):
                try:
                    made = case(op, **{**line, axis: extent, **more})
                    work_of(made)
                    too_large(made)
                except NearpeakError as error:
                    said = str(error)
                    if len(said.splitlines()) != 1:
                        pytest.fail(f"{op} {axis}={extent}: {said}")
