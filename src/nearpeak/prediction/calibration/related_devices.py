"""Relations between devices: same kernels, same matrix-unit generation, same formats."""

from nearpeak.core.work.target import Target

_PAIRED_FLOP = 8192
"""FLOP per clock from which multiprocessors multiply tiles of 256 rows in pairs: data-centre Blackwell."""
_LARGE_FLOP = 2048
"""FLOP per clock in bf16 from which a multiprocessor is one of a data-centre chip."""
_SAME_KERNELS = ({"bf16", "fp16"}, {"fp8_tensor", "fp8_e4m3", "fp8_e5m2"})
"""Formats that the same kernels multiply, at the same rate."""


def multiplies_in_pairs(target: Target) -> bool:
    """Return whether two multiprocessors form a product together, as those of data-centre Blackwell do.

    >>> from nearpeak.targets import target_of
    >>> multiplies_in_pairs(target_of("b200_sxm")), multiplies_in_pairs(target_of("rtx_pro_6000"))
    (True, False)
    """
    unit = target.peaks.get("tensor.bf16")
    return target.vendor == "NVIDIA" and unit is not None and unit.flop_per_clock >= _PAIRED_FLOP


def runs_kernels_of(target: Target, other: Target) -> bool:
    """Return whether libraries run the same kernels on both: workstation Blackwell has the matrix units of Ada.

    >>> from nearpeak.targets import target_of
    >>> ws, h20 = target_of("rtx_pro_6000"), target_of("h20")
    >>> runs_kernels_of(ws, target_of("b200_sxm")), runs_kernels_of(h20, target_of("h100_sxm"))
    (False, True)
    """
    return (target.vendor, _generation(target)) == (other.vendor, _generation(other))


def products_generation(target: Target) -> float:
    """Return the way in which kernels feed the matrix units: 0 synchronous, 1.5 asynchronous, 2 asynchronous in pairs.

    Matrix units before Hopper, and those of workstation Blackwell, hold up the threads that feed them (PTX ISA:
    mma.sync, wgmma.mma_async, tcgen05.mma). Kernels for the others give loads, products and the rest to threads of
    their own, so that Hopper's are nearer to those of paired multiprocessors than to those before.

    >>> from nearpeak.targets import target_of
    >>> [products_generation(target_of(name)) for name in ("l40s", "rtx_pro_6000", "h20", "b200_sxm")]
    [0.0, 0.0, 1.5, 2.0]
    """
    return 2.0 if multiplies_in_pairs(target) else 1.5 if target.architecture == "hopper" else 0.0


def cache_part_count(target: Target) -> int:
    """Return the parts of the last cache that each keep a copy of what their multiprocessors share.

    The cache of the large chips of NVIDIA from the A100 on is in two, and each part keeps what the multiprocessors next
    to it read (NVIDIA A100 Tensor Core GPU architecture whitepaper, 2020); their matrix units tell them from others.

    >>> from nearpeak.targets import target_of
    >>> [cache_part_count(target_of(name)) for name in ("a100_sxm_80gb", "a10", "l40s", "b200_sxm")]
    [2, 1, 1, 2]
    """
    unit = target.peaks.get("tensor.bf16")
    return 2 if target.vendor == "NVIDIA" and unit is not None and unit.flop_per_clock >= _LARGE_FLOP else 1


def _generation(target: Target) -> str:
    if multiplies_in_pairs(target):
        return "paired"
    return "ada" if target.architecture.startswith("blackwell") else target.architecture


def runs_products_of(target: Target, other: Target) -> bool:
    """Return whether products of matrices run the same kernels, on multiprocessors of about the same size.

    Boards and chips share names of architectures, not matrix units. Hopper is one chip: where its rate is held back,
    as on the H20, multiprocessors are the same.

    >>> from nearpeak.targets import target_of
    >>> h100, a100 = target_of("h100_sxm"), target_of("a100_sxm_80gb")
    >>> runs_products_of(target_of("h20"), h100), runs_products_of(target_of("rtx_3090"), a100)
    (True, False)
    """
    if not runs_kernels_of(target, other):
        return False
    rates = [device.peaks["tensor.bf16"].flop_per_clock for device in (other, target) if "tensor.bf16" in device.peaks]
    if len(rates) != 2:
        return len(rates) == 0
    return target.architecture == "hopper" or max(rates) <= 2 * min(rates)


def is_other_format(wanted: str, group: str) -> bool:
    """Return whether coefficients of a format are of other kernels than those of the wanted one.

    >>> is_other_format("fp16", "bf16"), is_other_format("fp8_block", "fp8_tensor")
    (False, True)
    """
    return wanted != group and not any({wanted, group} <= alike for alike in _SAME_KERNELS)
