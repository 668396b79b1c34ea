"""Saved workloads: the same after a round trip, the same bytes, and damage named."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearpeak.core.work.workload import BUFFER_KINDS, PHASES, Buffer, Call, Use, Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.files.saved_workload import load_text, save_text
from nearpeak.ops import case

sizes = st.integers(min_value=0, max_value=2**50)
texts = st.text(max_size=12)


@st.composite
def workloads(draw):
    buffers = tuple(
        Buffer(bytes=draw(sizes), kind=draw(st.sampled_from(BUFFER_KINDS)), name=draw(texts))
        for _ in range(draw(st.integers(1, 4)))
    )
    uses = st.lists(
        st.builds(Use, buffer=st.integers(0, len(buffers) - 1), bytes=sizes, start_bytes=sizes, stop_bytes=sizes),
        max_size=2,
    ).map(tuple)
    extents = st.integers(0, 64)
    cases = st.builds(lambda m, bias: case("gemm", m=m, n=2, k=3, dtype="bf16", bias=bias), extents, st.booleans())
    call = st.builds(
        Call, case=st.none() | cases, operator=texts, phase=st.sampled_from(PHASES), module=texts, source=texts,
        reads=uses, writes=uses, call_count=st.integers(1, 9),
    )  # fmt: skip
    return Workload(
        name=draw(texts), step=draw(st.sampled_from(("forward", "sweep"))), buffers=buffers,
        calls=tuple(draw(st.lists(call, min_size=1, max_size=5))),
        origin=draw(st.dictionaries(texts, texts, max_size=3)),
        assumptions=tuple(draw(st.lists(texts, max_size=2))), skipped=draw(st.dictionaries(texts, sizes, max_size=3)),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(workloads())
def test_load_after_save_is_the_same_workload_and_the_same_bytes(workload):
    text = save_text(workload)
    loaded = load_text(text, "w.json")
    assert loaded == workload
    assert save_text(loaded) == text


@pytest.fixture
def data():
    call = Call(
        case=case("gemm", m=4, n=4, k=8, dtype="bf16"), operator="aten.mm.default", phase="forward",
        reads=(Use(buffer=0, bytes=8),),
    )  # fmt: skip
    workload = Workload(name="w", step="forward", calls=(call, call), buffers=(Buffer(bytes=8, kind="weight"),))
    return json.loads(save_text(workload))


def test_a_case_is_written_once(data):
    assert len(data["cases"]) == 1
    assert [call["case"] for call in data["calls"]] == [0, 0]


def test_another_schema_version_is_refused_with_both_named(data):
    data["version"] = 2
    with pytest.raises(SpecError, match=r"w.json: has schema version 2; this nearpeak reads version 1"):
        load_text(json.dumps(data), "w.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["buffers"][0].__setitem__(1, "tensor"), r"buffers\[0\]\[1\]: is \'tensor\'; must be one of"),
        (lambda d: d["buffers"][0].__setitem__(0, -1), r"buffers\[0\]\[0\]: is -1; must be a whole number"),
        (lambda d: d["calls"][1].__setitem__("case", 7), r"calls\[1\].case: is 7; there are 1"),
        (lambda d: d["calls"][1].__setitem__("reads", [[9, 1, 0, 0]]), "call 1: names buffer 9 of 1"),
        (lambda d: d["calls"][0].pop("operator"), r"calls\[0\]: has no \'operator\'"),
        (lambda d: d["calls"][0].__setitem__("phase", "sideways"), r"calls\[0\].phase: is \'sideways\'"),
        (lambda d: d["cases"][0].__setitem__("q", 1), r"cases\[0\]: gemm: no axis \'q\'"),
        (lambda d: d["cases"][0].__setitem__("op", "nothing"), r"cases\[0\]: op \'nothing\': not known"),
        (lambda d: d.__setitem__("calls", []), "holds no call"),
        (lambda d: d.__setitem__("origin", [1]), "origin: is a list; must be an object"),
    ],
)
def test_damage_is_named_with_its_place(data, change, message):
    change(data)
    with pytest.raises(SpecError, match=message):
        load_text(json.dumps(data), "w.json")


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not JSON"), ("[]", "not a saved workload"), ("{}", "not a saved")]
)
def test_other_files_are_refused(text, message):
    with pytest.raises(SpecError, match=message):
        load_text(text, "w.json")
