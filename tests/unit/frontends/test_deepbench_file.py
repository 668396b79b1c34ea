"""DeepBench headers: width before height, letters of transposition, sets as modules, unknown rows named."""

import pytest

import nearpeak
from nearpeak.errors import SpecError

GEMM = """\
// sizes of matrices
std::vector<std::tuple<int, int, int, bool, bool>> training_set = {
    std::make_tuple(1760, 16, 700, false, false),
    std::make_tuple(35, 8457, 2048, true, false),  // std::make_tuple(1, 1, 1, false, false)
};
std::vector<std::tuple<int, int, int, bool, bool>> inference_server_set = {
    std::make_tuple(5124, 9124, 2560, false, true)
};
"""
CONV = "std::vector<T> training_set = { std::make_tuple(700, 161, 1, 4, 32, 20, 5, 0, 1, 2, 3), };"
RNN = """\
std::vector<std::tuple<int, int, int, std::string>> training_set = {
    std::make_tuple(1760, 16, 50, "vanilla"), std::make_tuple(512, 32, 25, "lstm"), std::make_tuple(8, 4, 2, "lstn"),
};
"""


def read(tmp_path, text, **options):
    file = tmp_path / "problems.h"
    file.write_text(text)
    return nearpeak.capture(file, **options)


def test_gemm_rows_keep_extents_letters_set_and_line(tmp_path):
    calls = read(tmp_path, GEMM).calls
    found = [(dict(c.case.axes), dict(c.case.attributes)["layout"], c.module, c.source) for c in calls]
    shown = [(a["m"], a["n"], a["k"], *rest) for a, *rest in found]
    assert shown == [
        (1760, 16, 700, "nn", "training_set", "problems.h:3"),
        (35, 8457, 2048, "tn", "training_set", "problems.h:4"),
        (5124, 9124, 2560, "nt", "inference_server_set", "problems.h:7"),
    ]


def test_convolution_rows_state_width_before_height(tmp_path):
    axes = dict(read(tmp_path, CONV, dtype="fp16").calls[0].case.axes)
    wanted = {
        "w": 700, "h": 161, "in_channels": 1, "batch": 4, "out_channels": 32, "kw": 20, "kh": 5, "pw": 0, "ph": 1,
        "sw": 2, "sh": 3,
    }  # fmt: skip
    assert {name: axes[name] for name in wanted} == wanted


def test_the_format_is_the_one_asked_for_and_fp32_otherwise(tmp_path):
    for given, dtype in (({}, "fp32"), ({"dtype": "bf16"}, "bf16")):
        assert dict(read(tmp_path, GEMM, **given).calls[0].case.dtypes)["dtype"] == dtype


def test_recurrent_rows_name_their_cell_and_an_unknown_cell_is_counted_and_named(tmp_path):
    workload = read(tmp_path, RNN)
    assert [dict(call.case.attributes)["cell"] for call in workload.calls] == ["rnn_tanh", "lstm"]
    assert dict(workload.calls[0].case.axes)["steps"] == 50
    assert workload.assumptions[1] == ("1 rows could not be read: line 2: cell 'lstn' is not one of vanilla, lstm, gru")
    assert workload.origin["unread"] == workload.assumptions[1]


def test_sparse_rows_are_uncovered_by_name(tmp_path):
    workload = read(tmp_path, "std::vector<T> sparse_set = { std::make_tuple(7680, 1, 2560, false, false, 0.95), };")
    assert workload.uncovered_counts() == {"deepbench.sparse": 1}


def test_a_header_without_problems_is_refused_with_an_example(tmp_path):
    with pytest.raises(SpecError, match=r"holds no problem; rows look like std::make_tuple\(1760, 16, 1760"):
        read(tmp_path, "#pragma once\nint f() { return 1; }\n")


def test_options_without_meaning_are_refused(tmp_path):
    with pytest.raises(SpecError, match="--batch has no meaning"):
        read(tmp_path, GEMM, batch=2)
