"""Inputs are valid ones: a kernel that reads offsets, lengths, tables and positions as they are given is right."""

from itertools import pairwise

import numpy as np
import pytest
from tests.sampling import first_of_each

import nearpeak
from nearpeak.case_tensors.random_inputs import drawn as drawn_to_time
from nearpeak.validation import validate
from nearpeak.validation.inputs.distributions import drawn
from nearpeak.validation.inputs.nonfinite_values import special_draw
from nearpeak.validation.oracle.expected_results import arguments_of
from nearpeak.validation.oracle.float64_oracle import draw_inputs

torch = pytest.importorskip("torch")
ROUNDS = ("normal", "positive", "integer", "wide", "ends", "single")


def grouped(tensors, **_):
    ends = tensors["offsets"].tolist()
    parts = [tensors["a"][start:end] @ b for start, end, b in zip([0, *ends], ends, tensors["b"], strict=False)]
    return {"y": torch.cat(parts)}


def packed(tensors, **_):
    ends, found = tensors["offsets"].tolist(), []
    for start, end in pairwise(ends):
        q, k, v = (tensors[name][start:end].transpose(0, 1)[None] for name in ("query", "key", "value"))
        found.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1))
    return {"output": torch.cat(found)}


def paged(tensors, **_):
    found, first = [], 0
    for query, length in zip(tensors["query"], tensors["lengths"].tolist(), strict=True):
        count = -(-length // tensors["key"].shape[1])
        own = tensors["table"][first : first + count].long()
        k, v = (tensors[name][own].flatten(0, 1)[:length].transpose(0, 1)[None] for name in ("key", "value"))
        found.append(torch.nn.functional.scaled_dot_product_attention(query[None], k, v))
        first += count
    return {"output": torch.cat(found)}


def segments(tensors, **_):
    return {"y": torch.stack([part.sum(0) for part in tensors["x"].split(tensors["lengths"].tolist())])}


def bags(tensors, **_):
    ends = [*tensors["offsets"].tolist(), len(tensors["index"])]
    rows = tensors["weight"][tensors["index"].long()]
    return {"y": torch.stack([rows[start:end].sum(0) for start, end in pairwise(ends)])}


def sought(tensors, **_):
    return {"y": (tensors["boundaries"][:, None, :] < tensors["values"][:, :, None]).sum(-1)}


def placed(tensors, outputs, **_):
    y = tensors["x"].new_zeros(len(tensors["x"]), outputs)
    return {"y": y.scatter(1, tensors["index"], tensors["x"])}


def cholesky(tensors, **_):
    return {"y": torch.linalg.cholesky(tensors["a"])}


def decomposed(routine, *changes):
    """A kernel that returns what a library's routine does, with the signs and the order that it happens to have."""

    def kernel(tensors, **_):
        found = getattr(torch.linalg, routine)(tensors["a"])
        parts = [found] if isinstance(found, torch.Tensor) else list(found)
        for place, change in changes:
            parts[place] = change(parts[place])
        return {f"y{place}": part for place, part in enumerate(parts)}

    return kernel


def preconditioned_from_lower(tensors, **_):
    left, right = (tensors[name].tril() + tensors[name].tril(-1).T for name in ("left", "right"))
    return {"y": left @ tensors["grad"] @ right}


def preconditioned(tensors, **_):
    return {"y": tensors["left"] @ tensors["grad"] @ tensors["right"]}


def turned(x):
    return torch.cat([-x[..., :1], x[..., 1:]], -1)


def backwards(x):
    return x.flip(-1)


def eigenvectors_with_one_off(tensors, **_):
    values, vectors = torch.linalg.eigh(tensors["a"])
    return {"y0": values, "y1": torch.cat([vectors[..., :1] * 1.01, vectors[..., 1:]], -1)}


def values_unsorted(tensors, **_):
    return {"y0": torch.linalg.eigvalsh(tensors["a"]).flip(-1)}


def factors_that_do_not_multiply(tensors, **_):
    q, r = torch.linalg.qr(tensors["a"])
    return {"y0": turned(q), "y1": r}


def completed_by(change):
    """QR whose columns beyond those of the matrix, three of nine, are changed."""

    def kernel(tensors, **_):
        q, r = torch.linalg.qr(tensors["a"], "complete")
        q[..., 6:] = change(q[..., 6:])
        return {"y0": q, "y1": r}

    return kernel


KERNELS = {
    "decomposition batch=2 m=9 n=6 function=qr_complete": completed_by(lambda rest: -rest.flip(-1)),
    "kfac_precondition rows=6 columns=5": preconditioned,
    "kfac_precondition rows=5 columns=6": preconditioned_from_lower,
    "decomposition batch=2 m=6 n=4 function=qr": decomposed("qr", (0, turned), (1, lambda r: turned(r.mT).mT)),
    "decomposition batch=2 m=5 n=5 function=eigh": decomposed("eigh", (1, turned)),
    "decomposition batch=2 m=5 n=5 function=eig": decomposed("eig", (0, backwards), (1, backwards)),
    "decomposition batch=2 m=5 n=5 function=eig_values": decomposed("eigvals", (0, backwards)),
    "decomposition batch=2 m=6 n=4 function=svd_full": decomposed("svd", (0, turned), (2, lambda v: turned(v.mT).mT)),
    "decomposition batch=2 m=4 n=4 function=ldl": decomposed("ldl_factor"),
    "decomposition batch=2 m=4 n=4 function=lu_packed": decomposed("lu_factor"),
    "linalg batch=2 n=6 function=cholesky": cholesky,
    "grouped_gemm m=13 n=8 k=16 groups=4": grouped,
    "grouped_gemm m=12 n=8 k=16 groups=3 load=uniform top_k=1": grouped,
    "varlen_attention tokens=14 heads=2 dim=8 sequences=3 causal=True": packed,
    "paged_attention batch=2 heads=2 tokens=11 pages=4 dim=8 page=3": paged,
    "segment_reduce rows=12 segments=4 width=3 function=sum": segments,
    "embedding_bag tokens=12 bags=4 dim=5 vocab=9": bags,
    "searchsorted rows=3 values=6 boundaries=20": sought,
    "max_unpool planes=2 inputs=6 outputs=15": placed,
}


def case_of(text):
    op, *words = text.replace("load=uniform top_k=1", "load=uniform_top_k=1").split()
    given = dict(word.split("=", 1) for word in words)
    given = {name: int(value) if value.isdigit() else value == "True" or value for name, value in given.items()}
    given |= {"load": "uniform top_k=1"} if "load" in given else {}
    return nearpeak.case(op, dtype="fp32", **given)


@pytest.mark.parametrize("text", first_of_each([(text,) for text in KERNELS], lambda values: values[0].split()[0]))
def test_a_kernel_that_reads_its_inputs_as_they_are_is_right(text):
    found = validate(case_of(text), KERNELS[text], seed=1)
    assert not found.failed, [result for result in found.results if result.failed]


@pytest.mark.parametrize(
    ("function", "kernel"),
    [("eigh", eigenvectors_with_one_off), ("eigh_values", values_unsorted), ("qr", factors_that_do_not_multiply)],
)
def test_an_open_sign_hides_no_mistake(function, kernel):
    assert validate(case_of(f"decomposition batch=2 m=5 n=5 function={function}"), kernel, seed=1).failed


@pytest.mark.parametrize("change", [lambda rest: 0 * rest, lambda rest: rest[..., :1], lambda rest: 1.01 * rest])
def test_columns_that_complete_no_basis_are_wrong(change):
    case = case_of("decomposition batch=2 m=9 n=6 function=qr_complete")
    assert validate(case, completed_by(change), seed=1).failed


@pytest.mark.parametrize(
    "text", ["grouped_gemm m=13 n=8 k=16 groups=4", "embedding_bag tokens=12 bags=4 dim=5 vocab=9"]
)
def test_what_is_timed_is_valid_too(text):
    (tensors,) = drawn_to_time(case_of(text))
    offsets = tensors["offsets"]
    assert (np.diff(offsets) >= 0).all()
    assert offsets[-1] <= 13
    assert offsets.dtype in (np.int32, np.int64)


@pytest.mark.parametrize("distribution", ROUNDS)
def test_places_written_once_are_distinct_and_added_ones_may_be_equal(distribution):
    def indices(**more):
        case = nearpeak.case("scatter", rows=9, width=2, table_rows=10, dtype="fp32", **more)
        return drawn("scatter", arguments_of(case), (4,), distribution)["index"].tolist()

    assert len(set(indices())) == 9
    assert distribution != "ends" or {0, 9} <= set(indices())
    assert distribution != "single" or len(set(indices(accumulate=True))) == 1


def test_rows_that_have_no_place_of_their_own_have_no_answer():
    case = nearpeak.case("scatter", rows=9, width=2, table_rows=5, dtype="fp32")
    assert draw_inputs(case, 0, "normal") is None


def test_nan_is_put_where_the_operator_reads_it():
    case = nearpeak.case("nll_loss", rows=3, classes=50, dtype="fp32", reduction="none")
    for seed in range(6):
        asked = special_draw(case, seed, "x", float("nan"))
        assert np.isnan(asked.expected["y"].values).any()


@pytest.mark.parametrize("distribution", ROUNDS)
def test_recurrent_weights_keep_states_from_growing_and_from_chaos(distribution):
    case = nearpeak.case("recurrent", batch=2, steps=32, features=3, hidden=17, cell="gru", dtype="fp64")
    weights = drawn("recurrent", arguments_of(case), (1,), distribution)["w_hh_l0"].numpy()
    assert np.sqrt((weights**2).mean()) == pytest.approx(17**-0.5)


@pytest.mark.parametrize(
    ("rows", "touched", "wanted"), [(512, 8, {8}), (7, 8, {7}), (512, 1, {64}), (64, 1, set(range(30, 52)))]
)
def test_inputs_of_grouped_products_touch_the_groups_that_the_case_states_or_a_random_routing(rows, touched, wanted):
    case = nearpeak.case("grouped_gemm", m=rows, n=8, k=8, groups=64, touched_groups=touched, dtype="bf16")
    for tensors in drawn_to_time(case, 4):
        assert int((np.diff(tensors["offsets"], prepend=0) > 0).sum()) in wanted
        assert tensors["offsets"][-1] == rows
