"""Power of an existing device, and energy of simulated runs without a power governor."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from nearpeak.core.answers.simulation import Run
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction import KERNEL_MODELS
from nearpeak.prediction.calibration import coefficient_reader
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.engine.engine_coefficients import is_jetson
from nearpeak.prediction.kernel_model import CaseColumns
from nearpeak.prediction.power.board_power import at_rest_w, clock_in_bursts
from nearpeak.prediction.power.product_energy import BYTE_J, expected_energy
from nearpeak.prediction.power.voltage import AT_REST_RATIO, FLOOR_RATIO
from nearpeak.prediction.product_units import unit_of
from nearpeak.simulation.engine.device_work import Copy, Kernel, Node
from nearpeak.simulation.machine_units import PS_PER_S
from nearpeak.simulation.power_governor import Power
from nearpeak.targets import TARGETS, target_of

_FOLDER = Path(coefficient_reader.__file__).parents[1] / "coefficients/power"
_GROUPS = {"fp8": "fp8_tensor", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "mxfp4": "nvfp4", "mxfp8": "fp8_block"}
"""Substitute format for power; bf16 for all others."""
_VECTOR = "vector.fp32"
_SHARPNESS = 8.0
"""Power at which a board's limit takes over from what its units would draw, as in predictions."""
WARMING_CELSIUS_PER_W, LEAKAGE_RATIO_PER_CELSIUS = 0.075, 0.004
"""Warming by each watt and growth of the power at rest with temperature. Assumptions: 700 W at 82 °C in air of 30 °C;
leakage that doubles within tens of degrees is about a tenth of what a board draws at rest."""


def power_of(target: Target, dtype: str = "bf16", *, governs: bool = False) -> Power | None:
    """Return the power model of a device; none where no document states its limit.

    What its units draw was measured of one device, as shares of the limit; energy per operation and per byte of an
    edited or partitioned device are those of the whole one. What a governor weighs is the energy of products and bytes
    that predictions of sustained work rest on, where it is known.

    Args:
        dtype: format of products, whose energy differs.
        governs: whether the clock follows from power and heat, instead of being in what was measured of kernels.

    Raises:
        NotModelledError: the clock is to follow from power, and no document states the limit.
        SpecError: an edited limit leaves nothing above what the device draws at rest.

    >>> power = power_of(target_of("h200_sxm"))
    >>> power.limit_w, round(power.idle_w)
    (700.0, 159)
    """
    stem = re.split("[:+]", target.name, maxsplit=1)[0]
    stock = target_of(stem) if stem in TARGETS else target
    stock_w = target.power_w if stock.power_w is None else stock.power_w  # that of an edit where no document states it
    if target.kind != "gpu" or target.power_w is None or stock_w is None or not stock.dram.bandwidth_bytes_per_s:
        if governs:
            raise NotModelledError(
                f"{target.name}: no document states its power limit, so that no clock follows from power; "
                'state it, e.g. --set power.limit="300 W", or run without --governed'
            )
        return None
    shares = _shares(
        stem, next((group for name, group in sorted(_GROUPS.items(), reverse=True) if dtype.startswith(name)), "bf16")
    )
    byte_j = shares["memory_ratio"] * stock_w / stock.dram.bandwidth_bytes_per_s
    rest_w = min(stock_w, target.power_w) if ":" in target.name else stock_w  # power modes rest lower
    power = Power(
        idle_w=shares["idle_ratio"] * rest_w, busy_w=shares["busy_ratio"] * stock_w,
        limit_w=target.power_w, governs=governs,
        pipe_w={name: shares[f"{key}_ratio"] * stock_w / stock.sm_count
                for name, key in (("tensor", "products"), ("vector", "vector"))},
        byte_j={"dram": byte_j},
        warming_celsius_per_w=WARMING_CELSIUS_PER_W * 700.0 / stock_w,
        leakage_ratio_per_celsius=LEAKAGE_RATIO_PER_CELSIUS,
    )  # fmt: skip
    return _with_known_energy(power, target, stock, dtype) if governs else power


def _with_known_energy(power: Power, target: Target, stock: Target, dtype: str) -> Power:
    """Return the power with what predictions of sustained work take a product and a byte to cost, where that is known.

    Shares of the limit say what a board draws, not what its products would draw beyond that: by them the limit hardly
    holds a clock. The rates of kernels are those of bursts, whose clock is the highest of the run.

    Source: `product_energy`, which names where each energy is from.
    """
    dtypes = {"dtype": dtype}
    try:
        unit = unit_of(target, dtypes)
        used = calibration_for(
            target, KERNEL_MODELS["gemm"], CaseColumns(op="gemm", phase="forward", dtypes=dtypes, axes={})
        )
    except NotModelledError:
        return power
    energy = expected_energy(target, unit, dtype)
    if energy is None or is_jetson(target):
        return power
    reached = next(coefficient.value for coefficient in used.coefficients if coefficient.name == "tensor_ratio")
    clock = clock_in_bursts(stock, unit, reached, energy)
    straight = AT_REST_RATIO + (1 - AT_REST_RATIO) * clock
    volt = max(straight, FLOOR_RATIO)
    unit_w = {"tensor": energy * target.peaks[unit].flop_per_s * reached}
    vector_j = expected_energy(target, _VECTOR, "fp32")
    if vector_j is not None and _VECTOR in target.peaks:
        unit_w["vector"] = vector_j * target.peaks[_VECTOR].flop_per_s
    return replace(
        power, idle_w=at_rest_w(target if ":" in target.name else stock), busy_w=0.0, byte_j={"dram": BYTE_J},
        pipe_w=dict(power.pipe_w) | {name: watt * volt**2 / target.sm_count for name, watt in unit_w.items()},
        voltage_floor_ratio=AT_REST_RATIO / straight, least_voltage_ratio=FLOOR_RATIO / volt,
    )  # fmt: skip


@lru_cache(maxsize=256)
def _shares(stem: str, group: str) -> Mapping[str, float]:
    """Return power by part, of the limit: the device's own where it was measured."""
    path = _FOLDER / f"{stem}.toml"
    groups = coefficient_reader.read_coefficients(path if path.exists() else _FOLDER / "_prior.toml")["groups"]
    shares: Mapping[str, float] = groups[f"power.{group}"]["scalars"]
    return shares


def scaled(power: Power, area_ratio: float, clock_ratio: float) -> Power:
    """Return the power of a die of another size at another highest clock, which a board of as much more supplies.

    What is drawn at rest goes with the area; energy per operation with the square of the voltage.

    >>> scaled(Power(idle_w=100, limit_w=700, pipe_w={"tensor": 4.0}), 2.0, 1.0).limit_w
    1400.0
    """
    volt = power.voltage_ratio(clock_ratio)
    return replace(
        power, idle_w=power.idle_w * area_ratio, busy_w=power.busy_w * area_ratio, limit_w=power.limit_w * area_ratio,
        pipe_w={name: watt * volt * volt * clock_ratio for name, watt in power.pipe_w.items()},
    )  # fmt: skip


def work_j(node: Node, power: Power) -> float:
    """Return the energy of a kernel's or copy's work, independent of its time."""
    if isinstance(node, Copy):
        return sum(amount * power.byte_j.get(pool, 0.0) for pool, amount in node.pool_bytes.items())
    each = sum(
        sum(seconds * power.pipe_w.get(pipe, 0.0) for pipe, seconds in phase.pipe_s.items())
        + sum(amount * power.byte_j.get(pool, 0.0) for pool, amount in phase.pool_bytes.items())
        for phase in node.phases
    )
    return node.cta_count * each


def run_j(nodes: Sequence[Node], run: Run, power: Power) -> float:
    """Return the energy of a whole run: rest, work, and what working adds; never more than the limit for all its time.

    Blocks that wait for their launch draw nothing beyond rest: a kernel of nothing but a launch leaves the board as it
    is at full clocks.
    """
    time_s = run.end_ps / PS_PER_S
    if not time_s:
        return 0.0
    work = sum(work_j(node, power) for node in nodes)
    whole: float = power.idle_w * time_s + power.busy_w * _busy_ps(nodes, run) / PS_PER_S + work
    limited = 1.0 + (whole / (power.limit_w * time_s)) ** _SHARPNESS
    return float(whole / limited ** (1 / _SHARPNESS))


def _busy_ps(nodes: Sequence[Node], run: Run) -> int:
    """Return the time in which any kernel or copy worked, its launch left out."""
    spans = {span.name: span for span in run.spans}
    times = sorted(
        (min(spans[node.name].start_ps + _lead_ps(node), spans[node.name].end_ps), spans[node.name].end_ps)
        for node in nodes
    )
    busy = reached = 0
    for start, end in times:
        busy += max(end - max(start, reached), 0)
        reached = max(reached, end)
    return busy


def _lead_ps(node: Node) -> int:
    """Return the initial wait of a block."""
    if not isinstance(node, Kernel):
        return 0
    lead = 0
    for phase in node.phases:
        if phase.works():
            return lead
        lead += phase.fixed_ps
    return lead
