"""Records: written and read with the same types, older versions migrated, misfits refused with their place."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pytest

from nearpeak.core.records.converter import Converter
from nearpeak.core.records.record_codec import Codec, Schema, Shape
from nearpeak.errors import SpecError
from nearpeak.store.rows.record_columns import Columns


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circle:
    radius: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    side: int
    tilted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    name: str
    shapes: tuple[Circle | Square, ...]
    colour: Colour = Colour.RED
    mode: Literal["fill", "line"] = "fill"
    span: tuple[str, int, int] = ("", 0, 0)
    pairs: tuple[tuple[str, str], ...] = ()
    by_name: Mapping[str, Square | None] = field(default_factory=dict)
    value: str | int | float | bool | None = None
    more: Any = None


DRAWING = Drawing(
    name="d", shapes=(Circle(radius=math.inf), Square(side=2**70, tilted=True)), mode="line", span=("a", 1, 2**60),
    pairs=(("b", "1"), ("a", "2")), by_name={"x": Square(side=1), "y": None}, value=True,
)  # fmt: skip


@pytest.mark.parametrize("codec", [Codec(), Codec(strict=True, pairs_as_objects=True)])
def test_every_type_comes_back_equal_through_json(codec):
    text = json.dumps(codec.plain(DRAWING), allow_nan=False)
    again = codec.value(json.loads(text), Drawing, "here")
    assert again == DRAWING
    assert (type(again.colour), again.value) == (Colour, True)


def test_numbers_that_json_lacks_come_back_and_whole_numbers_stay_exact():
    codec = Codec()
    read = codec.value(json.loads(json.dumps(codec.plain((math.nan, -math.inf, 1.0), tuple[float, ...]))),
                       tuple[float, ...], "here")  # fmt: skip
    assert math.isnan(read[0])
    assert read[1:] == (-math.inf, 1.0)
    assert [type(one) for one in codec.value([1, True, 1.5, "x"], tuple[int | bool | float | str, ...], "here")] == [
        int, bool, float, str
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "here.name: is a whole number; must be a text"),
        ({"shapes": [{"side": 1}, {"side": 1.5}]}, r"here.shapes\[1\].side: is a number; must be a whole number"),
        ({"shapes": [{"height": 1}]}, r"here.shapes\[0\]: is an object; must be Circle or Square"),
        ({"colour": "blue"}, "here.colour: is 'blue'; must be one of red"),
        ({"mode": None}, "here.mode: is None; must be one of fill, line"),
        ({"span": ["a", 1]}, "here.span: is a list; must be a list of 3"),
        ({"by_name": {"x": {"side": "1"}}}, "here.by_name.x.side: is a text"),
        ({"unknown": 1}, "here: 'unknown' is not a field"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(change, message):
    codec = Codec(strict=True)
    with pytest.raises(SpecError, match=message):
        codec.value(codec.plain(DRAWING) | change, Drawing, "here")


def test_a_shape_renames_leaves_out_and_makes_rows():
    codec = Codec(
        types={Colour: Converter(lambda one: one.value.upper(), lambda raw: Colour(raw.lower()))},
        shapes={
            Drawing: Shape(names={"name": "called"}, brief=("mode", "span"), omitted={"more": 7}, required=("pairs",)),
            Square: Shape(as_row=True, brief=("tilted",)),
        },
    )
    record = codec.plain(Drawing(name="n", shapes=(), by_name={"a": Square(side=3)}))
    assert (record["called"], record["colour"], record["by_name"]) == ("n", "RED", {"a": [3]})
    assert not {"name", "mode", "span", "more"} & set(record)
    assert codec.value(record, Drawing, "here").more == 7
    del record["pairs"]
    with pytest.raises(SpecError, match="here: has no 'pairs'"):
        codec.value(record, Drawing, "here")


def test_an_older_version_goes_through_every_migration():
    schema = Schema(kind="k", version=3, title="a k", advice="write one", migrations={
        1: lambda raw: {"time_s": raw["time_ms"] / 1e3}, 2: lambda raw: {**raw, "note": ""},
    })  # fmt: skip
    assert schema.current({"kind": "k", "schema_version": 1, "time_ms": 2}, "f") == {"time_s": 0.002, "note": ""}
    assert schema.current({**schema.head(), "note": "n"}, "f") == {"note": "n"}
    for version in (0, 4, True, "1", None):
        with pytest.raises(SpecError, match=r"f: has schema version .*; this nearpeak reads version 3; write one"):
            schema.current({"kind": "k", "schema_version": version}, "f")
    with pytest.raises(SpecError, match="f: not a k: its kind is 'x'; write one"):
        schema.current({"kind": "x"}, "f")


def test_columns_of_a_table_hold_nested_values_as_text():
    columns = Columns(Drawing, {"name": "title"}, texts=("shapes", "pairs"), omitted=("by_name", "more"))
    row = columns.row(DRAWING)
    assert (row["title"], row["pairs"]) == ("d", '[["b","1"],["a","2"]]')
    again = columns.value(row, by_name=DRAWING.by_name)
    assert again == DRAWING
