"""Choice of a power mode: the Pareto set of time and power, the best within limits, the second, energy of a period."""

from collections.abc import Sequence


def pareto_places(times_s: Sequence[float], powers_w: Sequence[float]) -> set[int]:
    """Return the places that no other beats in time or power without losing in the other.

    >>> sorted(pareto_places([1.0, 2.0, 3.0, 3.0], [9.0, 5.0, 6.0, 5.0]))
    [0, 1]
    """
    order = sorted(range(len(times_s)), key=lambda place: (times_s[place], powers_w[place]))
    front, least_w, last = set[int](), float("inf"), (float("nan"), float("nan"))
    for place in order:
        point = times_s[place], powers_w[place]
        if powers_w[place] < least_w or point == last:
            front.add(place)
            least_w, last = powers_w[place], point
    return front


def ranked(values: Sequence[float | None], allowed: Sequence[bool]) -> list[int]:
    """Return the allowed places by ascending value; those without one are left out.

    >>> ranked([3.0, None, 1.0, 2.0], [True, True, False, True])
    [3, 0]
    """
    known = {place: value for place, value in enumerate(values) if value is not None and allowed[place]}
    return sorted(known, key=lambda place: known[place])


def energy_of_period(time_s: float, power_w: float, idle_w: float = 0.0, period_s: float = 0.0) -> float:
    """Return the energy of one run, and of the rest of its period at the board's power at rest.

    >>> round(energy_of_period(0.010, 20.0, idle_w=5.0, period_s=0.030), 6)
    0.3
    """
    return time_s * power_w + max(period_s - time_s, 0.0) * idle_w


def switching_idle_w(
    times_s: Sequence[float], powers_w: Sequence[float], period_s: float, best: int, idle_w: float
) -> float | None:
    """Return the power at rest nearest to `idle_w` at which another mode than `best` needs least energy; none for none.

    Energies of a period are straight lines over the power at rest, t·P + (T − t)·rest.

    >>> round(switching_idle_w([0.01, 0.02], [20.0, 12.0], 0.1, 0, 8.0), 6)
    4.0
    """
    crossings = []
    for place, (time_s, power_w) in enumerate(zip(times_s, powers_w, strict=True)):
        gap_s = time_s - times_s[best]
        if place == best or not gap_s or max(time_s, times_s[best]) > period_s:
            continue
        rest_w = (time_s * power_w - times_s[best] * powers_w[best]) / gap_s
        if rest_w >= 0:
            crossings.append(rest_w)
    return min(crossings, key=lambda rest_w: abs(rest_w - idle_w), default=None)
