"""A case is what it says and nothing else: the digest sees every axis, format and choice, and no order."""

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from nearpeak.base.canonical_json import canonical_json, digest
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.tensor import Tensor
from nearpeak.ops import case, work_of

EXTENTS = st.integers(0, 2**40)
SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ARGUMENTS = {"m": 3, "n": 5, "k": 7, "batch": 2, "dtype": "bf16", "out_dtype": "fp32", "bias": True, "layout": "nt"}


@given(PLAIN)
def test_canonical_text_reads_back_as_the_same_value(value):
    assert json.loads(canonical_json(value)) == value


@given(st.dictionaries(st.text(), st.integers(), min_size=2), st.randoms(use_true_random=False))
def test_digest_does_not_depend_on_the_order_of_keys(record, source: random.Random):
    keys = list(record)
    source.shuffle(keys)
    assert digest({key: record[key] for key in keys}) == digest(record)


@given(st.permutations(list(ARGUMENTS)))
def test_order_of_arguments_does_not_matter(names):
    assert case("gemm", **{name: ARGUMENTS[name] for name in names}) == case("gemm", **ARGUMENTS)


def test_digest_changes_with_every_axis_format_and_choice():
    changes = {"m": 4, "n": 6, "k": 8, "batch": 4, "dtype": "fp16", "out_dtype": "bf16", "bias": False, "layout": "nn"}
    digests = {case("gemm", **{**ARGUMENTS, name: value}).digest for name, value in changes.items()}
    assert len(digests | {case("gemm", **ARGUMENTS).digest}) == len(changes) + 1


def test_defaults_written_out_are_the_same_case():
    assert case("gemm", m=2, n=3, k=4, dtype="bf16") == case(
        "gemm",
        m=2,
        n=3,
        k=4,
        batch=1,
        a_batch=1,
        b_batch=1,
        dtype="bfloat16",
        out_dtype="bf16",
        bias=False,
        layout="nn",
    )


@given(EXTENTS, EXTENTS, EXTENTS, st.sampled_from(sorted(name for name, row in DTYPES.items() if row.scheme is None)))
def test_counts_are_exact_integers_of_any_size(m, n, k, dtype):
    work = work_of(case("gemm", m=m, n=n, k=k, dtype=dtype))
    read_bytes = DTYPES[dtype].bytes(m * k) + DTYPES[dtype].bytes(k * n)
    assert work.total_flop == (8 if DTYPES[dtype].kind == "complex" else 2) * m * n * k
    assert work.read_bytes == (read_bytes if m * n else 0)
    assert work.write_bytes == DTYPES[dtype].bytes(m * n)


@given(st.integers(0, 2**50), st.integers(0, 2**50), st.sampled_from(sorted(DTYPES)))
def test_packing_together_never_takes_more_bytes_than_apart(left, right, dtype):
    form = DTYPES[dtype]
    assert form.bytes(left + right) <= form.bytes(left) + form.bytes(right) <= form.bytes(left + right) + 1


@given(SHAPES, st.data())
def test_a_tensor_never_has_more_distinct_elements_than_elements(shape, data):
    strides = tuple(data.draw(st.integers(0, 30)) for _ in shape)
    view = Tensor(shape=shape, dtype="fp32", strides=strides)
    assert 0 <= view.distinct <= view.elements
    assert (view.distinct == 0) == (view.elements == 0)
    start, stop = view.span_bytes
    assert (stop - start == 0) == (view.elements == 0)
