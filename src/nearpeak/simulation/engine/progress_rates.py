"""Progress rates of all work that runs at one moment."""

from collections.abc import Sequence

from nearpeak.simulation.engine.fair_shares import progress
from nearpeak.simulation.engine.partition import Context
from nearpeak.simulation.engine.resident_blocks import Group
from nearpeak.simulation.engine.work_nodes import Flow, Running
from nearpeak.simulation.machine import Machine
from nearpeak.simulation.machine_units import PIPES, PS_PER_S
from nearpeak.simulation.power_governor import Power

EXACT = 1.0 + 1e-12


class Rates:
    """Speeds of flows, of 1 when alone; the same company is not worked out twice."""

    def __init__(self, machine: Machine, contexts: Sequence[Context]) -> None:
        self.pools = tuple(machine.pool_bytes_per_s)
        shared = tuple(rate / PS_PER_S for rate in machine.pool_bytes_per_s.values())
        self.own = {
            context.name: tuple(
                context.pool_bytes_per_s[pool] / PS_PER_S if pool in context.pool_bytes_per_s else None
                for pool in self.pools
            )
            for context in contexts
        }
        self.shared = shared
        self.known: dict[object, list[float]] = {}

    def speeds(self, running: list[tuple[Group, Flow]], moving: list[Flow], clock_ratio: float) -> list[float]:
        """Return the speed of each flow: first those on multiprocessors, then those of copy engines."""
        key = (
            clock_ratio,
            *((group.mask, flow.running.order, flow.phase, flow.count, self._held(flow)) for group, flow in running),
            *((0, flow.running.order, 0, 1, False) for flow in moving),
        )
        if key not in self.known:
            if len(self.known) > 4096:
                self.known.clear()
            self.known[key] = self._solve(running, moving, clock_ratio)
        return self.known[key]

    def watts(self, running: list[tuple[Group, Flow]], moving: list[Flow], speeds: list[float], power: Power) -> float:
        """Return the power of all work above idle, at the highest voltage."""
        pipe_w = [power.pipe_w.get(pipe, 0.0) for pipe in PIPES]
        byte_j = [power.byte_j.get(pool, 0.0) * PS_PER_S for pool in self.pools]
        counts = [flow.count * group.mask.bit_count() for group, flow in running] + [1] * len(moving)
        flows = [flow for _, flow in running] + moving
        total = (
            power.busy_w
            if any(
                (any(flow.running.paces[flow.phase].pipes) or any(flow.running.paces[flow.phase].pools))
                for flow in flows
            )
            else 0.0
        )
        for flow, count, speed in zip(flows, counts, speeds, strict=True):
            pace = flow.running.paces[flow.phase]
            each = sum(w * use for w, use in zip(pipe_w, pace.pipes, strict=True))
            each += sum(j * use for j, use in zip(byte_j, pace.pools, strict=True))
            total += speed * count * each
        return total

    def _held(self, flow: Flow) -> bool:
        """Return whether a flow waits for the end of what came before."""
        return flow.running.paces[flow.phase].waits and bool(flow.running.waits_for)

    def _solve(self, running: list[tuple[Group, Flow]], moving: list[Flow], clock_ratio: float) -> list[float]:
        """Set up who draws how much of what, and share it."""
        flows = [flow for _, flow in running] + moving
        counts = [flow.count * group.mask.bit_count() for group, flow in running] + [1] * len(moving)
        live = [not self._held(flow) for flow in flows]
        columns, capacities = self._pipes(running, live, clock_ratio)
        for place in range(len(self.pools)):
            for draws, capacity in self._pool(place, flows, live):
                columns.append(draws)
                capacities.append(capacity)
        tight = [
            i for i, column in enumerate(columns)
            if sum(use * count for use, count in zip(column, counts, strict=True)) > capacities[i] * EXACT
        ]  # fmt: skip
        speeds = [1.0] * len(flows)
        if tight:
            uses = [[columns[i][j] for i in tight] for j in range(len(flows))]
            speeds = progress(uses, counts, [capacities[i] for i in tight])
        return [speed if alive else 0.0 for speed, alive in zip(speeds, live, strict=True)]

    def _pipes(
        self, running: list[tuple[Group, Flow]], live: list[bool], clock_ratio: float
    ) -> tuple[list[list[float]], list[float]]:
        """Return the use of each unit of each group's multiprocessors; each has one at its clock."""
        columns: list[list[float]] = []
        capacities: list[float] = []
        groups = list({id(group): group for group, _ in running}.values())
        for group in groups:
            for pipe in range(len(PIPES)):
                column = [
                    flow.running.paces[flow.phase].pipes[pipe] if owner is group and alive else 0.0
                    for (owner, flow), alive in zip(running, live, strict=False)
                ]
                if any(column):
                    columns.append(column + [0.0] * (len(live) - len(running)))
                    capacities.append(group.mask.bit_count() * clock_ratio)
        return columns, capacities

    def _pool(self, place: int, flows: list[Flow], live: list[bool]) -> list[tuple[list[float], float]]:
        """Return the use of one pool: what all share, and what a context has for itself."""
        owners: dict[str, float] = {}
        for flow in flows:
            private = self.own[flow.running.node.context][place]
            owners["" if private is None else flow.running.node.context] = (
                self.shared[place] if private is None else private
            )
        columns = []
        for owner, capacity in owners.items():
            column = [
                flow.running.paces[flow.phase].pools[place]
                if alive and self._owner(flow.running, place) == owner
                else 0.0
                for flow, alive in zip(flows, live, strict=True)
            ]
            if any(column):
                columns.append((column, capacity))
        return columns

    def _owner(self, running: Running, place: int) -> str:
        return "" if self.own[running.node.context][place] is None else running.node.context
