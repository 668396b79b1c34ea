"""Functions of users: the names of what they return, of whatever size."""

import importlib
import sys

import numpy as np
import pytest

import nearpeak
from nearpeak.case_tensors.output_shapes import output_names, outputs_of
from nearpeak.case_tensors.user_functions import function_of, place_of, with_named_outputs

NONZERO = nearpeak.case("nonzero", elements=9, found=4, dtype="fp32")
"""Its outputs are as long as the data say."""


def test_the_name_of_a_bare_result_is_found_without_computing_the_case():
    pytest.importorskip("torch")
    case = nearpeak.case("gemm", m=10**6, n=10**6, k=10**6, dtype="bf16")
    result = np.zeros(3)
    assert with_named_outputs(case, lambda inputs, **_: result)({}) == {"y": result}


def test_without_pytorch_a_bare_array_has_its_name_too(monkeypatch):
    case = nearpeak.case("softmax", rows=4, columns=4, dtype="fp32")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert [output_names.__wrapped__(one) for one in (case, NONZERO)] == [("y",), ("y",)]


def test_outputs_that_the_data_decide_are_computed():
    torch = pytest.importorskip("torch")
    (found,) = outputs_of(NONZERO).values()
    assert (found.dtype, tuple(found.shape)) == (torch.int64, (4, 1))


def test_files_of_one_name_are_modules_apart_and_each_is_imported_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    files = [tmp_path / place / "same" / "json.py" for place in ("one", "two")]
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True)
        file.write_text(f"def number():\n    return {number}\n")
    found = [[function_of(f"{file}:number") for _ in range(2)] for file in files]
    assert [one() for one, _ in found] == [0, 1]
    assert [first is second for first, second in found] == [True, True]


def test_what_lies_beside_a_file_does_not_take_the_place_of_other_modules(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("def rows(x, **_):\n    return x['x']\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    function_of(f"{tmp_path / 'json.py'}:rows")
    assert sys.path[-1] == str(tmp_path)


def test_a_name_that_is_nowhere_is_said_with_inputs_and_arguments():
    call = with_named_outputs(NONZERO, lambda inputs, **arguments: inputs["x"] * inputs["factor"])
    with pytest.raises(LookupError, match="nothing is called 'factor'; inputs: x; arguments: elements, found"):
        call({"x": 1.0}, elements=9, found=4)


TABLE = {"fp16": 1}


def test_a_name_that_a_table_of_the_function_lacks_is_no_name_of_an_input():
    call = with_named_outputs(NONZERO, lambda tensors, **given: TABLE["fp32"] * tensors["x"])
    with pytest.raises(KeyError, match="fp32"):
        call({"x": 1.0}, elements=9, found=4)


def test_a_name_that_is_no_argument_is_said_with_those_that_there_are():
    call = with_named_outputs(NONZERO, lambda tensors, **given: given["eps"])
    with pytest.raises(LookupError, match="nothing is called 'eps'"):
        call({"x": 1.0}, elements=9, found=4)


def test_a_module_below_the_folder_that_bears_a_bare_name_is_named_by_its_file(tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    for place in ("below/found_below.py", "found_here.py"):
        (tmp_path / place).write_text("def own(tensors, **_): ...\n")
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path / "below"):
        monkeypatch.syspath_prepend(str(folder))
    below, here = (importlib.import_module(name).own for name in ("found_below", "found_here"))
    assert place_of(below) == "below/found_below.py"
    assert place_of(here) == "found_here"
    assert function_of(f"{place_of(below)}:own").__name__ == "own"


def test_a_function_with_other_parameters_is_told_how_it_is_called():
    case = nearpeak.case("softmax", rows=4, columns=4, dtype="fp32")
    call = with_named_outputs(case, lambda tensor: tensor)
    with pytest.raises(TypeError, match=r"f\(tensors, \*\*arguments\).*--skeleton"):
        call({"input": None}, rows=4, columns=4)

    def inner(_tensors, **_arguments):
        raise TypeError("its own")

    with pytest.raises(TypeError, match=r"^its own$"):
        with_named_outputs(case, inner)({"input": None}, rows=4)
