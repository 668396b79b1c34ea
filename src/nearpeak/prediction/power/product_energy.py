"""Energy of a product on matrix units, and a reached rate as work per clock at the clock that power allows."""

import math

from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.prediction.calibration.related_devices import multiplies_in_pairs
from nearpeak.prediction.power.voltage import AT_REST_RATIO, FLOOR_RATIO, clock_drawing, drawn_ratio

_GENERATION = {
    "pascal": 1.0, "volta": 0.9, "turing": 0.9, "ampere": 0.55, "ada": 0.4, "hopper": 0.35, "blackwell": 0.33,
    "cdna3": 0.388, "cdna4": 0.33,
}  # fmt: skip
"""Energy of a product by generation, against 16 nm: an assumption after published process nodes.

That of CDNA 3 makes `_PRODUCT_J` what AMD measured: 708 TFLOP/s in bf16 at a median clock of 1,207 MHz on the MI300X,
843 TFLOP/s at 1,447 MHz on the MI325X, 0.94 of the rate at these clocks, come to 1.44 and 1.41 pJ at 2.1 GHz (AMD,
Measuring Max-Achievable FLOPs, part 2, 2025). CDNA 4 is of a finer process: as Blackwell, an assumption.
"""
_PRODUCT_J = 0.83e-12
"""Energy of a product of two 16-bit numbers and its sum, per FLOP, at 1 GHz of the highest clock, on 16 nm.

Products of more than 10 ms sustain 0.74 of the rate on the H100, 0.60 on the B200, 0.58 on the GB200 (gpu_facts.md,
power sag): by the voltage curve and 0.94 of the rate at the clock 0.82, 0.83 and 0.86; the L40S, 0.66, comes to 0.65.
"""
_HALVED = {"AMD": 0.55, "NVIDIA": 0.62}
"""Energy of a product against one of twice the bits: 0.55 on both boards of CDNA 3 by AMD's 1,273 and 1,519 TFLOP/s in
fp8 at 1,230 and 1,464 MHz; 0.61 on the B200, 0.65 on the H100 by their shares above 10 ms in bf16 and fp8."""
_SCALED_SUM = 1.12
"""Energy of a product whose sums vector units scale every 128 elements: one multiply-add in fp32, 11 to 15 pJ per FLOP
on processes of 4 to 7 nm (16 TFLOP/s of the 250 W of an A100, NeuSight), for 256 FLOP."""
_KINDS = {"ada": 0.79, "hopper": 1.0, "blackwell": 1.0, "cdna3": 1.0, "cdna4": 1.0, "ampere": 1.43, "turing": 2.6}
"""Energy of matrix units of a generation against that: the L40S sustains 0.66; the A100 0.84 at any length, so that it
takes at most so much; the T4 24 TFLOP/s in fp16 (NVIDIA developer forum, about GPU peak performance, 2023). Workstation
Blackwell has the units of Ada."""
_VECTOR_J = {
    "pascal": 10e-12, "volta": 8.7e-12, "turing": 11.7e-12, "ampere": 10e-12, "ada": 6.4e-12, "hopper": 10e-12,
}  # fmt: skip
"""Energy per FLOP of a multiply-add in fp32 at 1 GHz of the highest clock, on 16 nm: the T4 sustains 0.47 of its rate,
the L4 0.34 (gpu_facts.md, power sag: labels of NeuSight), at most 0.8 at a clock; the A100 0.8 of 250 W, so that it
takes at most 14, the V100 0.93 of 250 W, at most 8.7; 10 stands for what nothing tells. Workstation Blackwell takes
less than half of that."""
BYTE_J = 52e-12
"""Energy of a byte from memory: 0.413 of 1,000 W at 8 TB/s, the B200's fitted memory_ratio (coefficients/power)."""
_WORK_RATIO = 0.94
"""Most of the rate at a clock that kernels reach: AMD's on the MI300X and the MI325X (see `_GENERATION`)."""
UNITS = ("tensor.bf16", "tensor.fp16", "tensor.fp8", "tensor.int8", "tensor.fp4", "vector.fp32")
"""Units whose energy is known."""
_SHORT = 32
"""Elements of the longest block that matrix units scale by themselves (OCP microscaling formats, NVFP4)."""


def generation_energy(device: Target) -> float:
    """Return the energy of a product at a clock by generation, against 16 nm; 1 where none is assumed.

    >>> from nearpeak.targets import target_of
    >>> generation_energy(target_of("l40s")), generation_energy(target_of("rtx_pro_6000"))
    (0.4, 0.33)
    """
    return next((energy for name, energy in _GENERATION.items() if device.architecture.startswith(name)), 1.0)


def scales_by_vectors(dtype: str) -> bool:
    """Return whether vector units scale parts of the sums, as matrix units have no such blocks.

    >>> scales_by_vectors("fp8_block"), scales_by_vectors("nvfp4"), scales_by_vectors("fp8_tensor")
    (True, False, False)
    """
    scheme = DTYPES[dtype].scheme
    return scheme is not None and scheme.a.scaled and scheme.a.column_count > _SHORT


def expected_energy(device: Target, unit: str, dtype: str) -> float | None:
    """Return the energy of a product at the highest clock of a board, J per FLOP; none where nothing tells it.

    >>> from nearpeak.targets import target_of
    >>> round(expected_energy(target_of("mi300x"), "tensor.bf16", "bf16") * 1e12, 2)
    1.42
    """
    kind = _kind(device)
    if unit not in UNITS or not device.clock_hz or device.vendor not in ("NVIDIA", "AMD"):
        return None
    squared = (device.clock_hz / 1e9) ** 2 * generation_energy(device)
    if unit == "vector.fp32":
        each = next((each for name, each in _VECTOR_J.items() if device.architecture.startswith(name)), None)
        return None if each is None else each * squared
    if kind is None:
        return None
    halvings = {"bf16": 0, "fp16": 0, "fp8": 1, "int8": 1, "fp4": 2}[unit.partition(".")[2]]
    return (
        _PRODUCT_J
        * kind
        * _HALVED[device.vendor] ** halvings
        * squared
        * (_SCALED_SUM if scales_by_vectors(dtype) else 1.0)
    )


def _kind(device: Target) -> float | None:
    """Return the energy of matrix units against those of Hopper; none where nothing tells it."""
    if device.architecture.startswith("blackwell") and not multiplies_in_pairs(device):
        return _KINDS["ada"]
    return next((ratio for name, ratio in _KINDS.items() if device.architecture.startswith(name)), None)


def work_and_energy(share: float, board: float, energy: float) -> tuple[float, float]:
    """Return the work per clock behind a reached share of the rate at the highest clock, and the energy of a product.

    Power holds a board at the clock at which its voltage squared times energy and share is what it has left. Where that
    is less than the clock that the share itself needs, every clock does all it can, and products take less energy.

    >>> work, energy = work_and_energy(0.3456, 0.2164, 0.86)
    >>> round(work, 2), energy
    (0.46, 0.86)
    >>> work_and_energy(0.3, 1.0, 0.86)
    (0.3, 0.86)

    Args:
        share: of the rate at the highest clock.
        board: power that is left over the rate at the highest clock, J per FLOP.
        energy: of a product at the highest clock, J per FLOP.
    """
    squared = board / (share * energy)
    if squared >= 1.0:
        return share, energy
    voltage = math.sqrt(squared)
    clock = (voltage - AT_REST_RATIO) / (1 - AT_REST_RATIO) if voltage > FLOOR_RATIO else 0.0
    return (share / clock, energy) if clock > share else (1.0, board / float(drawn_ratio(share)))


def burst_clock(share: float, board: float, energy: float) -> float:
    """Return the clock of products in bursts, of the highest: the one at which kernels' share of the rate is plausible.

    >>> round(burst_clock(0.707, 0.73, 1.67), 2), burst_clock(0.97, 0.53, 1.14)
    (0.75, 1.0)

    Args:
        share: of the rate at the highest clock.
        board: power that is left over the rate at the highest clock, J per FLOP.
        energy: of a product at the highest clock, J per FLOP.
    """
    work, _ = work_and_energy(share, board, energy)
    return min(share / min(work, _WORK_RATIO), 1.0)


def share_at(work: float, board: float, energy: float) -> float:
    """Return the share of the rate at the highest clock that a board reaches with so much work per clock.

    >>> round(share_at(0.46, 0.916, 0.86), 2), round(share_at(0.46, 0.2164, 0.86), 2)
    (0.46, 0.35)
    """
    return work * min(float(clock_drawing(board / (work * energy))), 1.0)
