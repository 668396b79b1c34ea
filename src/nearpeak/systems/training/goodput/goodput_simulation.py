"""Monte Carlo of a training run under failures: shares of its time under elastic policies, all runs at once."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearpeak.core.systems.goodput import SHARES
from nearpeak.errors import SpecError
from nearpeak.systems.training.goodput.failure_model import CheckpointCost, ElasticPolicy, FailureModel, SpotMarket
from nearpeak.systems.training.goodput.spot_price import HOUR_S, PricePaths, price_paths

MOST_FAILURES = 20_000
"""Expected failures of a run above which it is not simulated."""
Floats = npt.NDArray[np.float64]
_NONE = np.inf


class SimulatedShares(NamedTuple):
    """What became of the time of each simulated run."""

    seconds: dict[str, Floats]
    """Seconds of each share."""
    failures: Floats
    """Failures."""
    paid_hours: Floats
    """Price paid, in hours on demand of the whole job."""


class _Runs:
    """State of all runs: time, missing nodes, work since the last durable checkpoint."""

    def __init__(
        self, failures: FailureModel, save: CheckpointCost, restart_s: float, interval_s: float, policy: ElasticPolicy,
        market: SpotMarket | None, horizon_s: float, run_count: int, random: np.random.Generator,
    ) -> None:  # fmt: skip
        self.failures, self.save, self.restart_s, self.interval_s = failures, save, restart_s, interval_s
        self.policy, self.market, self.horizon_s, self.random = policy, market, horizon_s, random
        self.now, self.pending, self.unsaved = np.zeros(run_count), np.zeros(run_count), np.zeros(run_count)
        self.back_s = np.full((run_count, policy.spare_count + len(policy.rates_ratio) + 1), -1.0)
        spread = np.exp(random.standard_normal(run_count) * failures.log_sigma_ratio)
        self.failure_s = failures.failure_interval_s / spread
        self.prices: PricePaths = price_paths(market, run_count, horizon_s, random)
        self.unsaved_seconds = {share: np.zeros(run_count) for share in ("productive", "degraded", "checkpoint")}
        self.seconds = {share: np.zeros(run_count) for share in SHARES}
        self.failure_count, self.paid_hours = np.zeros(run_count), np.zeros(run_count)

    def advance(self, runs: Any, seconds: Any, share: str, *, is_paid: bool = True) -> None:
        """Let time pass that belongs to one share."""
        if is_paid:
            self.pay(runs, seconds)
        self.seconds[share][runs] += seconds
        self.now[runs] += seconds

    def pay(self, runs: Any, seconds: Any) -> None:
        """Add the price of the time that is to pass."""
        until = self.prices.paid_until(runs, self.now[runs] + seconds)
        self.paid_hours[runs] += until - self.prices.paid_until(runs, self.now[runs])


def simulate_goodput(
    failures: FailureModel, save: CheckpointCost, *, restart_s: float, interval_s: float,
    policy: ElasticPolicy, market: SpotMarket | None, horizon_s: float, run_count: int, seed: int,
) -> SimulatedShares:  # fmt: skip
    """Return the shares of the time of many runs of one length.

    Failures are exponential, also during restarts. A run starts fresh, without loading; its last stretch counts as
    productive though no checkpoint follows it.

    Args:
        restart_s: detection, rescheduling, loading and warm-up after a failure.
        interval_s: work between two checkpoints.

    Raises:
        SpecError: so many failures are expected that the simulation would not end.
    """
    if restart_s < 0 or interval_s <= 0 or horizon_s <= 0 or run_count < 1:
        raise SpecError("goodput: restart_s must be at least 0; interval_s, horizon_s and run_count above 0")
    least_s = min(failures.failure_interval_s, market.reclaim_interval_s if market else _NONE)
    if horizon_s > MOST_FAILURES * least_s:
        raise SpecError(
            f"goodput: {horizon_s / least_s:,.0f} failures expected in {horizon_s / 86_400:.3g} days, over the limit "
            f"of {MOST_FAILURES:,}; give a horizon of at most {MOST_FAILURES * least_s / 86_400:.3g} days"
        )
    state = _Runs(
        failures, save, restart_s, interval_s, policy, market, horizon_s, run_count, np.random.default_rng(seed)
    )
    while len(runs := np.flatnonzero(state.now < horizon_s * (1 - 1e-12))):
        runs = _wait(state, runs)
        if len(runs):
            _episode(state, runs)
    return SimulatedShares(state.seconds, state.failure_count, state.paid_hours)


def _missing(state: _Runs, runs: Any) -> Any:
    """Return how many nodes each run lacks beyond its spares."""
    broken = (state.back_s[runs] > state.now[runs, None]).sum(axis=1)
    return np.maximum(0, broken - state.policy.spare_count)


def _wait(state: _Runs, runs: Any) -> Any:
    """Let runs without enough nodes, or above their price, wait for the next change; return those that can go on."""
    short = _missing(state, runs) >= len(state.policy.rates_ratio)
    hour = (state.now[runs] / HOUR_S).astype(np.int64)
    opens = state.prices.next_open[runs, hour]
    closed = opens > hour
    back = np.where(state.back_s[runs] > state.now[runs, None], state.back_s[runs], _NONE).min(axis=1)
    until = np.where(short, back, opens * HOUR_S)
    stays = short | closed
    idle = runs[stays]
    state.advance(idle, np.minimum(until[stays], state.horizon_s) - state.now[idle], "idle", is_paid=False)
    state.pending[idle] = np.maximum(state.pending[idle], np.where(closed[stays], state.restart_s, 0.0))
    return runs[~stays]


def _episode(state: _Runs, runs: Any) -> None:
    """Restart and run until the next failure, reclaim, closed price, returning node or the end."""
    missing = _missing(state, runs)
    market, policy = state.market, state.policy
    to_failure = state.random.exponential(size=len(runs)) * state.failure_s[runs]
    reclaim_s = market.reclaim_interval_s if market else _NONE
    to_reclaim = state.random.exponential(size=len(runs)) * reclaim_s if market else np.full(len(runs), _NONE)
    restart = np.minimum(np.minimum(state.pending[runs], to_failure), state.horizon_s - state.now[runs])
    failed = to_failure <= state.pending[runs]
    state.advance(runs, restart, "restart")
    state.pending[runs] -= restart
    left = state.horizon_s - state.now[runs]
    hour = np.minimum((state.now[runs] / HOUR_S).astype(np.int64), state.prices.next_closed.shape[1] - 1)
    to_closed = np.maximum(state.prices.next_closed[runs, hour] * HOUR_S - state.now[runs], 0.0)
    to_closed = np.where(state.prices.next_closed[runs, hour] < state.prices.next_closed.shape[1], to_closed, _NONE)
    # A node that returns is taken in after the next checkpoint.
    cycle = state.interval_s + state.save.blocking_s
    back = np.where(state.back_s[runs] > state.now[runs, None], state.back_s[runs], _NONE).min(axis=1)
    wait = np.maximum(0.0, back - state.now[runs]) + state.unsaved[runs]
    to_back = np.where(missing > 0, np.ceil(wait / cycle - 1e-9) * cycle - state.unsaved[runs], _NONE)
    ends = np.stack([to_failure - restart, to_reclaim, to_closed, to_back, left])
    ends[:, failed] = 0.0
    what = np.where(failed, 0, ends.argmin(axis=0))
    ran = ends.min(axis=0)
    rate = np.array(policy.rates_ratio)[missing]
    for kind in range(5):
        chosen = what == kind
        if chosen.any():
            _finish(state, runs[chosen], ran[chosen], rate[chosen], kind)


def _finish(state: _Runs, runs: Any, ran: Any, rate: Any, kind: int) -> None:
    """Book a stretch of work that ended by a failure (0), reclaim (1), closed price (2), return (3) or the end (4)."""
    save, policy, market = state.save, state.policy, state.market
    cycle = state.interval_s + save.blocking_s
    place = state.unsaved[runs] + ran
    done = np.floor(place / cycle + 1e-12)
    durable = np.clip(np.floor((place - save.background_s) / cycle + 1e-12), 0, done)
    saved, next_restart = place, np.full(len(runs), state.restart_s)
    if kind == 0:
        state.failure_count[runs] += 1
        draws = state.random.random((3, len(runs)))
        foreseen = draws[0] < state.failures.foreseen_ratio
        saved = np.where(foreseen, place, durable * cycle)
        next_restart = np.where(foreseen, policy.migrate_s, next_restart)
        if policy.peer is not None:
            by_peer = ~foreseen & (draws[1] >= policy.peer.loss_ratio)
            turn = policy.peer.interval_s + policy.peer.blocking_s
            saved = np.where(by_peer, place - np.fmod(place - done * cycle, turn), saved)
            next_restart = np.where(by_peer, policy.peer.restart_s, next_restart)
        if state.failures.repair_s > 0:
            is_broken = draws[2] < state.failures.hardware_ratio
            broken = runs[is_broken]
            until = state.now[broken] + ran[is_broken] + state.failures.repair_s
            state.back_s[broken, state.back_s[broken].argmin(axis=1)] = until
    elif kind in (1, 2):
        assert market is not None
        saved = durable * cycle
        if market.notice_s >= save.blocking_s:  # the last part of the stretch saves it
            saved = np.maximum(durable * cycle, place - save.blocking_s)
    elif kind == 3:
        next_restart[:] = policy.reshape_s
    _book(state, runs, ran, rate, saved, done)
    state.unsaved[runs] = np.maximum(saved - done * cycle, 0.0) if kind == 0 else 0.0
    if kind != 0:
        for seconds in state.unsaved_seconds.values():
            seconds[runs] = 0.0
    state.pending[runs] = 0.0 if kind == 4 else next_restart
    if kind == 1 and market is not None:
        wait = np.minimum(market.wait_s, state.horizon_s - state.now[runs])
        state.advance(runs, wait, "idle", is_paid=False)


def _book(state: _Runs, runs: Any, ran: Any, rate: Any, saved: Any, done: Any) -> None:
    """Divide a stretch of work among the shares; work since the last durable checkpoint that is lost becomes rework."""
    save, peer = state.save, state.policy.peer
    cycle, before = state.interval_s + save.blocking_s, state.unsaved[runs]
    place, reached = before + ran, np.maximum(saved, before)
    saves = np.minimum(np.floor(reached / cycle + 1e-12), done)
    partial = np.clip(reached - saves * cycle - state.interval_s, 0.0, save.blocking_s)
    saving = saves * (save.blocking_s + min(save.background_s, state.interval_s) * save.contention_ratio) + partial
    saving = np.minimum(saving, reached - before)
    beside = 0.0 if peer is None else peer.blocking_s / (peer.interval_s + peer.blocking_s)
    work = (reached - before - saving) * (1 - beside)
    gained = {"productive": rate * work, "degraded": (1 - rate) * work, "checkpoint": reached - before - work}
    lost = np.divide(before - saved, before, out=np.zeros_like(before), where=saved < before)
    state.pay(runs, ran)
    state.now[runs] += ran
    state.seconds["rework"][runs] += place - reached
    left = np.maximum(saved - done * cycle, 0.0) / np.maximum(
        reached - before, 1e-300
    )  # share of the stretch not saved
    for share, seconds in gained.items():
        taken = lost * state.unsaved_seconds[share][runs]
        state.seconds[share][runs] += seconds - taken
        state.seconds["rework"][runs] += taken
        held = np.where(
            saves > 0, np.minimum(left, 1.0) * seconds, state.unsaved_seconds[share][runs] - taken + seconds
        )
        state.unsaved_seconds[share][runs] = held
