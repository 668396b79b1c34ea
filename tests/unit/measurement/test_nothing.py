"""Cases with an extent of 0: each is measured and checked, or refused with one line that names the extent."""

import pytest
from tests.golden.directed import directed
from tests.sampling import sampled

import nearpeak
from nearpeak.core.runs.measurement import Outcome, Timing
from nearpeak.errors import NearpeakError, NotModelledError
from nearpeak.measurement.runners import runner_of
from nearpeak.ops import OPS, work_of
from nearpeak.validation import pytorch, validate

pytest.importorskip("torch")
SHORT = Timing(budget_s=0.0, flush_bytes=0)
UNCHECKED = Timing(budget_s=0.0, flush_bytes=0, validate=False)
CONV = {"in_channels": 3, "out_channels": 4, "w": 7, "kw": 3}
TIMED = (Outcome.BUDGET, Outcome.CONVERGED, Outcome.SUSPECT_FAST, Outcome.THROTTLED)
ANSWERED = [
    ("quantise", {"rows": 0, "columns": 16}), ("quantise", {"rows": 4, "columns": 0}),
    ("quantise", {"rows": 0, "columns": 16, "out_dtype": "fp4_e2m1", "scale_dtype": "fp8_e4m3", "tensor_scale": True}),
    ("dequantise", {"rows": 0, "columns": 16}), ("dequantise", {"rows": 4, "columns": 0}),
    ("conv", {"batch": 0, **CONV}), ("conv_transpose", {"batch": 0, **CONV}),
    ("max_pool", {"batch": 0, "channels": 3, "w": 7, "kw": 3}),
    ("adaptive_max_pool", {"batch": 2, "channels": 3, "w": 7, "ow": 0}),
    ("group_norm", {"batch": 2, "channels": 6, "spatial": 0, "groups": 3}),
    ("attention", {"batch": 0, "heads": 3, "q": 5, "kv": 5, "dim": 8}),
    ("attention", {"batch": 2, "heads": 3, "q": 5, "kv": 0, "dim": 8}),
    ("linear_attention", {"batch": 2, "tokens": 0, "heads": 3, "key_dim": 4, "dim": 6}),
    ("delta_rule", {"batch": 2, "tokens": 5, "heads": 3, "key_dim": 0, "dim": 6, "decay": "head"}),
    ("delta_rule", {"batch": 2, "tokens": 0, "heads": 2, "key_dim": 3, "dim": 5, "begun": True, "ended": True}),
    ("ssd_scan", {"batch": 1, "tokens": 0, "heads": 2, "dim": 3, "state": 3, "groups": 1, "ended": True}),
    ("gemm", {"m": 3, "n": 4, "k": 0}), ("pdist", {"n": 0, "k": 4}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "axes"), ANSWERED, ids=lambda part: part if isinstance(part, str) else "")
def test_what_computes_on_nothing_is_timed_and_nothing_of_it_is_wrong(op, axes):
    case = nearpeak.case(op, dtype="fp32", **axes)
    found = runner_of("torch_cpu", SHORT).measure(case)
    assert found.outcome in TIMED, found.note
    record = validate(case, pytorch(case), seed=1)
    assert [result.check for result in record.results if result.failed] in ([], ["V0"])


@pytest.mark.parametrize(("op", "axes", "said"), [
    ("batch_norm", {"batch": 3, "channels": 0, "spatial": 5}, "batch_norm: no answer with channels=0: its PyTorch"),
    ("fractional_max_pool", {"batch": 2, "channels": 3, "w": 8, "kw": 3, "ow": 0}, "with ow=0: PyTorch gives"),
    ("lbfgs", {"parameters": 0, "history": 1}, "lbfgs: no answer with parameters=0: its PyTorch call says: lbfgs"),
    ("paged_attention", {"batch": 0, "heads": 2, "tokens": 5, "pages": 1, "dim": 4}, "no inputs with batch=0"),
    ("weight_norm", {"rows": 0, "columns": 6}, "PyTorch's kernel divides by the number of rows"),
    ("recurrent", {"batch": 2, "steps": 5, "features": 3, "hidden": 0}, "no answer with hidden=0"),
    ("embedding_bag", {"tokens": 9, "bags": 3, "dim": 0, "vocab": 6}, "no answer with dim=0"),
])  # fmt: skip
def test_what_has_no_answer_is_refused_with_the_extent(op, axes, said):
    case = nearpeak.case(op, dtype="fp32", **axes)
    found = runner_of("torch_cpu", SHORT).measure(case)
    assert (found.outcome, found.samples_s) == (Outcome.UNSUPPORTED, ())
    assert said in found.note
    with pytest.raises(NotModelledError) as refused:
        validate(case, pytorch(case), seed=1)
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_a_gradient_of_nothing_is_refused():
    for op, axes in (("pdist", {"n": 0, "k": 4}), ("conv", {"batch": 0, **CONV})):
        found = runner_of("torch_cpu", SHORT).measure(nearpeak.case(op, "backward", dtype="fp32", **axes))
        assert (found.outcome, found.samples_s) == (Outcome.UNSUPPORTED, ())
        assert "its results have no element, and so no gradient" in found.note


@pytest.mark.slow
@pytest.mark.parametrize("op", sampled(OPS, 30))
def test_every_extent_of_0_is_timed_or_refused(op):
    line = {name: value for name, value in directed(op)[0].items() if name[0] != "_" and "." not in name}
    for axis in OPS[op].signatures["forward"].axes:
        try:
            work_of(case := OPS[op].case("forward", **{"dtype": "fp32", **line, axis: 0}))
        except NearpeakError:
            continue
        found = runner_of("torch_cpu", UNCHECKED).measure(case)
        assert found.outcome in (*TIMED, Outcome.UNSUPPORTED), f"{case.label()}: {found.note}"


def test_a_format_that_pytorch_lacks_is_named():
    case = nearpeak.case("scaled_gemm", m=3, n=0, k=32, dtype="nvfp4")
    found = runner_of("torch_cpu", SHORT).measure(case)
    assert found.outcome is Outcome.UNSUPPORTED
    assert "has no number format fp4_e2m1" in found.note
    with pytest.raises(NotModelledError, match="has no number format fp4_e2m1"):
        validate(case, pytorch(case), seed=1)


def test_a_case_that_pytorch_refuses_is_refused_with_its_reason():
    case = nearpeak.case("group_norm", batch=1, channels=2, spatial=1, groups=2, dtype="fp32")
    with pytest.raises(NotModelledError, match=r"computes no such case.*more than 1 value per channel"):
        validate(case, pytorch(case), seed=1)
