"""Definition and workload files: what is read, written back and refused."""

import json
from pathlib import Path

import pytest

from nearpeak.errors import SpecError
from nearpeak.exchange.axis_expression import evaluate
from nearpeak.exchange.kernel_definition import definition_text, parse_definition
from nearpeak.exchange.workload_lines import check_inputs, parse_workloads, workload_text

FOLDER = Path(__file__).parents[2] / "fixtures" / "definitions"
TEXT = (FOLDER / "scaled_rows.json").read_text()
LINES = (FOLDER / "scaled_rows.jsonl").read_text()


def changed(**entries):
    return json.dumps({**json.loads(TEXT), **entries})


def test_definition_is_written_back_as_it_was_with_entries_that_nobody_knows():
    text = changed(hf_id="x/y", note={"of": "somebody"})
    assert json.loads(definition_text(parse_definition(text, "d.json"))) == json.loads(text)


def test_axes_are_resolved_in_the_files_order():
    definition = parse_definition(TEXT, "d.json")
    assert definition.resolved({"m": 8}, "w") == {"m": 8, "k": 64, "n": 32, "pairs": 16}
    assert definition.outputs["y"].extents(definition.resolved({"m": 8}, "w")) == (8, 16)


def test_shapes_take_axis_names_literals_none_and_scalars():
    inputs = {name: {"shape": shape, "dtype": "float16"} for name, shape in
              (("a", ["m", "3"]), ("w", []), ("scale", None))}  # fmt: skip
    definition = parse_definition(changed(inputs=inputs), "d.json")
    axes = definition.resolved({"m": 4}, "w")
    assert [spec.shape for spec in definition.inputs.values()] == [("m", "3"), (), None]
    assert definition.inputs["a"].extents(axes) == (4, 3)


REFUSED = [
    ({"reference": "x = 1"}, "has no function run"),
    ({"reference": "def run(w, a, scale): ..."}, "run takes w, a, scale, the inputs are a, w, scale"),
    ({"reference": "def run(:"}, "reference is not Python"),
    ({"axes": {"m": {"type": "some"}}}, "axis 'm' has type 'some'; it must be const, var or expr"),
    ({"axes": {"m": {"type": "const"}}}, "is const and needs 'value'"),
    ({"axes": {"m": {"type": "const", "value": -1}}}, "must be a whole number"),
    ({"outputs": {"y": {"shape": ["m*2"], "dtype": "float32"}}}, "shape entry 'm[*]2' is neither an axis nor a number"),
    ({"outputs": {"y": {"shape": ["m"], "dtype": "float31"}}}, "dtype 'float31' is not known"),
    ({"outputs": {"a": {"shape": ["m"], "dtype": "float32"}}}, "input 'a' has the same name as an output"),
    ({"outputs": {}}, "at least one"),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "message"), REFUSED)
def test_malformed_definition_is_refused_in_one_line_that_names_the_place(entries, message):
    with pytest.raises(SpecError, match=message) as caught:
        parse_definition(changed(**entries), "d.json")
    assert str(caught.value).startswith("d.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["name", "axes", "inputs", "outputs", "reference"])
def test_definition_without_a_required_entry_is_refused_by_its_name(key):
    data = json.loads(TEXT)
    del data[key]
    with pytest.raises(SpecError, match=f"entry '{key}' is missing"):
        parse_definition(json.dumps(data), "d.json")


@pytest.mark.parametrize(
    ("axes", "message"),
    [({}, "gives axes none; scaled_rows has the variable axes m"), ({"m": 8, "k": 2}, "gives axes m=8, k=2"),
     ({"m": 6}, "constraint 'm % 4 == 0' of scaled_rows does not hold")],
)  # fmt: skip
def test_extents_that_do_not_fit_are_refused(axes, message):
    with pytest.raises(SpecError, match=message):
        parse_definition(TEXT, "d.json").resolved(axes, "w")


@pytest.mark.parametrize(
    ("text", "value"),
    [("a + 2 * b", 17), ("-a % b", 4), ("a ** 2 // b", 1), ("b / 7 * a", 3), ("1 < a <= b", True), ("a != 3", False)],
)
def test_expressions_follow_python(text, value):
    assert evaluate(text, {"a": 3, "b": 7}) == value


@pytest.mark.parametrize(
    "text",
    ["a(3)", "__import__('os')", "a.b", "'x'", "1.5", "a and b", "c", "a / 2", "a // 0", "9**64**64", "a[0]", "("],
)
def test_what_is_no_whole_number_over_axes_is_refused(text):
    with pytest.raises(SpecError, match="expression"):
        evaluate(text, {"a": 3, "b": 7})


def test_workloads_are_read_in_both_forms_and_written_in_either():
    lines = parse_workloads(LINES, "w.jsonl")
    assert [(line.uuid, line.axes["m"], line.definition) for line in lines] == [
        ("small", 8, ""), ("large", 4096, "scaled_rows")]  # fmt: skip
    for flavour in ("sol", "flashinfer"):
        text = "".join(workload_text(line, "scaled_rows", flavour) for line in lines)
        assert [line.record for line in parse_workloads(text, "w")] == [line.record for line in lines]
    assert "solution" not in workload_text(lines[1], "scaled_rows", "sol")


BAD_LINES = [
    ('{"uuid": "a", "axes": {"m": 8}}', "workload needs 'inputs'"),
    ('{"uuid": "a", "axes": {"m": 8.5}, "inputs": {}}', "axis 'm' is 8.5"),
    ('{"uuid": "a", "axes": {}, "inputs": {"x": {"type": "zeros"}}}', "must be one of random, scalar, safetensors"),
    ('{"uuid": "a", "axes": {}, "inputs": {"x": {"type": "safetensors", "path": "x"}}}', "needs 'tensor_key'"),
    ('{"uuid": "a", "axes": {}, "inputs": {"x": {"type": "custom"}, "y": {"type": "random"}}}', "write all or none"),
    ("[1]", "line 1: is not an object"),
    ("{", "line 1: not JSON"),
    ("\n", "holds no workload"),
    ('{"uuid": "a", "axes": {}, "inputs": {}}\n' * 2, "uuid 'a' occurs twice"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD_LINES)
def test_malformed_workload_is_refused_with_file_and_line(text, message):
    with pytest.raises(SpecError, match=message) as caught:
        parse_workloads(text, "w.jsonl")
    assert str(caught.value).startswith("w.jsonl")


def test_workload_of_other_inputs_is_refused():
    line = parse_workloads('{"uuid": "a", "axes": {"m": 8}, "inputs": {"b": {"type": "random"}}}', "w")[0]
    with pytest.raises(SpecError, match="makes the inputs b; scaled_rows has a, w, scale"):
        check_inputs(line, parse_definition(TEXT, "d.json"), "w")
