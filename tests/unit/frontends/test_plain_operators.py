"""Operators of profiles whose cases follow from shapes alone are those that PyTorch dispatches."""

import random
import subprocess
import sys

import pytest
from tests.unit.traces.executed.small_traces import complete, launched, mark, written

torch = pytest.importorskip("torch")
from nearpeak.frontends.torch import plain_operators  # noqa: E402
from nearpeak.frontends.torch.plain_operators import Recorded, plain_cases  # noqa: E402
from nearpeak.frontends.torch.profiled_calls import recorded_calls  # noqa: E402

FLOATS = ("float", "c10::BFloat16", "c10::Half")


def drawn(draw, operator):
    """A record of an operator, now and then with strides, an output, another format or a shape that does not fit."""
    m, n, k, b = (draw.choice((1, 3, 8, 16)) for _ in range(4))
    shapes = {
        "mm": ((m, k), (k, n)), "addmm": (draw.choice(((n,), (m, n), (1, n))), (m, k), (k, n)),
        "bmm": ((b, m, k), (b, k, n)), "baddbmm": (draw.choice(((n,), (b, m, n))), (b, m, k), (b, k, n)),
    }.get(operator)  # fmt: skip
    form = plain_operators._FORMS[operator]
    if shapes is None:
        shapes = ((m, n), draw.choice(((m, n), (n,), (m, 1), ())))[: len(form.operands)]
    kinds, options = [draw.choice(FLOATS)] * len(shapes), [draw.choice(("", "1", "0", "2.5")) for _ in form.options]
    if draw.random() < 0.1:
        kinds[-1] = draw.choice(("double", "long int", "Scalar", ""))
    if draw.random() < 0.1:
        shapes = (*shapes[:-1], tuple(extent + 1 for extent in shapes[-1]))
    strides = ()
    if draw.random() < 0.3:  # the transposed view of a matrix
        strides = tuple(s if len(s) != 2 else (1, s[0]) for s in shapes)
        strides = tuple(s if len(s) == 2 else tuple(torch.empty(s).stride()) if s else () for s in strides)
    more = ((),) * len(options)
    return Recorded(
        f"aten::{operator}", (*shapes, *more), (*kinds, *("Scalar" for _ in options)),
        (*strides, *more) if strides else (),
        ("",) * len(shapes) + tuple(options),
    )  # fmt: skip


@pytest.mark.parametrize("operator", sorted(plain_operators._FORMS))
def test_a_case_without_pytorch_is_that_of_pytorch(operator):
    draw = random.Random(operator)
    rows = [drawn(draw, operator) for _ in range(30)]
    known = [(row, cases) for row in rows if (cases := plain_cases(row)) is not None]
    assert known
    for (row, cases), calls in zip(known, recorded_calls([row for row, _ in known]), strict=True):
        assert not isinstance(calls, str), row
        assert cases == tuple(call.case for call in calls), row


@pytest.mark.parametrize(
    "row",
    [
        Recorded("aten::mm", ((4, 8), (8, 2), (4, 2)), ("float",) * 3),
        Recorded("aten::addmm", ((2,), (4, 8), (8, 2), (), (), (4, 2)), ("float",) * 3 + ("Scalar",) * 2 + ("float",)),
    ],
)
def test_the_tensor_that_takes_a_result_is_no_operand(row):
    (calls,) = recorded_calls([row])
    assert plain_cases(row) == tuple(call.case for call in calls)
    assert plain_cases(row._replace(shapes=(*row.shapes[:-1], (5, 5)))) is None


def test_a_trace_of_such_operators_is_analysed_without_pytorch(tmp_path):
    events = []
    for step in range(4):
        at = step * 1000
        shapes = {"Input Dims": [[512, 512], [512, 512]], "Input type": ["c10::BFloat16"] * 2}
        events += [mark(step, at, 999), complete("cpu_op", "aten::mm", at, 9, **shapes)]
        events += launched("gemm", at + 12, 800, step + 1)
    path = written(tmp_path / "t.json", events)
    code = (
        "import sys; from pathlib import Path; from nearpeak.api.trace_analysis import analyze_trace\n"
        f"report = analyze_trace(Path({str(path)!r}))\n"
        "print(report.executed.operators[0].label, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:1] + done.stdout.split()[-1:] == ["gemm", "False"]
