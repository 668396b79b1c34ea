"""Files of spaces: TOML, T1 JSON and Triton's Config lists, and one line for each fault."""

import json

import pytest

from nearpeak.api.case_words import case_of
from nearpeak.errors import SpecError
from nearpeak.tuning.legal_set import legal_set
from nearpeak.tuning.space_file import read_space_file

TOML = """
name = "blocks"
function = "kernels.py:product"
case = "gemm m=64 n=64 k=64 dtype=fp32"
check = ["gemm m=8 n=8 k=8 dtype=fp32"]
constraints = ["block * width <= m * 2"]
[parameters]
block = [8, 16, 32]
width = [1, 4, 8]
[default]
block = 8
width = 4
[bound]
flop = "2 * m * n * k"
unit = "vector.fp32"
"""


def read(tmp_path, text, name="s.toml"):
    path = tmp_path / name
    path.write_text(text)
    return read_space_file(path, lambda words: case_of(words, "case"))


def test_a_toml_file_states_space_case_checks_and_bound(tmp_path):
    (tmp_path / "kernels.py").write_text("")
    file = read(tmp_path, TOML)
    assert file.function.endswith("kernels.py:product")
    assert file.space.default == (8, 4)
    assert (file.case.op, len(file.checks), file.work.unit) == ("gemm", 1, "vector.fp32")
    assert len(legal_set(file.space, {"m": 64})) == 8


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "blocks"', 'title = "blocks"', "no key title; there are name"),
        ("block = [8, 16, 32]", "block = 8", "block is 8; a list of"),
        ("block = [8, 16, 32]", "block = []", "parameter block: has no values"),
        ("block = [8, 16, 32]", "block = [8, 8]", "states a value twice"),
        ("block = 8", "block = 9", "default: block = 9 is none of its values"),
        ("width = 4\n", "", "default: width is missing"),
        ('unit = "vector.fp32"', "", "flop needs the unit"),
        ("m * 2", "m *", "is not an expression"),
        ("gemm m=8", "gemm m=x", "gemm"),
        ("[parameters]", "[parameters", "TOML|cannot be read|Expected"),
        ('function = "kernels.py:product"', 'evaluate = "kernels.py:product"', "evaluate and objectives"),
        ("[8, 16, 32]", f"[8, {'9' * 400}]", r"parameter block: 9{40}… \(400 characters\) is no number below 2\^63"),
        ("[8, 16, 32]", "[8.0, nan]", "parameter block: nan is no number"),
        ("[8, 16, 32]", "[1, true]", "states a value twice"),
        ("[8, 16, 32]", str(list(range(40_000))), "has 40,000 values; at most 32,767"),
        ("[8, 16, 32]", f"[8, {'9' * 5000}]", "not TOML: a number has more than 4300 digits"),
        ('name = "blocks"', r'name = "a\nb"', "name is .*; a text of one line is right"),
        ("block * width", "(" * 3000 + "block", "s.toml: constraints: .*is not an expression"),
    ],
)
def test_faults_of_a_toml_file_are_one_line_that_names_them(tmp_path, old, new, message):
    assert old in TOML
    with pytest.raises(SpecError, match=message) as raised:
        read(tmp_path, TOML.replace(old, new, 1))
    assert "\n" not in str(raised.value)


def test_a_t1_file_states_parameters_and_conditions(tmp_path):
    data = {
        "KernelSpecification": {"KernelName": "conv"},
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": "bx", "Type": "int", "Values": "[16, 32, 64]"},
                {"Name": "ty", "Type": "int", "Values": [1, 2]},
            ],
            "Conditions": [{"Expression": "bx * ty <= 64", "Parameters": ["bx", "ty"]}],
        },
    }  # fmt: skip
    space = read(tmp_path, json.dumps(data), "t1.json").space
    assert space.name == "conv"
    assert len(legal_set(space)) == 5


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"Name": "a"}, r"t1.json: TuningParameters\[0\]: cannot be read as parameter: it lacks 'Values'"),
        ("abc", r"TuningParameters\[0\]: cannot be read as parameter: it holds a text where a table is right"),
        ({"Name": "a", "Values": f"[{'9' * 400}]"}, r"TuningParameters\[0\]: parameter a: 9{40}…"),
    ],
)
def test_faults_of_a_t1_file_name_the_parameter(tmp_path, row, message):
    with pytest.raises(SpecError, match=message):
        read(tmp_path, json.dumps({"ConfigurationSpace": {"TuningParameters": [row]}}), "t1.json")


def test_configs_of_triton_are_listed_as_they_stand(tmp_path):
    text = """
import triton
raise RuntimeError("never imported")
configs = [triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
           triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=4, num_warps=4)]
"""
    space = read(tmp_path, text, "kernel.py").space
    assert space.listed == ((128, 64, 3, 8), (64, 64, 4, 4))
    assert [parameter.name for parameter in space.parameters] == ["BLOCK_M", "BLOCK_N", "num_stages", "num_warps"]
    with pytest.raises(SpecError, match="not literal in line 4"):
        read(tmp_path, text.replace("64}, num_stages=3", "SIZE}, num_stages=3"), "kernel.py")
    with pytest.raises(SpecError, match="num_warps is stated in some Config calls only"):
        read(tmp_path, text.replace(", num_warps=4", ""), "kernel.py")
    with pytest.raises(SpecError, match="has no Config"):
        read(tmp_path, "x = 1", "kernel.py")
