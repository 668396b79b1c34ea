"""Legal sets: enumeration against brute force, constraints, nearest untried neighbours, one-line errors."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearpeak.core.tuning.space import Parameter, TuningSpace, settings_of, settings_text
from nearpeak.errors import SpecError
from nearpeak.tuning.legal_set import combination_count, legal_set

A, B, C = (
    Parameter(name="a", settings=(1, 2, 4, 8)),
    Parameter(name="b", settings=(0, 3)),
    Parameter(name="order", settings=("row", "column")),
)


def space_of(*constraints, default=None, listed=()):
    return TuningSpace(name="s", parameters=(A, B, C), constraints=constraints, default=default, listed=listed)


CONSTRAINTS = {
    "a * b <= 12": lambda a, b, order, n: a * b <= 12,
    "order == 'row' or a > 2": lambda a, b, order, n: order == "row" or a > 2,
    "not (a == 8 and b == 3)": lambda a, b, order, n: not (a == 8 and b == 3),
    "a in (1, 2, n)": lambda a, b, order, n: a in (1, 2, n),
    "n % a == 0": lambda a, b, order, n: n % a == 0,
}


@settings(max_examples=15, deadline=None)
@given(st.sets(st.sampled_from(sorted(CONSTRAINTS))), st.sampled_from([4, 6]))
def test_the_legal_set_is_what_brute_force_over_all_combinations_leaves(texts, n):
    wanted = [one for one in product(A.settings, B.settings, C.settings) if all(CONSTRAINTS[t](*one, n) for t in texts)]
    legal = legal_set(space_of(*texts), {"n": n})
    assert [legal.configuration(index) for index in range(len(legal))] == wanted
    assert all(legal.index_of(one) == index for index, one in enumerate(wanted))


def test_listed_configurations_alone_exist_and_constraints_hold_for_them_too():
    listed = ((1, 0, "row"), (8, 3, "column"), (2, 3, "row"), (1, 0, "row"))
    assert len(legal_set(space_of(listed=listed))) == 3
    legal = legal_set(space_of("a < 8", listed=listed))
    assert {legal.configuration(index) for index in range(len(legal))} == {(1, 0, "row"), (2, 3, "row")}
    assert combination_count(space_of()) == 16


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("a > 9",), "s: no configuration is legal; constraint 'a > 9' never holds"),
        (("a > 4", "b > 0", "a * b < 3"), "no configuration is legal; its constraints exclude each other"),
        (("width < 3",), "constraint 'width < 3': width is neither a parameter nor an axis of the case"),
        (("__import__('os')",), "neither a parameter nor an axis|not a constraint"),
        (("a + ",), "is not an expression"),
        (("order + 1 > 2",), "is not a constraint over numbers and texts"),
    ],
)
def test_what_leaves_nothing_or_is_no_constraint_is_one_line(texts, message):
    with pytest.raises(SpecError, match=message) as raised:
        legal_set(space_of(*texts))
    assert "\n" not in str(raised.value)


def test_the_nearest_untried_one_differs_in_fewest_parameters():
    legal, seen = legal_set(space_of("a * b <= 12")), np.zeros(14, dtype=bool)
    assert legal.configuration(legal.nearest_unseen((2, 1, 0), seen)) == (4, 3, "row")
    assert legal.configuration(legal.nearest_unseen((3, 1, 0), seen)) in {(4, 3, "row"), (8, 0, "row")}
    seen[:] = True
    seen[5] = False
    assert legal.nearest_unseen((0, 0, 0), seen) == 5


def test_configurations_survive_their_words():
    named = {"a": 8, "rate": 0.5, "order": "row", "padded": True, "off": False}
    assert settings_of(settings_text(named), "w") == named
    for text in ("a", "a=1,a=2", "=3", "a="):
        with pytest.raises(SpecError, match="NAME=VALUE"):
            settings_of(text, "--default")


def test_a_default_with_a_value_that_does_not_exist_is_refused():
    with pytest.raises(SpecError, match="w: a = 3 is none of its values: 1, 2, 4, 8"):
        space_of().configuration_of({"a": 3, "b": 0, "order": "row"}, "w")
    with pytest.raises(SpecError, match="w: order is missing"):
        space_of().configuration_of({"a": 1, "b": 0}, "w")
