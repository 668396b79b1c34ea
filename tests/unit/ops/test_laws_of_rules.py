"""Laws that the rules of work of all operators keep: nothing costs nothing, columns equal single cases."""

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.golden.directed import directed

from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.ops import OPS, case, work_of

PHASES = [(op, phase) for op in OPS for phase in OPS[op].signatures]
EXTENTS = st.sampled_from((0, 0, 1, 2, 3, 7, 64))
READ_TO_FIND_NOTHING = ("masked_select", "non_max_suppression", "nonzero", "unique")
"""How much these write is data: they read everything to find that it is nothing."""
WRITTEN_ELSEWHERE = ("collective", "transfer")
"""What they write may lie on another device."""
FIELDS = ("special_count", "read_bytes", "write_bytes")


@cache
def lines(op, phase):
    """Arguments of the directed cases, defaults written out, one per combination of attributes."""
    found = {}
    for line in directed(op):
        if phase == "backward" and line.get("_forward_only"):
            continue
        known = OPS[op].signatures[phase].names()
        given_ = {k: v for k, v in line.items() if k in known} | (
            line.get("_backward", {}) if phase != "forward" else {}
        )
        made = OPS[op].case(phase, **{"dtype": "fp32", **given_})
        found.setdefault((made.dtypes, made.attributes), dict(made.axes))
    return [(dict(dtypes), dict(attributes), axes) for (dtypes, attributes), axes in found.items()]


def counts(work):
    """All counts of `work`, those of FLOP together."""
    return {field: getattr(work, field) for field in FIELDS} | {"flop": sum(work.flop.values()), **work.comm_bytes}


@pytest.mark.parametrize(("op", "phase"), PHASES)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_count_is_negative_and_nothing_written_costs_nothing(op, phase, data):
    dtypes, attributes, _ = data.draw(st.sampled_from(lines(op, phase)))
    signature = OPS[op].signatures[phase]
    free = [axis for axis in signature.axes if axis not in signature.same and axis != "indices"]
    optional = {axis for axis in free if axis in signature.defaults and data.draw(st.booleans())}
    axes = {axis: data.draw(EXTENTS) for axis in free if axis not in optional}
    try:
        work = work_of(case(op, phase, **axes, **dtypes, **attributes))
    except NearpeakError:
        return
    found = counts(work)
    assert min(*found.values(), *work.flop.values(), *work.recompute_flop.values(), 0) == 0, found
    if found["write_bytes"] == 0 and op not in (*READ_TO_FIND_NOTHING, *WRITTEN_ELSEWHERE):
        assert set(found.values()) == {0}, found


@pytest.mark.parametrize(("op", "phase"), PHASES)
def test_columns_with_zeros_in_optional_axes_equal_single_cases(op, phase):
    signature = OPS[op].signatures[phase]
    for dtypes, attributes, axes in lines(op, phase):
        formats = {name: dtype_of(value) for name, value in dtypes.items()}

        def work(given_, formats=formats, attributes=attributes):
            return OPS[op].rule(phase)(**given_, **formats, **attributes)

        for axis in signature.defaults.keys() & set(axes):
            alone = {}
            for extent in dict.fromkeys((0, axes[axis], 1)):
                try:
                    alone[extent] = counts(work({**axes, axis: extent}))
                except SpecError:
                    continue
            column = counts(work({**axes, axis: np.array(list(alone))}))
            for index, (extent, wanted) in enumerate(alone.items()):
                row = {name: int(np.broadcast_to(value, len(alone))[index]) for name, value in column.items()}
                assert row == wanted, (axis, extent)


@pytest.mark.parametrize("function", ["add", "mul", "lerp", "addcmul", "where", "prelu"])
def test_rows_of_a_gradient_table_ask_for_their_own_operands(function):
    rows = np.array([(b, c) for b in (0, 4, 2**30) for c in (0, 4, 2**30)])
    operands = {"b": rows[:, 0]} | ({"c": rows[:, 1]} if function in ("lerp", "addcmul", "where") else {})
    formats = {"dtype": dtype_of("bf16")} | ({"a_dtype": dtype_of("bool")} if function == "where" else {})
    rule = OPS["elementwise"].rule("backward")
    together = counts(rule(elements=2**30, function=function, **formats, **operands))
    for index in range(len(rows)):
        single = {name: int(column[index]) for name, column in operands.items()}
        alone = counts(rule(elements=2**30, function=function, **formats, **single))
        assert {name: int(np.broadcast_to(value, len(rows))[index]) for name, value in together.items()} == alone
