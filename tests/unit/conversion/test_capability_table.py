"""Capability tables as data: rows against the published text, and malformed tables of users."""

import json

import pytest
from tests.samples import SAMPLES

from nearpeak.conversion.capability_table import read_table, table_of
from nearpeak.errors import SpecError, UnknownNameError

PUBLISHED = SAMPLES.parent / "tuning" / "tensorrt_10_1_onnx_operators.json"
ROWS = {
    "Abs": "fp32 fp16 bf16 int32 int64", "Conv": "fp32 fp16 bf16", "Gemm": "fp32 fp16 bf16", "And": "bool",
    "GroupNormalization": "fp32 fp16 bf16", "InstanceNormalization": "fp32 fp16 bf16", "NonZero": "fp32 fp16",
    "Cast": "fp32 fp16 bf16 int32 int64 uint8 bool", "Concat": "fp32 fp16 bf16 int32 int64 bool",
    "DequantizeLinear": "int8 fp8_e4m3 int4", "GridSample": "fp32 fp16", "Pow": "fp32 fp16 bf16",
    "Gelu": "fp32 fp16 bf16 int8 int32 int64", "TopK": "fp32 fp16 bf16 int32 int64", "Erf": "fp32 fp16 bf16",
    "Unique": None, "QLinearConv": None, "ConvInteger": None, "Det": None, "STFT": None,
}  # fmt: skip
"""20 rows of docs/operators.md of onnx-tensorrt, branch 10.1-GA, read by hand; none: not supported."""
NAMES = {"FP32": "fp32", "FP16": "fp16", "BF16": "bf16", "INT32": "int32", "INT64": "int64", "INF64": "int64",
         "BOOL": "bool", "UINT8": "uint8", "INT8": "int8", "INT4": "int4", "FP8": "fp8_e4m3", "": ""}  # fmt: skip
HEAD = 'engine = "mine"\nversion = "1"\nsource = "a page"\n'
GROUP = '[[group]]\ntypes = ["fp32"]\noperators = ["Relu"]\n'


@pytest.mark.parametrize("operator", ROWS)
def test_rows_are_those_of_the_document(operator):
    table = table_of("tensorrt:10.1")
    if ROWS[operator] is None:
        assert operator in table.denied
        assert operator not in table.formats
    else:
        assert table.formats[operator] == tuple(ROWS[operator].split())


@pytest.mark.skipif(not PUBLISHED.is_file(), reason="no parsed copy of the document")
def test_all_rows_are_those_of_the_parsed_document():
    table, rows = table_of("tensorrt:10.1"), json.loads(PUBLISHED.read_text())["operators"]
    assert table.denied == {name for name, row in rows.items() if not row["supported"]}
    assert set(table.formats) == {name for name, row in rows.items() if row["supported"]}
    assert set(table.conditions) == {name for name, row in rows.items() if row["restriction"]}
    for name, formats in table.formats.items():
        assert set(formats) == {NAMES[kind] for kind in rows[name]["types"]} - {""}


def test_operators_of_later_standards_have_no_row():
    table = table_of("tensorrt:10.1")
    later = {"Attention", "RMSNormalization", "RotaryEmbedding", "Swish", "TensorScatter", "BitCast"}
    assert later.isdisjoint(table.denied | set(table.formats))


def test_conditions_state_no_sentence_of_the_document():
    if not PUBLISHED.is_file():
        pytest.skip("no parsed copy of the document")
    sentences = {row["restriction"] for row in json.loads(PUBLISHED.read_text())["operators"].values()}
    said = {item.says for rows in table_of("tensorrt:10.1").conditions.values() for item in rows}
    assert not said & sentences


@pytest.mark.parametrize(("text", "words"), [
    ("", "lacks engine"),
    (HEAD, "lacks group"),
    (HEAD + GROUP + "[more]\n", "unknown entry 'more'"),
    (HEAD + 'denied = ["Relu"]\n' + GROUP, "Relu is both"),
    (HEAD + GROUP + GROUP, "Relu is in two groups"),
    (HEAD + GROUP + '[[condition]]\noperators = ["Relu"]\nkind = "moon"\nsays = "x"\n', "kind 'moon'"),
    (HEAD + GROUP + '[[condition]]\noperators = ["Relu"]\nkind = "rank"\nsays = "x"\n', "lacks input"),
    (HEAD + GROUP + '[[condition]]\noperators = ["Relu"]\nkind = "words"\n', "does not say what it means"),
    (HEAD + GROUP + '[[condition]]\noperators = ["Gelu"]\nkind = "words"\nsays = "x"\n', "Gelu, which is in no group"),
    (HEAD + GROUP + '[[condition]]\noperators = ["Relu"]\nkind = "ones"\nattribute = 3\nsays = "x"\n', "must be str"),
    (HEAD + "group = 3\n", "group is int"),
    (HEAD + GROUP + '[[typed]]\noperators = ["Relu"]\ntensors = "some"\n', "typed.tensors"),
    ("engine = ", "not TOML"),
    (HEAD + f"last_opset = {'9' * 400}\n" + GROUP, "9999… (400 characters); it must be 1 to 9999"),
    (HEAD + GROUP.replace("fp32", "fp99"), "group.types of Relu names 'fp99', which is no number format"),
    (HEAD + GROUP + '[[condition]]\noperators = ["Relu"]\nkind = "known"\ninput = -5\nsays = "x"\n', "0 to 9999"),
    (HEAD + GROUP + f"[[condition]]\nkind = {'9' * 400}\n", "(400 characters); there is rank"),
    (HEAD + 'typed = ["x"]\n' + GROUP, "it holds a text where a table is right"),
])  # fmt: skip
def test_malformed_tables_are_refused_in_one_line(tmp_path, text, words):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(SpecError) as refusal:
        read_table(path)
    assert words in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


def test_unknown_engines_and_tables_of_other_engines_are_refused(tmp_path):
    with pytest.raises(UnknownNameError, match=r"there is .*tensorrt:10\.1"):
        table_of("tensorrt:11.0")
    with pytest.raises(SpecError, match="is not NAME:VERSION"):
        table_of("tensorrt")
    path = tmp_path / "mine.toml"
    path.write_text(HEAD + GROUP)
    assert table_of("mine:1", path).formats == {"Relu": ("fp32",)}
    with pytest.raises(SpecError, match="is a table of mine:1"):
        table_of("tensorrt:10.1", path)
