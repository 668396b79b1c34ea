"""The contract on single cases: right answers pass, each kind of wrong answer fails the check that is there for it."""

import numpy as np
import pytest
from tests.sampling import in_turn

import nearpeak
from nearpeak.core.runs.validation import FAILURES
from nearpeak.ops import OPS
from nearpeak.validation import Implementation, forward_case, pytorch, validate

torch = pytest.importorskip("torch")
GEMM = nearpeak.case("gemm", m=24, n=40, k=96, dtype="fp32")
SOFTMAX = nearpeak.case("softmax", rows=8, columns=33, dtype="fp32")
LAYER_NORM = nearpeak.case("layer_norm", rows=8, hidden=33, dtype="fp32")


def right(case):
    return OPS[case.op].torch_call


def changed(case, change):
    """PyTorch's answer with one output changed."""

    def call(tensors, **arguments):
        outputs = dict(OPS[case.op].torch_call(tensors, **arguments))
        name = next(iter(outputs))
        outputs[name] = change(outputs[name].clone())
        return outputs

    return call


def failed(case, call, seed=1):
    return validate(case, call, seed=seed).failed


@pytest.mark.parametrize(("case", "dtype"), in_turn([GEMM, SOFTMAX, LAYER_NORM], ["fp32", "bf16", "fp64"]))
def test_pytorch_passes_every_check(case, dtype):
    case = nearpeak.case(case.op, **{**dict(case.axes), "dtype": dtype})
    found = validate(case, right(case), seed=3)
    assert found.status == "PASS", [result for result in found.results if result.failed]
    assert [result.check for result in found.results] == [f"V{number}" for number in range(13)]
    assert found.worst_bound_ratio <= 1
    assert found.worst_bound_ratio > 0 or dtype == "fp64"  # whose reference may add in the same order


def test_a_case_whose_result_is_always_the_same_is_degenerate():
    one = nearpeak.case("softmax", rows=4, columns=1, dtype="fp32")
    assert failed(one, right(one)) == ("V0",)


def test_a_wrong_shape_format_or_missing_output_fails_the_form():
    assert "V1" in failed(GEMM, changed(GEMM, lambda y: y.mT))
    assert "V1" in failed(GEMM, changed(GEMM, lambda y: y.double()))
    assert "V1" in failed(GEMM, lambda tensors, **_: {})


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError, "CRASH"), (MemoryError, "OOM"), (NotImplementedError, "UNSUPPORTED")]
)
def test_what_raises_has_a_status(error, status):
    def call(tensors, **_):
        raise error("no")

    assert validate(GEMM, call, seed=0).status == status


def test_a_single_result_is_the_only_output_and_other_forms_are_told_the_names():
    assert validate(LAYER_NORM, lambda tensors, **a: right(LAYER_NORM)(tensors, **a)["output"], seed=0).status == "PASS"
    nothing = validate(SOFTMAX, lambda tensors, **_: None, seed=0).results[1]
    assert nothing.reason == "normal inputs: TypeError: it returned NoneType; outputs are returned by name: {'y': …}"
    topk = nearpeak.case("topk", rows=4, columns=9, k=3, dtype="fp32")
    one = validate(topk, lambda tensors, **_: tensors["x"], seed=0).results[1]
    assert "{'values': …, 'indices': …}" in one.reason


def test_an_input_that_the_case_does_not_have_is_answered_with_those_that_it_has():
    found = validate(GEMM, lambda tensors, **_: {"y": tensors["a"] @ tensors["weight"]}, seed=0)
    said = "normal inputs: LookupError: nothing is called 'weight'; inputs: a, b; arguments: m, n, k"
    assert found.results[1].reason.startswith(said)


def test_what_raises_without_words_is_said_by_its_kind():
    def call(tensors, **arguments):
        if tensors["x"].requires_grad:
            raise MemoryError
        return right(SOFTMAX)(tensors, **arguments)

    assert validate(SOFTMAX, call, seed=0).results[9].reason == "its gradient: MemoryError"


def test_checks_that_need_results_say_that_there_are_none():
    found = validate(SOFTMAX, lambda tensors, **_: {"z": tensors["x"]}, seed=0)
    assert found.failed == ("V1",)
    assert {found.results[number].reason for number in (2, 3, 5, 9)} == {"V1 failed"}


def test_changed_inputs_and_overrun_guard_bands_are_seen():
    def mutating(tensors, **arguments):
        outputs = OPS["gemm"].torch_call(tensors, **arguments)
        tensors["a"].view(-1)[0] += 1
        return outputs

    def overrunning(tensors, **arguments):
        outputs = OPS["gemm"].torch_call(tensors, **arguments)
        b = tensors["b"]
        torch.as_strided(b, (1,), (1,), b.storage_offset() + b.numel())[0] = 0
        return outputs

    assert validate(GEMM, mutating, seed=0).status == "MUTATED_INPUT"
    assert validate(GEMM, overrunning, seed=0).status == "OOB_WRITE"


def test_a_copy_that_returns_its_input_is_seen_and_what_computes_may_return_it():
    copied = nearpeak.case("copy", elements=40, dtype="fp32")
    for same in (lambda t, **_: {"y": t["x"]}, lambda t, **_: {"y": t["x"][:]}):
        assert validate(copied, same, seed=0).status == "ALIASED_OUTPUT"
    kept = nearpeak.case("cast", elements=40, dtype="fp32", out_dtype="fp32")
    assert validate(kept, lambda t, **_: {"y": t["x"]}, seed=0).status == "PASS"
    stepped = nearpeak.case("adamw", parameters=40, dtype="fp32")
    assert validate(stepped, pytorch(stepped), seed=0).status == "PASS"


def test_a_table_that_is_to_stay_as_it_is_is_not_written_into():
    shape = {"rows": 6, "width": 4, "table_rows": 12, "accumulate": True, "dtype": "fp32"}

    def into(tensors, **_):
        return {"table": tensors["table"].index_put_((tensors["index"],), tensors["source"], accumulate=True)}

    assert validate(nearpeak.case("scatter", **shape), into, seed=0).status == "MUTATED_INPUT"
    assert validate(nearpeak.case("scatter", **shape, in_place=True), into, seed=0).status == "PASS"
    for in_place in (False, True):
        one = nearpeak.case("scatter", **shape, in_place=in_place)
        assert validate(one, pytorch(one), seed=0).status == "PASS"


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda: torch.set_grad_enabled(False), "torch.is_grad_enabled() was True, and is False"),
        (
            lambda: torch.set_default_dtype(torch.float64),
            "torch.get_default_dtype() was torch.float32, and is torch.fl",
        ),
    ],
)
def test_global_state_that_a_kernel_leaves_changed_is_named(change, state):
    def changing(tensors, **arguments):
        outputs = OPS["softmax"].torch_call(tensors, **arguments)
        change()
        return outputs

    found = validate(SOFTMAX, changing, seed=0)
    assert found.status == "CHANGED_STATE"
    assert state in found.reason
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32


def test_memory_that_was_never_written_is_seen_whatever_it_held():
    def partly(tensors, **arguments):
        y = OPS["gemm"].torch_call(tensors, **arguments)["y"]
        out = torch.empty_like(y)
        out[:, :-1] = y[:, :-1]
        return {"y": out}

    def into_given(tensors, out, **arguments):
        out["y"][:, 1:] = OPS["gemm"].torch_call(tensors, **arguments)["y"][:, 1:]

    assert "V3" in failed(GEMM, partly)
    assert "V3" in failed(GEMM, into_given)
    assert "V3" in failed(GEMM, changed(GEMM, lambda y: torch.empty_like(y).clamp(-1, 1)))


def test_a_wrong_value_is_not_put_down_to_memory_where_memory_has_no_part_in_it():
    def one(y):
        y.view(-1)[77] *= 1.5
        return y

    assert validate(GEMM, changed(GEMM, one), seed=1).results[3].reason.startswith("whatever memory held: y[0, 1, 37]")
    left = validate(GEMM, changed(GEMM, lambda y: torch.empty_like(y).clamp(-1, 1)), seed=1).results[3]
    assert left.reason.startswith("memory held nan: ")


def test_swallowed_nan_is_seen():
    assert failed(SOFTMAX, changed(SOFTMAX, torch.nan_to_num)) == ("V4",)


def test_one_wrong_element_of_many_is_seen_and_named():
    def one(y):
        y.view(-1)[77] *= 1.5
        return y

    found = validate(GEMM, changed(GEMM, one), seed=1)
    assert found.status == "NUMERIC_FAIL"
    assert found.results[5].worst.offset == (0, 1, 37)
    assert found.results[5].worst.bound_ratio > 1


def test_truncation_in_place_of_rounding_shows_as_bias():
    case = nearpeak.case("gemm", m=64, n=64, k=64, dtype="bf16")

    def truncated(tensors, **_):
        y = tensors["a"].float() @ tensors["b"].float()
        return {"y": (y.view(torch.int32) & -65536).view(torch.float32).bfloat16()}

    assert "V6" in failed(case, truncated)


def test_products_in_fewer_bits_are_seen_without_permission():
    def reduced(tensors, **arguments):
        return {"y": (tensors["a"].bfloat16() @ tensors["b"].bfloat16()).float()}

    assert {"V5", "V6"} <= set(failed(GEMM, reduced))


def test_whole_numbers_show_an_accumulator_of_few_bits():
    case = nearpeak.case("gemm", m=32, n=32, k=512, dtype="bf16")

    def narrow(tensors, **_):
        y = torch.zeros(1, 32, 32, dtype=torch.bfloat16)
        for index in range(512):
            y += tensors["a"][:, :, index, None] * tensors["b"][:, None, index]
        return {"y": y}

    assert "V7" in failed(case, narrow)


def test_an_answer_that_changes_from_call_to_call_is_seen():
    calls = []

    def forgetful(tensors, **arguments):
        calls.append(1)
        y = OPS["gemm"].torch_call(tensors, **arguments)["y"]
        return {"y": y + 0.1 * (len(calls) > 8)}

    assert "V8" in failed(GEMM, forgetful)


def test_a_wrong_gradient_of_a_right_result_is_seen():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(torch.softmax(x, -1))
            return torch.softmax(x, -1)

        @staticmethod
        def backward(context, grad):
            return context.saved_tensors[0] * grad

    assert failed(SOFTMAX, lambda tensors, **_: {"y": Wrong.apply(tensors["x"])}) == ("V9",)


def test_an_answer_kept_by_address_fails_the_timed_loop():
    kept = {}

    def caching(tensors, **arguments):
        key = tensors["a"].data_ptr(), tensors["a"].shape
        seen = kept.setdefault(key, [tensors["a"].clone(), OPS["gemm"].torch_call(tensors, **arguments)])
        return seen[1]

    assert "V11" in failed(GEMM, caching)


def test_an_incomplete_or_filled_ledger_is_a_fallback():
    def with_ledger(*rows):
        return Implementation(name="converted", call=OPS["gemm"].torch_call, ledger=rows)

    row = {"node": "MatMul_3", "target": "CPU", "reason": "no kernel for fp64"}
    assert validate(GEMM, with_ledger(), seed=0).failed == ()
    assert validate(GEMM, with_ledger(row), seed=0).status == "FALLBACK"
    assert "reason" in validate(GEMM, with_ledger({**row, "reason": ""}), seed=0).results[12].reason


def test_numpy_implementations_are_judged_too():
    def product(arrays, **_):
        return {"y": np.matmul(arrays["a"], arrays["b"])}

    assert failed(GEMM, Implementation(name="numpy", call=product, arrays="numpy")) == ()


def test_the_same_seed_gives_the_same_record_and_the_command_says_it():
    first, second = (validate(GEMM, right(GEMM), seed=5) for _ in range(2))
    assert first.results == second.results
    assert validate(GEMM, pytorch(GEMM), seed=5).command == (
        "nearpeak validate gemm m=24 n=40 k=96 dtype=fp32 --runner torch_cpu --seed 5"
    )


def test_a_case_of_the_gradient_is_judged_with_its_forward_pass():
    gradient = nearpeak.case("layer_norm", "backward", rows=4, hidden=16, dtype="fp32")
    assert forward_case(gradient).phase == "forward"
    found = validate(gradient, pytorch(gradient), seed=0)
    assert found.status == "PASS"
    assert found.results[9].status == "PASS"
    assert "phase=backward" in found.command


def test_every_status_is_listed():
    assert len(set(FAILURES)) == len(FAILURES)
