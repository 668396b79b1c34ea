"""Logs of operator inputs: every row a case with its count, unknown rows counted and named, nothing executed."""

import json
import random
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

import nearpeak
from nearpeak.cli import application
from nearpeak.errors import SpecError
from nearpeak.frontends.files.operator_log import capture_op_log
from nearpeak.suites.coverage_numbers import coverage_of
from nearpeak.suites.suite_merge import suite_of

LOG = """\
Operator: aten.mm.default
cnt: 12, ((T([2, 4], f16), T([4, 8], f16, stride=(1, 4))), {})
cnt: 3, ((T([16, 64], bf16), T([64, 8], bf16)), {})
Operator: aten.add.Tensor
cnt: 2, ((T([4, 4], f32), T([4, 4], f32, stride=(0, 1))), {})
Operator: aten.native_layer_norm_backward.default
cnt: 1, ((T([2, 16], f16), T([2, 16], f16), [16], T([2, 1], f32), T([2, 1], f32), T([16], f16), T([16], f16), \
[True, True, True]), {})
Operator: aten.cat.default
cnt: 5, (([T([2, 3], f32), T([2, 5], f32)], 1), {})
Operator: aten.t.default
cnt: 9, ((T([2, 3], f32),), {})
Operator: aten.clamp.default
cnt: 7, ((T([2, 3], f32), -inf, None), {})
Operator: aten._to_copy.default
cnt: 4, ((T([2, 3], f32),), {'dtype': f16, 'layout': torch.strided, 'device': device('cuda', 0)})
"""


def read(tmp_path, text, name="model.txt"):
    file = tmp_path / name
    file.write_text(text)
    return nearpeak.capture(file)


def test_each_row_becomes_a_case_with_its_count_and_line(tmp_path):
    calls = read(tmp_path, LOG).calls
    found = [(call.case.op, call.phase, call.call_count, call.source) for call in calls]
    assert found == [
        ("gemm", "forward", 12, "model.txt:2"), ("gemm", "forward", 3, "model.txt:3"),
        ("elementwise", "forward", 2, "model.txt:5"), ("layer_norm", "backward", 1, "model.txt:7"),
        ("copy", "forward", 5, "model.txt:9"), ("elementwise", "forward", 7, "model.txt:13"),
        ("cast", "forward", 4, "model.txt:15"),
    ]  # fmt: skip


def test_formats_strides_and_broadcast_operands_are_kept(tmp_path):
    cases = [call.case for call in read(tmp_path, LOG).calls]
    assert dict(cases[0].axes)["n"] == 8
    assert (dict(cases[0].attributes)["layout"], dict(cases[0].dtypes)["dtype"]) == ("nt", "fp16")
    assert dict(cases[1].dtypes)["dtype"] == "bf16"
    assert (dict(cases[2].axes)["a"], dict(cases[2].axes)["b"]) == (16, 4)


def test_views_are_counted_as_often_as_the_log_says(tmp_path):
    workload = read(tmp_path, LOG)
    assert workload.skipped == {"aten.t.default": 9}
    assert workload.origin["calls"] == str(12 + 3 + 2 + 1 + 5 + 9 + 7 + 4)


BAD = [
    ("cnt: 1, ((T([2], q9),), {})", "format 'q9' is not one of f16"),
    ("cnt: 1, ((T([-2], f16),), {})", "extents and strides are whole numbers"),
    ("cnt: 1, ((__import__('os'),), {})", "neither a tensor nor a device"),
    ("cnt: 1, ((open.read,), {})", "torch.read is no format"),
    ("cnt: 1, (T([2], f16))", "a row is \\(\\(arguments\\), {keywords}\\)"),
    ("cnt: 1, ((T([2], f16),", "arguments are no literals"),
    ("cnt: 1, ((T([2, 3], f16), T([2, 3], f16)), {})", "aten.mm.default: "),
    ("a sentence", "line 17: 'a sentence'"),
]


@pytest.mark.parametrize(("line", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_row_that_cannot_be_read_is_counted_and_named(tmp_path, line, reason):
    good = "Operator: aten.mm.default\ncnt: 1, ((T([2, 4], f16), T([4, 8], f16)), {})\n"
    workload = read(tmp_path, LOG + good.splitlines()[0] + "\n" + line + "\n" + good)
    assert len([call for call in workload.calls if call.case is not None]) == 8
    assert sum(workload.uncovered_counts().values()) == line.startswith("cnt: ")
    assert len(workload.assumptions) == 1
    assert re.search(reason, workload.assumptions[0])
    assert workload.assumptions[0].startswith("1 line could not be read: ")


def test_an_operator_that_this_pytorch_lacks_is_named(tmp_path):
    workload = read(tmp_path, LOG + "Operator: aten.nonsense.default\ncnt: 4, ((T([2], f16),), {})\n")
    assert "operator aten.nonsense.default is not known to this PyTorch (line 17)" in workload.assumptions[0]
    assert workload.uncovered_counts() == {"aten.nonsense.default": 4}


def test_a_suite_of_a_log_counts_the_calls_that_could_not_be_read(tmp_path):
    one = suite_of(read(tmp_path, LOG + "Operator: aten.nonsense.default\ncnt: 4, ((T([2], f16),), {})\n"))
    (source,) = one.sources
    assert source.uncovered == {"aten.nonsense.default": 4}
    assert source.origin["unread"].startswith("1 line could not be read: operator aten.nonsense.default")
    covered = coverage_of(one).use[0]
    assert (covered.currency, covered.covered_ratio) == ("calls", 34 / 38)


def test_a_file_without_any_row_is_refused_with_an_example(tmp_path):
    with pytest.raises(SpecError, match=r"no row of it can be read; rows look like 'cnt: 1, "):
        read(tmp_path, "nothing of the kind\n")


def test_a_log_may_be_called_log(tmp_path):
    assert read(tmp_path, LOG, "model.log").calls == tuple(
        replace(call, source=call.source.replace(".txt", ".log")) for call in read(tmp_path, LOG).calls
    )
    found = CliRunner().invoke(application(), ["predict", str(tmp_path / "model.log"), "-t", "h100_sxm", "--json"])
    assert json.loads(found.stdout)["workload"] == "model"
    with pytest.raises(SpecError, match=r"absent\.log: not found"):
        nearpeak.capture(tmp_path / "absent.log")


def test_reading_twice_gives_the_same(tmp_path):
    assert read(tmp_path, LOG) == read(tmp_path, LOG)


def test_ten_thousand_damaged_lines_are_read_or_counted_and_never_crash(tmp_path):
    draw, rows = random.Random(7), LOG.splitlines()
    lines = []
    for _ in range(10_000):
        line = list(draw.choice(rows))
        for _ in range(draw.randint(1, 4)):
            line[draw.randrange(len(line))] = draw.choice("()[]{},:-0123456789Tfabc .'\"")
        lines.append("".join(line).replace("\n", " "))
    file = tmp_path / "damaged.txt"
    file.write_text(LOG + "\n".join(lines))
    workload = capture_op_log(file)
    assert len(workload.calls) >= 7
    assert workload.assumptions[0].split(" ", 1)[1].startswith("lines could not be read")


SOFTMAX, ADD = "aten._softmax.default", "aten.add.Tensor"
MM, CONV = "aten.mm.default", "aten.convolution.default"
PLAIN = "None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1"
LYING = [
    (SOFTMAX, "(T([32, 128], f16, stride=(1, 32)), -1, False)", {"x.layout": "transposed"}),
    (SOFTMAX, "(T([4, 32, 128], f16, stride=(8192, 256, 2)), -1, False)", {"x.layout": "stepped"}),
    (SOFTMAX, "(T([4, 32, 128], f16, stride=(4128, 129, 1)), -1, False)", {"x.layout": "padded"}),
    (SOFTMAX, "(T([4, 32, 128], f16, stride=(8192, 129, 1)), -1, False)", None),
    (SOFTMAX, "(T([32, 128], f16, stride=(384, 1)), -1, False)", None),
    (SOFTMAX, "(T([1, 128], f16, stride=(384, 1)), -1, False)", {}),
    (ADD, "(T([32, 128], f16), T([32, 128], f16, stride=(256, 2)))", {"b.layout": "stepped"}),
    (ADD, "(T([32, 128], f16, stride=(1, 32)), T([32, 128], f16, stride=(1, 32)))", {}),
    (ADD, "(T([32, 128], f16), T([32, 128], f16, stride=(1, 32)))", None),
    (ADD, "(T([32, 128], f16), T([32, 128], f16, stride=(0, 1)))", {}),
    (MM, "(T([2, 4], f16), T([4, 8], f16, stride=(1, 4)))", {}),
    (MM, "(T([33, 129], f32, stride=(200, 1)), T([129, 65], f32))", None),
    (MM, "(T([33, 129], f32, stride=(1, 33)), T([129, 65], f32))", {}),
    (MM, "(T([33, 129], f32, stride=(1, 50)), T([129, 65], f32))", None),
    (MM, "(T([33, 129], f32, stride=(0, 1)), T([129, 65], f32))", None),
    ("aten.addmm.default", "(T([65], f32), T([33, 129], f32), T([129, 65], f32, stride=(1, 129)))", {}),
    ("aten.bmm.default", "(T([4, 33, 129], f32, stride=(0, 129, 1)), T([4, 129, 65], f32))", {}),
    ("aten.bmm.default", "(T([4, 33, 129], f32, stride=(129, 516, 1)), T([4, 129, 65], f32))", None),
    ("aten.mv.default", "(T([33, 129], f32), T([129], f32, stride=(2,)))", None),
    (CONV, f"(T([2, 8, 6, 5], f32, stride=(240, 1, 40, 8)), T([4, 8, 3, 3], f32), {PLAIN})", {}),
    (CONV, f"(T([2, 8, 6, 5], f32, stride=(480, 1, 80, 16)), T([4, 8, 3, 3], f32), {PLAIN})", None),
    (CONV, f"(T([2, 8, 6, 5], f32), T([4, 8, 3, 3], f32, stride=(72, 1, 24, 8)), {PLAIN})", None),
    ("aten.native_layer_norm.default", "(T([32, 128], f16, stride=(1, 32)), [128], T([128], f16), T([128], f16), 1e-5)",
     {"input.layout": "transposed"}),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "arguments", "memory"), LYING, ids=[f"{o} {a}" for o, a, _ in LYING])
def test_strides_become_layouts_and_calls_taken_for_dense_are_counted(tmp_path, operator, arguments, memory):
    workload = read(tmp_path, f"Operator: {operator}\ncnt: 3, ({arguments}, {{}})\n")
    (call,) = workload.calls
    assert dict(call.case.memory) == (memory or {})
    said = f"3 calls are taken for dense: {operator} (line 2)"
    assert workload.origin.get("strides") == (said if memory is None else None)


def test_one_call_taken_for_dense_is_one_call(tmp_path):
    row = f"Operator: {MM}\ncnt: 1, ((T([33, 129], f32, stride=(200, 1)), T([129, 65], f32)), {{}})\n"
    assert read(tmp_path, row).origin["strides"] == f"1 call is taken for dense: {MM} (line 2)"
