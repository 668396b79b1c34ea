"""Attribution: what series that changed share, and how likely that is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from nearpeak.errors import SpecError
from nearpeak.judgement.change_causes import co_moved, hypergeometric_tail


@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_the_chance_of_coming_together_is_the_hypergeometric_tail(total, marked, drawn, least):
    marked, drawn = min(marked, total), min(drawn, total)
    assert hypergeometric_tail(total, marked, drawn, least) == pytest.approx(
        float(hypergeom.sf(least - 1, total, marked, drawn)), abs=1e-9
    )


def test_what_shifted_series_share_is_ranked_and_what_all_share_is_not_told():
    axes = {f"s{i}": {"host": f"h{i % 4}", "model": "h100", "driver": "570" if i % 2 else "550"} for i in range(40)}
    found = co_moved(axes, [f"s{i}" for i in range(1, 40, 4)])
    assert [(one.axis, one.value) for one in found] == [("host", "h1"), ("driver", "570")]
    assert co_moved(axes, []) == ()
    with pytest.raises(SpecError, match="s99"):
        co_moved(axes, ["s99"])
