"""Terms of times over power modes: planted ones come back, unidentified ones are refused, clocks scale them."""

import numpy as np
import pytest
from tests.sampling import sampled

from nearpeak.core.edge.board_mode import BoardMode
from nearpeak.errors import SpecError
from nearpeak.systems.edge.mode_features import inverse_rates
from nearpeak.systems.edge.mode_selection import informative_modes
from nearpeak.systems.edge.mode_times import fitted_terms, non_negative
from nearpeak.systems.edge.mode_transfer import reference_prior, transferred


def grid():
    clocks = [(f, sm, memory, host) for f in (0.4, 0.7, 1.0) for sm in (4, 8) for memory in (0.67, 1.0)
              for host in (0.5, 1.0)]  # fmt: skip
    return [
        BoardMode(name=str(place), target="t", clock_hz=f * 1e9, sm_count=sm, bandwidth_bytes_per_s=memory * 1e11,
                  budget_w=None, host_clock_hz=host * 2e9)
        for place, (f, sm, memory, host) in enumerate(clocks)
    ]  # fmt: skip


PLANTED = np.array([3e-3, 2e-3, 1e-3])


@pytest.mark.parametrize("seed", sampled(range(10), 4))
def test_planted_terms_are_recovered_to_two_percent_at_one_percent_noise(seed):
    rates = inverse_rates(grid())
    errors = []
    for draw in range(20):
        noise = np.random.default_rng((seed, draw)).normal(1, 0.01, len(rates))
        errors.append(fitted_terms(rates, (rates @ PLANTED) * noise) / PLANTED - 1)
    assert np.abs(np.mean(errors, 0)).max() < 0.02
    assert np.sqrt(np.mean(np.square(errors))) < 0.05


def test_modes_with_one_ratio_of_clocks_are_refused():
    rates = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    with pytest.raises(SpecError, match="one ratio"):
        fitted_terms(rates, rates @ [1.0, 1.0])


def test_a_prior_answers_where_one_mode_was_measured():
    rates = inverse_rates(grid())
    terms = fitted_terms(rates[:1], rates[:1] @ PLANTED, prior=PLANTED, strength=0.1)
    assert terms == pytest.approx(PLANTED, rel=1e-6)


def test_twice_the_clocks_halve_a_time_without_constant_term():
    rates = inverse_rates(grid())
    assert (rates / 2) @ PLANTED == pytest.approx((rates @ PLANTED) / 2, rel=1e-15)


@pytest.mark.parametrize("seed", sampled(range(20), 7))
def test_non_negative_solution_is_no_worse_than_any_other(seed):
    draw = np.random.default_rng(seed)
    rows, wanted = draw.normal(size=(8, 3)), draw.normal(size=8)
    found = non_negative(rows, wanted)
    assert (found >= 0).all()
    least = np.linalg.norm(rows @ found - wanted)
    for _ in range(200):
        other = np.maximum(found + draw.normal(scale=0.3, size=3), 0)
        assert least <= np.linalg.norm(rows @ other - wanted) + 1e-12


def test_transfer_is_exact_where_the_ratio_follows_no_clock():
    rates = inverse_rates(grid())
    prior = rates @ PLANTED
    found = transferred(prior, rates, {0: 1.7 * prior[0], 9: 1.7 * prior[9], 23: 1.7 * prior[23]}, 1.5)
    assert found.values == pytest.approx(1.7 * prior, rel=1e-9)
    assert (found.low <= found.values).all()
    assert (found.values <= found.high).all()


def test_without_measurement_the_interval_is_that_of_the_prior():
    rates = inverse_rates(grid())
    found = transferred(rates @ PLANTED, rates, {}, 1.5)
    assert found.high / found.values == pytest.approx(np.full(24, 1.5))


def test_more_measured_modes_do_not_worsen_the_transfer_of_another_shape():
    rates = inverse_rates(grid())
    prior, true = rates @ PLANTED, rates @ [1e-3, 4e-3, 1e-3]
    errors = []
    for count in (1, 4, 10):
        picks = informative_modes(rates, count=count)
        found = transferred(prior, rates, {place: true[place] for place in picks}, 1.5)
        errors.append(np.abs(np.log(found.values / true)).mean())
    assert errors[2] < errors[0]
    assert errors[2] < 0.12


def test_references_count_relative_to_their_own_mean():
    shape = reference_prior([{0: 1.0, 1: 2.0, 2: 4.0}, {0: 10.0, 1: 30.0}], 3)
    assert shape[0] == 1.0
    assert 2.0 < shape[1] < 3.0


def test_first_modes_to_measure_are_the_corners_and_none_twice():
    rates = inverse_rates(grid())
    picks = informative_modes(rates, count=30)
    assert sorted(picks) == list(range(24))
    assert {picks[0], picks[1]} == {int(np.argmax(rates.prod(1))), int(np.argmin(rates.prod(1)))}
    assert not set(informative_modes(rates, known=[0, 1], count=5)) & {0, 1}
