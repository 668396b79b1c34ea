"""Hand-derived work: every row of tests/golden/work/<op>.csv equals the rule, and its arithmetic, to the integer."""

import ast
import csv
import json
import operator
from pathlib import Path

import pytest

from nearpeak.ops import OPS, case, work_of

ROWS = [row for file in sorted(Path(__file__).parent.glob("work/*.csv")) for row in csv.DictReader(file.open())]
OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def evaluated(node):
    """The value of an expression of whole numbers, + - * // and parentheses; anything else is refused."""
    match node:
        case ast.Expression(body=body):
            return evaluated(body)
        case ast.Constant(value=int() as value):
            return value
        case ast.BinOp(left=left, op=operation, right=right):
            return OPERATIONS[type(operation)](evaluated(left), evaluated(right))
    raise ValueError(f"not arithmetic on whole numbers: {ast.dump(node)}")


def counted(work, kind):
    """The figure of `work` that a row's `kind` names."""
    name, _, unit = kind.partition(":")
    if name == "comm":
        return work.comm_bytes[unit]
    if name in ("flop", "recompute"):
        return (work.flop if name == "flop" else work.recompute_flop)[unit]
    return {"special": work.special_count, "read_bytes": work.read_bytes, "write_bytes": work.write_bytes}[name]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['op']}-{row['phase']}-{row['kind']}-{row['value']}")
def test_rule_and_arithmetic_give_the_written_value(row):
    work = work_of(case(row["op"], row["phase"], **json.loads(row["arguments"])))
    assert counted(work, row["kind"]) == int(row["value"])
    assert evaluated(ast.parse(row["arithmetic"], mode="eval")) == int(row["value"])


def test_every_rule_has_a_golden_row():
    rules = {(name, phase) for name in OPS for phase in OPS[name].signatures}
    assert rules == {(row["op"], row["phase"]) for row in ROWS}
