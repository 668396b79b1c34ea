"""Hand-written cases and sweeps: what they expand to, and what is refused before anything is expanded."""

import time

import pytest

from nearpeak.api.model_precision import precision
from nearpeak.errors import SpecError, UnknownNameError
from nearpeak.frontends.files.axis_conditions import condition
from nearpeak.frontends.files.axis_values import axis_values
from nearpeak.frontends.files.sweep import capture_sweep, swept

HEAD = '[sweep]\nop = "gemm"\ndtype = "bf16"\nm = 4\nn = 4\n'


def captured(folder, text, suffix=".toml"):
    path = folder / f"cases{suffix}"
    path.write_text(text, encoding="utf-8")
    return capture_sweep(path)


def test_lines_become_calls_with_their_counts(tmp_path):
    text = (
        '{"op":"gemm","dtype":"bf16","m":1,"n":2,"k":3,"count":5}\n\n{"op":"gemm","dtype":"fp16","m":1,"n":2,"k":3}\n'
    )
    workload = captured(tmp_path, text, ".jsonl")
    assert workload.step == "sweep"
    assert [(call.call_count, call.source) for call in workload.calls] == [(5, "cases.jsonl:1"), (1, "cases.jsonl:3")]
    assert dict(workload.calls[0].case.axes)["k"] == 3


def test_a_sweep_is_the_product_of_its_axes(tmp_path):
    text = '[[sweep]]\nop="gemm"\ndtype=["bf16","fp16"]\nm="pow2(60,300)"\n"n,k"="zip(128:512:128, [1,2,3,4])"\n'
    workload = captured(tmp_path, text + '[[case]]\nop="gemm"\ndtype="bf16"\nm=1\nn=1\nk=1\n')
    assert len(workload.calls) == 1 + 2 * 3 * 4
    pairs = {(dict(c.case.axes)["n"], dict(c.case.axes)["k"]) for c in workload.calls[1:]}
    assert pairs == {(128, 1), (256, 2), (384, 3), (512, 4)}


def test_constraints_remove_points_and_are_counted(tmp_path):
    workload = captured(tmp_path, HEAD + 'k = "1:10"\nwhere = ["m*k <= 16", "k % 2 == 0"]\n')
    assert [dict(call.case.axes)["k"] for call in workload.calls] == [2, 4]
    assert workload.origin["removed by m*k <= 16"] == "6"
    assert workload.origin["removed by k % 2 == 0"] == "2"


def test_a_cover_finds_points_that_need_several_values_at_once():
    line = "op=gemm dtype=bf16,fp16 m=16,32,64 n=16,32,64 k=16,32,64 cover=2"
    found = swept("s", line, ["m == n", "n == k"])
    made = {(dict(call.case.axes)["m"], dict(call.case.dtypes)["dtype"]) for call in found.calls}
    assert made == {(m, dtype) for m in (16, 32, 64) for dtype in ("bf16", "fp16")}
    assert found.origin["removed by m == n (combinations)"] == "14"


def test_a_cover_finds_points_by_constraints_on_totals():
    found = swept("s", "op=fill dtype=bf16,fp32 elements=1,2,4 cover=1", ["bytes_total == 8"])
    assert {call.case.label() for call in found.calls} == {"fill elements=4 bf16", "fill elements=2 fp32"}


def test_choices_that_look_like_numbers_or_truths_can_be_swept():
    norms = swept("s", "op=cdist dtype=fp32 batch=1 m=2 n=2 k=2 norm=0,1,2,inf").calls
    assert [dict(call.case.attributes)["norm"] for call in norms] == ["0", "1", "2", "inf"]
    logs = swept("s", "op=softmax dtype=fp32 rows=2 columns=2 log=true,false").calls
    assert [dict(call.case.attributes)["log"] for call in logs] == [True, False]


def test_an_empty_expansion_names_the_constraint(tmp_path):
    with pytest.raises(SpecError, match=r"sweep 1: no case is left; constraint 'k > 100' removed 10"):
        captured(tmp_path, HEAD + 'k = "1:10"\nwhere = "k > 100"\n')


def test_a_cover_without_a_point_names_the_constraint_and_what_it_rules_out():
    with pytest.raises(SpecError, match=r"no case is left; constraint 'k > 9' removed 18: loosen it"):
        swept("s", "op=gemm dtype=bf16 m=1,2 n=1,2 k=1,2 cover=2", ["m < 9", "k > 9"])


def test_too_many_cases_are_refused_before_any_is_made(tmp_path):
    start = time.process_time()
    with pytest.raises(SpecError, match=r"1,000,000,000,000 cases \(.*k 1000000000000\); a file holds up to 1,000,000"):
        captured(tmp_path, HEAD + 'k = "1:1000000000000:1"\n')
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os')", "calls something other than"),
        ("k.real > 1", "uses Attribute"),
        ("[k for k in m]", "uses ListComp"),
        ("(lambda: 1)()", "calls something other than"),
        ("9**9**9 > k", "too large"),
        ("k / 2 > 1", "uses Div"),
        ("j > 1", "names 'j'"),
        ("k >", "not a condition"),
        ("k // (m - 4) > 1", "cannot be computed"),
        ("k > 'a'", "cannot be computed"),
    ],
)
def test_conditions_outside_the_whitelist_are_refused(tmp_path, text, message):
    with pytest.raises(SpecError, match=message) as caught:
        captured(tmp_path, HEAD + f'k = "1:10"\nwhere = "{text}"\n')
    assert str(caught.value).startswith("cases.toml sweep 1: ")


def test_conditions_know_functions_and_texts():
    holds = condition("ceil_div(m, 4) == 3 and gcd(m, 6) in_ 3".replace("in_", "=="), frozenset({"m"}))
    assert holds({"m": 9}) is True
    assert condition("dtype != 'bf16' or not max(m, 2) < log2(64)", frozenset({"m", "dtype"}))(
        {"m": 6, "dtype": "bf16"}
    )
    assert condition("1 < m <= 4", frozenset({"m"}))({"m": 4})


def test_draws_are_the_same_for_the_same_seed_and_within_their_range():
    draws = [value for (value,) in axis_values("m", "loguniform(1,100000,50,7)").rows()]
    assert draws == [value for (value,) in axis_values("m", "loguniform(1,100000,50,7)").rows()]
    assert draws == sorted(set(draws))
    assert 1 <= draws[0] < draws[-1] <= 100000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("5:1", "is empty"),
        ("1:5:0", "is empty"),
        ("pow2(5,7)", "no power of two"),
        ("pow2(1)", "needs 2 whole numbers"),
        ("pow3(1,2)", "function 'pow3' is not known"),
        ("loguniform(0,5,1,1)", "needs 1 <= first"),
        ([], "list is empty"),
        ([1.5], "neither a whole number nor a text"),
        (1.5, "give a whole number"),
        ("1:x", "give a whole number"),
    ],
)
def test_values_that_are_no_axis_are_refused_by_name(given, message):
    with pytest.raises(SpecError, match=message) as caught:
        axis_values("k", given)
    assert str(caught.value).startswith("k: ")


def test_axes_that_move_together_need_equal_lengths():
    with pytest.raises(SpecError, match="m has 3, n has 2"):
        axis_values("m,n", "zip(1:3, [1,2])")
    with pytest.raises(SpecError, match="has 1 parts for 2 axes"):
        axis_values("m,n", "zip(1:3)")
    with pytest.raises(SpecError, match="written zip"):
        axis_values("m,n", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"op":"gemm","dtype":"bf16","m":1,"n":1,"k":1099511627777}',
            r"cases.jsonl:1: gemm: k=1099511627777 is over 2\^40",
        ),
        ('{"op":"gemm","dtype":"bf16","m":1000000000000,"n":4,"k":40960}', r"m=1000000000000 makes a tensor of"),
        ('{"op":"gemm","dtype":"bf16","m":1,"n":4}', "cases.jsonl:1: gemm: axis 'k' is missing"),
        ('{"dtype":"bf16"}', "cases.jsonl:1: 'op' is missing"),
        ('\n{"op":"gemm","dtype":"bf16","m":1,"n":1,"k":1,"count":0}', "cases.jsonl:2: count=0"),
        ("[1]", "cases.jsonl:1: is list"),
        ('{"op":', "cases.jsonl:1: not JSON"),
        ('{"op":"gemm","dtype":"bf16","m":1,"n":4,"k":4,"m":2}', "cases.jsonl:1: the key 'm' occurs twice"),
        ("", "states no case"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, message):
    with pytest.raises(SpecError, match=message):
        captured(tmp_path, text + "\n", ".jsonl")


def test_unknown_operators_and_tables_list_what_is_known(tmp_path):
    with pytest.raises(UnknownNameError, match=r"cases.jsonl:1: op 'gem'.*gemm"):
        captured(tmp_path, '{"op":"gem"}', ".jsonl")
    with pytest.raises(SpecError, match="table 'cases' is not known"):
        captured(tmp_path, "[[cases]]\n")
    with pytest.raises(SpecError, match="not TOML"):
        captured(tmp_path, "hello")
    with pytest.raises(SpecError, match="no such file"):
        capture_sweep(tmp_path / "absent.toml")


@pytest.mark.parametrize("tiles", ["-4", "64,-1", "0", "x", ""])
def test_tiles_that_are_none_are_refused_as_such(tiles):
    with pytest.raises(SpecError, match=rf"^k: near\({tiles}\) needs positive tiles"):
        axis_values("k", f"near({tiles})")


def test_a_list_of_cases_has_no_other_precisions(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text('[[cases]]\nop = "gemm"\nm = 8\nn = 8\nk = 8\ndtype = "bf16"\n')
    with pytest.raises(SpecError, match="states the formats of its calls itself"):
        precision(path)
